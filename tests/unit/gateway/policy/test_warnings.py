"""What `policy check` warns of: routes that nothing takes, send windows that stay closed for some."""

from __future__ import annotations

import pytest

from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.warnings import warn

BASE = """
classes: {{marketing: {{ttl: {{default: {ttl}, max: {ttl_max}}}}}}}
tenant_defaults: {{classes: [transactional], destinations: ["+39"], senders: {{ACME: {{}}}}}}
tenants: {{acme: {{classes: [transactional, marketing]}}}}
providers:
  a: {{sessions: {{a1: {{host: h, port: 1, system_id: s, password: "env:P", bind: transceiver, window: 1}}}}}}
destinations:
  italy: {{prefixes: ["+39"], send_window: {{classes: [{classes}], from: "09:00", to: "20:00", timezone: Europe/Rome}}}}
routes:
  main: {{match: {{}}, provider: a}}
  other: {{match: {match}, provider: a}}
"""


def warnings(match: str = "{}", classes: str = "marketing", ttl: str = "14h", ttl_max: str = "48h") -> dict[str, str]:
    policy = read_policy(BASE.format(match=match, classes=classes, ttl=ttl, ttl_max=ttl_max))
    return {fault.path: fault.message for fault in warn(policy) if fault.path.startswith(("routes", "destinations"))}


def test_a_policy_without_such_faults_warns_of_none() -> None:
    assert warnings() == {}
    assert warnings('{classes: [marketing], tenants: [acme], senders: [ACME], prefixes: ["+3933"]}') == {}


@pytest.mark.parametrize(
    ("match", "path"),
    [
        ("{classes: [otp]}", "classes"),
        ("{tenants: [nobody]}", "tenants"),
        ("{senders: [OTHER]}", "senders"),
        ('{prefixes: ["+33"]}', "prefixes"),
    ],
)
def test_a_route_that_nothing_can_take(match: str, path: str) -> None:
    assert list(warnings(match)) == [f"routes.other.match.{path}"]


def test_a_send_window_that_stays_closed_for_what_it_rules() -> None:
    path = "destinations.italy.send_window"
    assert "by default is refused" in warnings(ttl="12h")[path]
    assert "never opens" in warnings(ttl="2h", ttl_max="12h")[path]
    assert warnings(classes="marketing, otp")[f"{path}.classes"] == "no tenant has the class otp"


def test_tenants_that_sign_with_the_same_secret_are_told() -> None:
    target = '{{callbacks: {{url: "https://example.com/{0}", secrets: [{1}]}}}}'
    policy = read_policy(
        "tenant_defaults: " + target.format("all", "env:ALL") + "\ntenants:\n"
        f"  a: {target.format('a', 'env:A, word-1')}\n  b: {target.format('b', 'env:B, env:A')}\n"
        f"  c: {target.format('c', 'word-1')}\n  d: {{}}\n  e: {{}}\n"
        'providers: {p: {sessions: {s: {host: h, system_id: s, password: "env:P"}}}}\nroutes: {r: {provider: p}}\n'
    )
    found = {fault.path: fault.message for fault in warn(policy) if "forge" in fault.message}
    assert sorted(found) == ["tenants.b.callbacks.secrets", "tenants.c.callbacks.secrets"]
    assert found["tenants.c.callbacks.secrets"].startswith("a has one of them too")
    assert "word-1" not in str(found)


@pytest.mark.parametrize(("budget", "warned"), [("199ms", True), ("200ms", False)])
def test_a_budget_that_no_message_can_keep(budget: str, warned: bool) -> None:
    whole = BASE.format(match="{}", classes="marketing", ttl="14h", ttl_max="48h")
    policy = read_policy(
        whole.replace("classes: {marketing", f"classes: {{otp: {{wait_budget: {budget}}}, marketing", 1)
    )
    assert any(fault.path == "classes.otp.wait_budget" for fault in warn(policy)) is warned
