from dataclasses import replace
from uuid import UUID

from gateway.admission.flows import NO_NUMBER, FlowFacts, deadline_of, entry_of, flow_of, ttl_band
from gateway.policy.rules.parse import read_policy

POLICY = read_policy(
    """
tenants:
  acme:
    limits: {rate_per_s: 50, burst: 100}
    senders: {ACME: {}, "+393330000001": {limits: {rate_per_s: 1, burst: 1}}}
    applications: {sale: {limits: {rate_per_s: 10, burst: 10}}, plain: {}}
destinations:
  italy: {prefixes: ["+39"], limits: {rate_per_s: 20, burst: 20}, per_number: {rate_per_s: 1, burst: 3}}
providers:
  carrier:
    limits: {rate_per_s: 100, burst: 100}
    sessions: {a1: {host: localhost, port: 2775, system_id: a, password: "env:NOWHERE"}}
routes:
  main: {match: {}, provider: carrier, limits: {rate_per_s: 60, burst: 60}}
"""
)
FACTS = FlowFacts("acme", "otp", "sale", "+393330000001", "+393331234567", "main", "carrier", 120_000)


def test_a_scope_appears_only_where_the_policy_limits_it() -> None:
    assert flow_of(POLICY, FACTS).scopes == (
        "tenant:acme",
        "application:acme/sale",
        "sender:acme/+393330000001",
        "destination:italy",
        "number:italy",
        "route:main",
        "provider:carrier",
    )
    bare = replace(FACTS, application="plain", sender="ACME", recipient="+447700900123")
    assert flow_of(POLICY, bare).scopes == ("tenant:acme", "application:acme/plain", "route:main", "provider:carrier")


def test_application_and_route_stand_in_it_whether_limited_or_not() -> None:
    unlimited = replace(POLICY, routes={"main": replace(POLICY.routes["main"], limits=None)})
    own = replace(FACTS, application="never-heard-of")
    assert {"application:acme/never-heard-of", "route:main"} < set(flow_of(unlimited, own).scopes)


def test_messages_with_the_same_limits_share_a_flow() -> None:
    other_number = replace(FACTS, recipient="+393339999999")
    assert flow_of(POLICY, FACTS) == flow_of(POLICY, other_number)
    assert flow_of(POLICY, FACTS) != flow_of(POLICY, replace(FACTS, recipient="+447700900123"))
    assert flow_of(POLICY, FACTS) != flow_of(POLICY, replace(FACTS, ttl_ms=300_000))


def test_what_is_kept_of_one_policy_never_answers_for_another() -> None:
    unlimited = replace(POLICY, destinations={"italy": replace(POLICY.destinations["italy"], limits=None)})
    assert "destination:italy" in flow_of(POLICY, FACTS).scopes
    assert "destination:italy" not in flow_of(unlimited, FACTS).scopes
    assert "destination:italy" in flow_of(POLICY, FACTS).scopes


def test_a_band_is_an_octave_of_the_time_to_live() -> None:
    assert [ttl_band(ms) for ms in (0, 999, 1_000, 1_999, 2_000, 3_999, 4_000, 3_600_000)] == [0, 0, 0, 0, 1, 1, 2, 11]


def row(**changes: object) -> dict[str, object]:
    base: dict[str, object] = {
        "id": UUID(int=7),
        "next_slot": 2,
        "segments": 3,
        "class": "otp",
        "application": None,
        "sender": "ACME",
        "recipient": "+393331234567",
        "route": "main",
        "provider": "carrier",
        "created_at": 1_000,
        "not_before": None,
        "submit_by": 11_000,
        "expires_at": 121_000,
        "submit_begun": False,
        "attempts_spent": 0,
    }
    return base | changes


def test_a_reference_carries_the_deadline_that_rules_the_next_submit() -> None:
    assert deadline_of(row()) == 11_000
    assert deadline_of(row(submit_begun=True)) == 121_000
    entry = entry_of(POLICY, b"pepper", "acme", row())
    assert (entry.reference.slot, entry.reference.segments, entry.reference.deadline_at) == (2, 3, 11_000)
    assert entry.reference.queued_at == 1_000
    assert not entry.retry
    assert entry_of(POLICY, b"pepper", "acme", row(attempts_spent=1)).retry


def test_a_number_has_a_token_only_where_a_limit_per_number_applies() -> None:
    italian = entry_of(POLICY, b"pepper", "acme", row()).reference.number
    assert italian != NO_NUMBER
    assert italian == entry_of(POLICY, b"pepper", "acme", row(created_at=5)).reference.number
    assert italian != entry_of(POLICY, b"other", "acme", row()).reference.number
    assert entry_of(POLICY, b"pepper", "acme", row(recipient="+447700900123")).reference.number == NO_NUMBER
