"""The schema of contract.md section 3: the example is valid, defaults stand in, every fault has line and path."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.admission.fields import NAME_MAX
from gateway.policy.demo import demo_policy
from gateway.policy.rules.parse import PolicyInvalid, read_policy
from gateway.policy.rules.snapshot import Limit, Policy, SendWindow, StatusOverride, VendorTlv
from gateway.policy.rules.traffic import CLASSES
from gateway.policy.rules.warnings import warn

EXAMPLE = (Path(__file__).parents[4] / "policy.example.yaml").read_text(encoding="utf-8")
MINIMAL = """
providers:
  c:
    sessions:
      s: {host: smsc, system_id: me, password: env:PW}
routes:
  all: {provider: c}
"""


def faults_of(source: str) -> dict[str, tuple[int, str]]:
    with pytest.raises(PolicyInvalid) as caught:
        read_policy(source)
    return {fault.path: (fault.line, fault.message) for fault in caught.value.faults}


def with_minimal(more: str) -> Policy:
    return read_policy(MINIMAL + more)


def test_the_example_is_valid_and_read_whole() -> None:
    policy = read_policy(EXAMPLE, 7)
    assert policy.version == 7
    assert dict(policy.classes) == dict(CLASSES)
    acme = policy.tenants["acme"]
    assert (acme.weight, acme.limits, acme.requests) == (2, Limit(50.0, 100), Limit(500.0, 1000))
    assert (acme.daily_segments, acme.default_class, acme.default_sender) == (500_000, "transactional", "ACME")
    assert acme.senders == {"ACME": None, "+393330000001": Limit(1.0, 1)}
    assert acme.destinations == ("+39", "+33")
    assert acme.applications == {"spring-sale": Limit(10.0, 10)}
    assert acme.inbound_numbers == ("+393330000001", "60070")
    assert acme.callbacks is not None
    assert acme.callbacks.secrets == ("env:ACME_CALLBACK_SECRET",)
    italy = policy.destinations["italy"]
    assert italy.per_number == Limit(1.0, 3)
    assert italy.send_window == SendWindow(frozenset({"marketing"}), 540, 1200, "Europe/Rome")
    carrier = policy.providers["carrier-a"]
    assert carrier.dialect.tlvs == {"dlt_entity_id": VendorTlv(0x1400, "c_octet", 30)}
    assert carrier.dialect.status_overrides == {0x45: StatusOverride("later", 30_000)}
    assert carrier.sessions["a1"].limits == Limit(80.0, 80)
    assert policy.routes["it-backup"].tenants == frozenset({"acme"})
    assert policy.privacy.keep_otp_text_ms == 600_000


def test_the_example_shows_the_defaults() -> None:
    """What the example says of classes, retries, inbound, receipts, privacy and callbacks is what silence means."""
    example, minimal = read_policy(EXAMPLE), read_policy(MINIMAL)
    for field in ("classes", "retries", "inbound", "receipts", "privacy", "callbacks"):
        assert getattr(example, field) == getattr(minimal, field), field


def test_the_example_shows_the_defaults_of_a_carrier() -> None:
    shown = read_policy(EXAMPLE).providers["carrier-a"]
    silent = read_policy(MINIMAL).providers["c"]
    assert (shown.breaker, shown.ramp) == (silent.breaker, silent.ramp)
    assert replace(shown.dialect, tlvs={}, status_overrides={}, address={}) == replace(
        silent.dialect, tlvs={}, status_overrides={}, address={}
    )


def test_a_minimal_policy_works() -> None:
    policy = read_policy(MINIMAL)
    assert policy.routes["all"].prefixes == ()
    session = policy.providers["c"].sessions["s"]
    assert (session.port, session.bind, session.window, session.limits) == (2775, "transceiver", 10, None)
    assert policy.tenant_defaults.classes == frozenset(CLASSES)
    assert policy.tenant_defaults.limits is None


def test_the_demo_policy_is_valid_and_nothing_to_wonder_about() -> None:
    policy = read_policy(demo_policy(2775))
    assert policy.tenants["demo"].classes == frozenset(CLASSES)
    assert [fault.path for fault in warn(policy)] == ["providers.simulator.sessions.sim-1.password"]


def test_tenants_inherit_and_override() -> None:
    policy = with_minimal(
        """
