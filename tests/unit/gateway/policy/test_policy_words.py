"""Warnings, differences in words, and secrets by reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.policy.rules.diff import describe
from gateway.policy.rules.faults import PolicyInvalid
from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.warnings import warn
from gateway.policy.secrets import SecretMissing, check, path_of, resolve

BASE = """
tenants: {acme: {classes: [otp, marketing], senders: {ACME: {}}}}
destinations: {italy: {prefixes: ["+39"]}}
providers:
  a:
    sessions:
      s1: {host: h, system_id: x, password: env:SG_TEST_PASSWORD, window: 50, limits: {rate_per_s: 80, burst: 80}}
routes: {r: {provider: a}}
"""


def warnings_of(*changes: tuple[str, str]) -> dict[str, str]:
    source = BASE
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return {fault.path: fault.message for fault in warn(read_policy(source))}


def test_nothing_to_warn_of() -> None:
    assert warnings_of() == {}


def test_a_window_smaller_than_rate_times_round_trip() -> None:
    found = warnings_of(("window: 50", "window: 5"))
    assert "at most 50/s" in found["providers.a.sessions.s1.window"]


def test_the_provider_s_rate_counts_where_the_session_has_none() -> None:
    found = warnings_of(
        (", limits: {rate_per_s: 80, burst: 80}", ""), ("  a:\n", "  a:\n    limits: {rate_per_s: 900, burst: 900}\n")
    )
    assert "providers.a.sessions.s1.window" in found


def test_a_burst_smaller_than_a_long_message() -> None:
    assert "providers.a.sessions.s1.limits.burst" in warnings_of(("burst: 80", "burst: 9"))


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("env:SG_TEST_PASSWORD", "plain", "providers.a.sessions.s1.password"),
        ("window: 50", "window: 50, enquire_link: 60s", "providers.a.sessions.s1.enquire_link"),
        ("window: 50", "window: 50, tls: {verify: false}", "providers.a.sessions.s1.tls.verify"),
        ("window: 50", "window: 50, bind: receiver", "providers.a.sessions"),
        ("window: 50", "window: 50, bind: transmitter", "providers.a.sessions"),
        ("senders: {ACME: {}}", "tlvs: [dlt]", "tenants.acme.tlvs"),
        ("destinations:", "receipts: {cutoff: 20d}\ndestinations:", "receipts.inbox_retention"),
        (
            "destinations:",
            "tenant_defaults: {callbacks: {url: 'https://x', secrets: [abc]}}\ndestinations:",
            "tenant_defaults.callbacks.secrets",
        ),
    ],
)
def test_other_warnings(old: str, new: str, path: str) -> None:
    assert path in warnings_of((old, new))


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://127.0.0.1:9000/hooks", True),
        ("http://localhost:9000", True),
        ("https://10.1.2.3/hooks", True),
        ("http://[::1]:9000/", True),
        ("https://hooks.example/", False),
        ("https://8.8.8.8/hooks", False),
    ],
)
def test_a_callback_url_inside_a_network(url: str, warned: bool) -> None:
    told = f"callbacks: {{url: '{url}', secrets: [env:S]}}"
    path = "tenants.acme.callbacks.url"
    assert (path in warnings_of(("{acme: {", f"{{acme: {{{told}, "))) is warned
    assert path not in warnings_of(("{acme: {", f"{{acme: {{{told.replace('}', ', allow_private: true}')}, "))
    inherited = warnings_of(("destinations:", f"tenant_defaults: {{{told}}}\ndestinations:"))
    assert list(inherited) == (["tenant_defaults.callbacks.url"] if warned else [])


def changes_of(*changes: tuple[str, str]) -> list[str]:
    source = BASE
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return describe(read_policy(BASE), read_policy(source))


def test_no_difference() -> None:
    assert changes_of(("window: 50", "window: 50, port: 2775")) == []


def test_first_policy() -> None:
    assert describe(None, read_policy(BASE)) == ["first policy: 1 provider(s), 1 route(s), 1 tenant(s)"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("window: 50", "window: 60", "providers.a.sessions.s1.window changes from 50 to 60"),
        (
            "rate_per_s: 80",
            "rate_per_s: 90.5",
            "providers.a.sessions.s1.limits changes from 80/s, burst 80 to 90.5/s, burst 80",
        ),
        (", limits: {rate_per_s: 80, burst: 80}", "", "providers.a.sessions.s1.limits is lifted (was 80/s, burst 80)"),
        ("r: {provider: a}", "r: {provider: a}, q: {provider: a}", "route q is added"),
        ("acme: {classes: [otp, marketing], senders: {ACME: {}}}", "", "tenant acme is removed"),
        (
            "ACME: {}",
            "ACME: {}, '60070': {limits: {rate_per_s: 1, burst: 2}}",
            "sender 60070 of tenants.acme is added with 1/s, burst 2",
        ),
        ("[otp, marketing]", "[otp]", "tenants.acme.classes changes from marketing, otp to otp"),
        ("env:SG_TEST_PASSWORD", "env:OTHER", "providers.a.sessions.s1.password changes to env:OTHER"),
        ("env:SG_TEST_PASSWORD", "hunter2", "providers.a.sessions.s1.password changes"),
        (
            "senders: {ACME: {}}",
            "accept_00_prefix: true, senders: {ACME: {}}",
            "tenants.acme.accept_00_prefix changes from no to yes",
        ),
        (
            'prefixes: ["+39"]',
            'prefixes: ["+39"], send_window: {classes: [otp], from: "09:00", to: "20:00", timezone: Europe/Rome}',
            "destinations.italy.send_window is set to 09:00 to 20:00 Europe/Rome for otp",
        ),
    ],
)
def test_differences_in_words(old: str, new: str, words: str) -> None:
    assert words in changes_of((old, new))


def test_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SG_TEST_PASSWORD", "pw")
    (tmp_path / "secret").write_text("from file\n")
    assert resolve("env:SG_TEST_PASSWORD") == "pw"
    assert resolve(f"file:{tmp_path}/secret") == "from file"
    assert resolve("literal") == "literal"
    assert path_of(f"file:{tmp_path}/secret") == tmp_path / "secret"
    for reference in ("env:SG_TEST_ABSENT", f"file:{tmp_path}/absent"):
        with pytest.raises(SecretMissing) as caught:
            resolve(reference)
        assert caught.value.reference == reference
    with pytest.raises(SecretMissing):
        path_of(f"file:{tmp_path}/absent")


def test_a_role_checks_only_what_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SG_TEST_PASSWORD", raising=False)
    monkeypatch.delenv("SG_TEST_CALLBACK", raising=False)
    policy = read_policy(
        BASE.replace("senders: {ACME: {}}", "callbacks: {url: 'https://x', secrets: [env:SG_TEST_CALLBACK]}")
    )
    assert check(policy, "api") == []
    assert [fault.split(":")[0] for fault in check(policy, "egress")] == ["providers.a.sessions.s1.password"]
    assert [fault.split(":")[0] for fault in check(policy, "delivery")] == ["tenants.acme.callbacks.secrets"]
    monkeypatch.setenv("SG_TEST_PASSWORD", "far too long")
    (fault,) = check(policy, "egress")
    assert "far too long" not in fault
    monkeypatch.setenv("SG_TEST_PASSWORD", "fine")
    assert check(policy, "egress") == []


def callbacks(url: str) -> str:
    return BASE.replace("ACME: {}}", f"ACME: {{}}}}, callbacks: {{url: '{url}', secrets: [env:HOOKS]}}")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "https://a.example/x?t=old",
            "https://a.example/x?t=new",
            "changes behind its path (not shown: it may hold a token)",
        ),
        (
            "https://a.example/x",
            "https://b.example/y?t=new",
            "changes from https://a.example/x to https://b.example/y?...",
        ),
        ("https://a.example/x#old", "https://a.example/y", "changes from https://a.example/x to https://a.example/y"),
    ],
)
def test_a_difference_shows_no_token_of_a_callback_url(old: str, new: str, words: str) -> None:
    changes = describe(read_policy(callbacks(old)), read_policy(callbacks(new)))
    assert changes == [f"tenants.acme.callbacks.url {words}"]


def test_what_would_turn_a_line_around_or_not_show_is_told_by_its_number() -> None:
    for name, shown in (("evil\u202etxt", "evil\\u202etxt"), ("a\u200bb", "a\\u200bb"), ("a\u00a0b", "a\\xa0b")):
        with pytest.raises(PolicyInvalid) as told:
            read_policy(f'"{name}": 1\n')
        assert f"{shown}: unknown key" in str(told.value) and name not in str(told.value)


def test_a_merge_key_is_told_what_is_taken_instead() -> None:
    with pytest.raises(PolicyInvalid, match="merge keys are not taken"):
        read_policy("classes: {otp: {<<: {weight: 3}}}\n")
