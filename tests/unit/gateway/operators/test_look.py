"""Which processes are told to be healthy."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.operators.look import STALE_MS, _process

NOW_AT = 1_900_000_000_000


@pytest.mark.parametrize(
    ("change", "healthy", "error"),
    [
        ({}, True, None),
        ({"policy_version": None}, True, None),
        ({"policy_error": "3: a secret is missing"}, True, None),  # version 3 was refused, 2 is in force and in use
        ({"policy_error": "2: a secret is missing"}, False, "2: a secret is missing"),  # in use without it
        ({"policy_version": 1}, False, None),
        ({"policy_version": 1, "policy_error": "2: a secret is missing"}, False, "2: a secret is missing"),
        ({"policy_version": None, "policy_error": "2: a secret is missing"}, False, "2: a secret is missing"),
        ({"heartbeat_at": NOW_AT - STALE_MS}, False, None),
    ],
)
def test_a_process_is_healthy_with_the_policy_in_force(
    change: dict[str, Any], healthy: bool, error: str | None
) -> None:
    row = {
        "id": 1,
        "role": "egress",
        "worker": "egress-1",
        "pid": 1,
        "host": "h",
        "started_at": NOW_AT,
        "heartbeat_at": NOW_AT,
        "policy_version": 2,
        "policy_error": None,
        "report": {},
    }
    told = _process(row | change, 2, NOW_AT)
    assert (told["healthy"], told["policy_error"]) == (healthy, error)
