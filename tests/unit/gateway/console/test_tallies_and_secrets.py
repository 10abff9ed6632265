"""What tenants got is counted in a bounded way; the audit speaks in words."""

from __future__ import annotations

from gateway.api.tenant_tallies import KEPT_MAX, TOLD_MAX, TenantTallies
from gateway.console.audits import in_words


def test_tallies_are_bounded_and_tell_the_busiest() -> None:
    tallies = TenantTallies()
    for number in range(KEPT_MAX + 100):
        tallies.accepted(f"t{number}", 2)
    for _ in range(5):
        tallies.refused("t599", "quota.rate")
    for number in range(100):
        tallies.refused("t598", f"reason-{number}")
    told = tallies.told()
    assert len(told) == TOLD_MAX
    assert next(iter(told)) == "t598"
    assert len(told["t598"]["refused"]) == 30
    assert told["t599"] == {"messages": 1, "segments": 2, "refused": {"quota.rate": 5}}
    assert "t0" not in tallies._tallies


def test_details_of_the_audit_in_words() -> None:
    assert in_words({"name": "a1", "retry": True, "scopes": ["send", "read"], "tenant": None}) == (
        "name a1, retry yes, scopes send + read"
    )
    assert in_words({"reason": "x" * 1000}).endswith("…")