tenant_defaults: {weight: 3, limits: {rate_per_s: 20, burst: 40}, classes: [transactional, otp]}
tenants:
  a: {limits: {rate_per_s: 0.5}}
  b: {classes: [marketing], limits: null}
  c:
"""
    )
    assert policy.tenants["a"].limits == Limit(0.5, 1)
    assert (policy.tenants["b"].default_class, policy.tenants["b"].limits) == ("marketing", None)
    assert policy.tenants["c"].weight == 3
    assert policy.tenants["c"].limits == Limit(20.0, 40)


def test_a_class_keeps_its_own_defaults() -> None:
    policy = with_minimal("classes: {otp: {wait_budget: 5s, ttl: {default: 20m}, content: {max_segments: null}}}\n")
    otp = policy.classes["otp"]
    assert (otp.wait_budget_ms, otp.ttl_default_ms, otp.ttl_max_ms, otp.max_segments) == (
        5000,
        1_200_000,
        1_200_000,
        None,
    )
    assert otp.weight == 60


def test_every_fault_at_once_with_line_and_path() -> None:
    faults = faults_of(
        """\
classes:
  otp: {wait_budgt: 10s, ttl: {default: 20m, max: 10m}, weight: 0}
  gold: {}
tenants:
  acme: {classes: [otp], default_class: marketing, senders: {ACME: {}}, default_sender: OTHER, destinations: ["39"]}
  acme: {}
providers:
  a: {sessions: {s1: {host: h, port: 99999, system_id: "0123456789012345", password: "123456789", window: 0}}}
  b: {sessions: {s1: {host: h, system_id: x, password: "env:1x", tls: {cert: "file:/a"}}}}
routes:
  r: {match: {prefixes: ["+39"]}, provder: a}
  q: {provider: aa}
