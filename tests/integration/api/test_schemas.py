"""Random calls made from the OpenAPI documents against real ports: never 5xx, and every answer as described.

The number of examples of each call is small here; by hand: TEST_SCHEMA_EXAMPLES=300 with `--timeout 3600`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi import checks

from gateway.api import openapi
from gateway.ledger.keys import MANAGE, READ, SEND
from tests.integration.api.conftest import Gateway

EXAMPLES = int(os.environ.get("TEST_SCHEMA_EXAMPLES", "8"))
NUMBER = "+447700900123"
_CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
# Answers that come of the machine and not of the call.
_BUSY = {"capacity.overload"}


def explore(document: dict[str, Any], base: str, key: str, known: dict[str, list[str]]) -> list[str]:
    """Plays every call of a document; returns what was wrong, one line per call."""
    schema = schemathesis.openapi.from_dict(document)
    faults = []
    with requests.Session() as session:
        for result in schema.get_all_operations():
            operation = result.ok()
            began = time.monotonic()
            played: int | str
            try:
                played = _play(operation, session, base, key, known)
            except BaseException as error:  # ExceptionGroup of schemathesis, or a hypothesis failure
                if isinstance(error, KeyboardInterrupt):
                    raise
                played = "a fault after some"
                faults.append(f"{operation.method.upper()} {operation.path}: {_told(error)}")
            # Seen with `pytest -s`, where a long run would else say nothing for an hour.
            took_s = time.monotonic() - began
            sys.stderr.write(f"{took_s:7.1f} s  {operation.method.upper()} {operation.path}: {played} calls\n")
    return faults


def _play(operation: Any, session: requests.Session, base: str, key: str, known: dict[str, list[str]]) -> int:
    """How many calls were made, all answered as described; raises what hypothesis raises of one that was not."""
    calls = 0

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize="TEST_SCHEMA_EXAMPLES" not in os.environ,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(), real=st.booleans(), place=st.integers(0, 7))
    def play(case: Any, real: bool, place: int) -> None:
        nonlocal calls
        calls += 1
        if real:  # a thing that is there, instead of a name that nothing has
            for name in case.path_parameters or {}:
                if name in known:
                    case.path_parameters[name] = known[name][place % len(known[name])]
        # A connection of its own each: what is left of a body that was refused is no part of the next request.
        answer = case.call(
            base_url=base, session=session, headers={"Authorization": f"Bearer {key}", "Connection": "close"}
        )
        if answer.status_code == 503 and answer.json().get("code") in _BUSY:
            return
        assert answer.status_code < 500, answer.content[:500]
        case.validate_response(answer, checks=_CHECKS)

    play()
    return calls


def _told(error: BaseException) -> str:
    parts = getattr(error, "exceptions", [error])
    return " | ".join(f"{type(one).__name__}: {str(one)[:1500]}" for one in parts)


@pytest.mark.timeout(3600 if "TEST_SCHEMA_EXAMPLES" in os.environ else 300)
async def test_tenant_calls_answer_as_described(gateway: Gateway) -> None:
    key = await gateway.give_key("acme", "explorer", scopes=[SEND, READ, MANAGE])
    sent = [
        (await gateway.send({"to": NUMBER, "from": "ACME", "text": str(n), "application": "app"})) for n in range(3)
    ]
    known = {"id": [reply.json["id"] for reply in sent], "name": ["app"], "number": [NUMBER]}
    assert await asyncio.to_thread(explore, openapi.document(), gateway.base, key, known) == []
