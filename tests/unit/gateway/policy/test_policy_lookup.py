"""Which rules, destination and routes a message meets."""

from __future__ import annotations

from collections import Counter

from gateway.policy.rules.lookup import candidates, destination_for, tenant_rules
from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.tuning import tuning_of

POLICY = read_policy(
    """
tenant_defaults: {weight: 2, limits: {rate_per_s: 5, burst: 5}}
tenants:
  acme:
    weight: 4
    limits: {rate_per_s: 50, burst: 100}
    senders: {"+393330000001": {limits: {rate_per_s: 1, burst: 1}}, ACME: {}}
    applications: {sale: {limits: {rate_per_s: 10, burst: 10}}}
destinations:
  italy: {prefixes: ["+39"], limits: {rate_per_s: 200, burst: 200}, per_number: {rate_per_s: 1, burst: 3}}
  rome: {prefixes: ["+3906"]}
providers:
  a:
    limits: {rate_per_s: 150, burst: 150}
    sessions: {a1: {host: h, system_id: x, password: y, limits: {rate_per_s: 80, burst: 80}}}
  b: {sessions: {b1: {host: h, system_id: x, password: y}}}
routes:
  rest: {provider: b}
  it-backup: {match: {prefixes: ["+39"], classes: [otp]}, provider: b, preference: 2}
  it-main: {match: {prefixes: ["+39"]}, provider: a, preference: 1, weight: 1}
  it-twin: {match: {prefixes: ["+39"]}, provider: b, preference: 1, weight: 3, limits: {rate_per_s: 7, burst: 7}}
  rome-acme: {match: {prefixes: ["+3906"], tenants: [acme], senders: [ACME]}, provider: b, preference: 9}
""",
    4,
)


def names(tenant: str, class_name: str, sender: str, number: str, **how: float) -> list[str]:
    return [route.name for route in candidates(POLICY, tenant, class_name, sender, number, **how)]


def test_longest_prefix_then_preference_then_weight() -> None:
    assert names("x", "otp", "S", "+393331234567") == ["it-twin", "it-main", "it-backup", "rest"]
    assert names("x", "marketing", "S", "+393331234567") == ["it-twin", "it-main", "rest"]
    assert names("acme", "otp", "ACME", "+390612345678")[0] == "rome-acme"
    assert names("acme", "otp", "OTHER", "+390612345678")[0] == "it-twin"
    assert names("x", "otp", "S", "+4915112345678") == ["rest"]


def test_equals_are_drawn_by_weight() -> None:
    firsts = Counter(names("x", "otp", "S", "+39333", draw=n / 1000)[0] for n in range(1000))
    assert firsts == {"it-twin": 750, "it-main": 250}
    for n in range(0, 1000, 37):
        drawn = names("x", "otp", "S", "+39333", draw=n / 1000)
        assert sorted(drawn[:2]) == ["it-main", "it-twin"]
        assert drawn[2:] == ["it-backup", "rest"]


def test_longest_destination() -> None:
    found = [destination_for(POLICY, number) for number in ("+39333", "+390655", "+44")]
    assert [one and one.name for one in found] == ["italy", "rome", None]


def test_unlisted_tenants_have_the_defaults() -> None:
    rules = tenant_rules(POLICY, "new")
    assert (rules.name, rules.weight) == ("new", 2)
    assert tenant_rules(POLICY, "new") is rules
    assert tenant_rules(POLICY, "acme").weight == 4


def test_tuning_names_every_limit() -> None:
    tuning = tuning_of(POLICY, ["new", "acme"])
    assert tuning.policy_version == 4
    assert tuning.limits == {
        "tenant:": (5.0, 5),
        "tenant:acme": (50.0, 100),
        "tenant:new": (5.0, 5),
        "application:acme/sale": (10.0, 10),
        "sender:acme/+393330000001": (1.0, 1),
        "destination:italy": (200.0, 200),
        "number:italy": (1.0, 3),
        "provider:a": (150.0, 150),
        "session:a1": (80.0, 80),
        "route:it-twin": (7.0, 7),
    }
    assert tuning.tenant_weights == {"acme": 4.0, "new": 2.0}
    assert tuning.default_weight == 2.0
    assert tuning.classes["otp"].wait_budget_ms == 10_000


def test_tables_of_many_policies_do_not_mix() -> None:
    base = "providers: {a: {sessions: {s: {host: h, system_id: x, password: y}}}}\nroutes: {r%d: {provider: a}}\n"
    for n in range(30):
        policy = read_policy(base % n)
        assert [route.name for route in candidates(policy, "t", "otp", "S", "+39")] == [f"r{n}"]