retries: {base: 1, max: 5m}
recepts: {}
"""
    )
    lines = {path: line for path, (line, _) in faults.items()}
    assert lines == {
        "classes.otp.wait_budgt": 2,
        "classes.otp.ttl.default": 2,
        "classes.otp.weight": 2,
        "classes.gold": 3,
        "tenants.acme.default_class": 5,
        "tenants.acme.default_sender": 5,
        "tenants.acme.destinations[0]": 5,
        "tenants.acme": 6,
        "providers.a.sessions.s1.port": 8,
        "providers.a.sessions.s1.system_id": 8,
        "providers.a.sessions.s1.password": 8,
        "providers.a.sessions.s1.window": 8,
        "providers.b.sessions.s1": 9,
        "providers.b.sessions.s1.password": 9,
        "providers.b.sessions.s1.tls": 9,
        "routes.r.provder": 11,
        "routes.r.provider": 11,
        "routes.q.provider": 12,
        "retries.base": 13,
        "recepts": 14,
    }
    assert "did you mean wait_budget?" in faults["classes.otp.wait_budgt"][1]
    assert "did you mean receipts?" in faults["recepts"][1]
    assert "first on line 5" in faults["tenants.acme"][1]
    assert "123456789" not in str(faults)


SESSION = "providers: {c: {sessions: {s: {host: h, system_id: x, password: y%s}}%s}}\nroutes: {r: {provider: c%s}}\n"


@pytest.mark.parametrize(
    ("session", "provider", "route", "path"),
    [
        (", limits: {rate_per_s: 0, burst: 1}", "", "", "providers.c.sessions.s.limits.rate_per_s"),
        (", limits: {rate_per_s: .nan, burst: 1}", "", "", "providers.c.sessions.s.limits.rate_per_s"),
        (", limits: {rate_per_s: 1, burst: 0}", "", "", "providers.c.sessions.s.limits.burst"),
        (", limits: {burst: 5}", "", "", "providers.c.sessions.s.limits.rate_per_s"),
        (", limits: 5", "", "", "providers.c.sessions.s.limits"),
        (", bind: both", "", "", "providers.c.sessions.s.bind"),
        (", enquire_link: 15", "", "", "providers.c.sessions.s.enquire_link"),
        (", reconnect: {base: 1m, max: 30s}", "", "", "providers.c.sessions.s.reconnect.base"),
        (", tls: {ca: /etc/ca}", "", "", "providers.c.sessions.s.tls.ca"),
        (", tls: {verify: maybe}", "", "", "providers.c.sessions.s.tls.verify"),
        ("", ", dialect: {timezone: Europe/Rom}", "", "providers.c.dialect.timezone"),
        ("", ", dialect: {own_reference: 'tlv:zz'}", "", "providers.c.dialect.own_reference"),
        ("", ", dialect: {own_reference: 'tlv:0x020C'}", "", "providers.c.dialect.own_reference"),
        (
            "",
            ", dialect: {own_reference: 'tlv:0x1400', tlvs: {x: {tag: 0x1400}}}",
            "",
            "providers.c.dialect.own_reference",
        ),
        ("", ", dialect: {address: {shortcode: {ton: 6}}}", "", "providers.c.dialect.address.shortcode"),
        ("", ", dialect: {address: {short_code: {tone: 6}}}", "", "providers.c.dialect.address.short_code.tone"),
        ("", ", dialect: {address: {short_code: {ton: 256}}}", "", "providers.c.dialect.address.short_code.ton"),
        ("", ", dialect: {address: {short_code: {plus: true}}}", "", "providers.c.dialect.address.short_code.plus"),
        ("", ", dialect: {address: {destination: {plus: 1}}}", "", "providers.c.dialect.address.destination.plus"),
        ("", ", dialect: {esm_class: 0x40}", "", "providers.c.dialect.esm_class"),
        ("", ", dialect: {esm_class: three}", "", "providers.c.dialect.esm_class"),
        ("", ", dialect: {unflagged_receipts: 1}", "", "providers.c.dialect.unflagged_receipts"),
        ("", ", dialect: {national_shift: greek}", "", "providers.c.dialect.national_shift"),
        ("", ", dialect: {tlvs: {x: {tag: 0x1400, max: 0}}}", "", "providers.c.dialect.tlvs.x.max"),
        ("", ", dialect: {tlvs: {x: {tag: 0x0424}}}", "", "providers.c.dialect.tlvs.x.tag"),
        ("", ", dialect: {tlvs: {x: {tag: 0x1400, type: float}}}", "", "providers.c.dialect.tlvs.x.type"),
        ("", ", dialect: {status_overrides: {oops: {retry: later}}}", "", "providers.c.dialect.status_overrides.oops"),
        (
            "",
            ", dialect: {status_overrides: {'0x45': {retry: soon}}}",
            "",
            "providers.c.dialect.status_overrides.0x45.retry",
        ),
        ("", ", breaker: {errors: 2}", "", "providers.c.breaker.errors"),
        ("", ", ramp: {start: 0}", "", "providers.c.ramp.start"),
        ("", "", ", match: {classes: [gold]}", "routes.r.match.classes[0]"),
        ("", "", ", match: {prefixes: ['0039']}", "routes.r.match.prefixes[0]"),
        ("", "", ", match: {senders: []}", "routes.r.match.senders"),
        ("", "", ", preference: high", "routes.r.preference"),
        ("", "", ", weight: 0", "routes.r.weight"),
    ],
)
def test_faults_of_carriers_and_routes(session: str, provider: str, route: str, path: str) -> None:
    assert list(faults_of(SESSION % (session, provider, route))) == [path]


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ("destinations: {i: {}}", "destinations.i.prefixes"),
        ("destinations: {i: {prefixes: ['+39']}, j: {prefixes: ['+39']}}", "destinations.j.prefixes"),
        (
            "destinations: {i: {prefixes: ['+3'], send_window: {classes: [otp], from: '25:00', to: '9:00'}}}",
            "destinations.i.send_window.from",
        ),
        (
            "destinations: {i: {prefixes: ['+3'], send_window: {classes: [otp], from: '9:00', to: '9:00'}}}",
            "destinations.i.send_window.to",
        ),
        ("tenants: {a: {callbacks: {url: 'ftp://x', secrets: [env:S]}}}", "tenants.a.callbacks.url"),
        ("tenants: {a: {callbacks: {url: 'https://[::1/x', secrets: [env:S]}}}", "tenants.a.callbacks.url"),
        ("tenants: {a: {callbacks: {url: 'https://x:65536/', secrets: [env:S]}}}", "tenants.a.callbacks.url"),
        ("tenants: {a: {callbacks: {url: 'https://x'}}}", "tenants.a.callbacks.secrets"),
        (
            "tenants: {a: {callbacks: {url: 'https://x', secrets: [env:S], events: [finale]}}}",
            "tenants.a.callbacks.events[0]",
        ),
        ("tenants: {a: {senders: {'bad!sender': {}}}}", "tenants.a.senders.bad!sender"),
        ("tenants: {a: {inbound_numbers: ['60070']}, b: {inbound_numbers: ['60070']}}", "tenants.b.inbound_numbers"),
        ("tenants: {a: {classes: []}}", "tenants.a.classes"),
        ("tenants: {a: {daily_segments: 0}}", "tenants.a.daily_segments"),
        ("tenants: {a: {requests: null}}", "tenants.a.requests"),
        ("tenants: [a]", "tenants"),
        ("tenants: {a/b: {}}", "tenants.a/b"),  # its application c would share limits and pauses with a's b/c
        ("tenants: {a: {applications: {'': {}}}}", "tenants.a.applications."),
        ("retries: {share: 2}", "retries.share"),
        ("receipts: {cutoff: 0s}", "receipts.cutoff"),
        ("privacy: {log_numbers: 'no'}", "privacy.log_numbers"),
        ("callbacks: {per_endpoint: 0}", "callbacks.per_endpoint"),
        ("inbound: {start_words: [stop]}", "inbound.start_words"),
        ("classes: {otp: {door_share: 1.5}}", "classes.otp.door_share"),
        ("classes: {otp: {consent: ask}}", "classes.otp.consent"),
        ("classes: {otp: {ttl: {max: 10ms, default: 1ms}}}", "classes.otp.ttl.max"),
    ],
)
def test_faults_elsewhere(more: str, path: str) -> None:
    faults = faults_of(MINIMAL + more + "\n")
    assert path in faults
    assert faults[path][0] == MINIMAL.count("\n") + 1


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("a: [1\nb: }", 2),
        ("a: b: c", 1),
        ("--- a\n--- b", 2),
        ("a: " + "[" * 100_000, 1),
        ("\x00", 0),
        ("x" * 3_000_000, 0),
        ("a: &x [*x]", 1),
        ("providers: &p {a: *p}", 1),
        ("a: \ud800", 0),
    ],
)
def test_what_is_not_yaml_has_one_fault(source: str, line: int) -> None:
    with pytest.raises(PolicyInvalid) as caught:
        read_policy(source)
    assert [fault.line for fault in caught.value.faults] == [line]


@pytest.mark.parametrize("source", ["", "[]", "just text", "? [a]\n: 1", "1: 2"])
def test_strange_documents_are_refused(source: str) -> None:
    assert "routes" in faults_of(source)


@pytest.mark.parametrize("name", ["spring/sale", "x" * NAME_MAX, "été 100 %"])
def test_applications_may_be_named_as_messages_may_name_them(name: str) -> None:
    policy = with_minimal(f"tenants: {{a: {{applications: {{{name!r}: {{limits: {{rate_per_s: 1}}}}}}}}}}\n")
    assert list(policy.tenants["a"].applications) == [name]


def test_session_names_are_unique_over_all_providers() -> None:
    faults = faults_of(
        "providers:\n  a: {sessions: {s: {host: h, system_id: x, password: y}}}\n"
        "  b: {sessions: {s: {host: h, system_id: x, password: y}}}\nroutes: {r: {provider: a}}\n"
    )
    assert faults == {"providers.b.sessions.s": (3, "is a session of a too: names are unique over all providers")}


def test_a_mistyped_kind_of_address_names_the_nearest() -> None:
    faults = faults_of(MINIMAL.replace("  c:", "  c:\n    dialect: {address: {shortcode: {ton: 6}}}"))
    assert "did you mean short_code?" in faults["providers.c.dialect.address.shortcode"][1]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("\n\tb: 1\n", "a tab where YAML wants spaces"),
        (" @every\n", "a value that begins with @ needs quotes"),
        (" `x`\n", "a value that begins with ` needs quotes"),
    ],
)
def test_what_no_yaml_word_begins_with_is_told_with_its_remedy(value: str, words: str) -> None:
    line, message = faults_of(f"a:{value}")[""]
    assert (line, message) == (value.count("\n"), f"not YAML: {words}")
