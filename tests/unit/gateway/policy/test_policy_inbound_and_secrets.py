"""Numbers that handsets write to, and secrets that callbacks are signed with, as the policy takes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.policy import secrets
from gateway.policy.rules.faults import PolicyInvalid
from gateway.policy.rules.parse import read_policy

REST = """
providers: {a: {sessions: {a1: {host: h, port: 1, system_id: a, password: b, bind: transceiver}}}}
routes: {main: {match: {}, provider: a}}
"""


def faults(tenants: str) -> list[tuple[int, str]]:
    with pytest.raises(PolicyInvalid) as found:
        read_policy(tenants + REST)
    return [(fault.line, fault.path) for fault in found.value.faults]


def test_a_number_belongs_to_one_tenant_however_it_is_written() -> None:
    tenants = (
        'tenants:\n  acme: {inbound_numbers: ["+39333000001", "60070"]}\n  beta:\n    inbound_numbers: ["60070"]\n'
    )
    assert faults(tenants) == [(4, "tenants.beta.inbound_numbers")]
    read_policy(tenants.replace('["60070"]', '["60071"]') + REST)


@pytest.mark.parametrize("secret", ["whsec_", '" "'])
def test_an_empty_secret_is_told_when_the_policy_is_checked(secret: str) -> None:
    tenants = f'tenants: {{acme: {{callbacks: {{url: "https://cb.example", secrets: [{secret}]}}}}}}\n'
    assert [path for _, path in faults(tenants)] == ["tenants.acme.callbacks.secrets"]


def test_a_secret_that_the_delivery_role_cannot_use_refuses_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    monkeypatch.setenv("GOOD_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    tenants = (
        f'tenants: {{acme: {{callbacks: {{url: "https://cb.example", secrets: [env:GOOD_SECRET, "file:{empty}",'
        " env:MISSING_SECRET]}}}\n"
    )
    told = secrets.check(read_policy(tenants + REST), "delivery")
    assert len(told) == 2 and "is empty" in told[0] and "MISSING_SECRET" in told[1]
    assert secrets.check(read_policy(tenants + REST), "api") == []
