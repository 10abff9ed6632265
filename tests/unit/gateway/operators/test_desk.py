"""One-time links and console sessions."""

from __future__ import annotations

import pytest

from gateway.operators import desk


def test_a_link_is_redeemed_once() -> None:
    links = desk.Pass(60.0)
    secret = links.issue("key 0a")
    assert links.holds(secret)
    assert links.redeem(secret) == "key 0a"
    assert links.redeem(secret) is None
    assert links.redeem("another") is None


def test_a_session_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(desk.time, "monotonic", lambda: now)
    sessions = desk.Pass(60.0)
    secret = sessions.issue()
    assert sessions.holds(secret)
    now = 161.0
    assert not sessions.holds(secret)


def test_secrets_are_not_kept_readable_and_their_number_is_bounded() -> None:
    sessions = desk.Pass(60.0)
    issued = [sessions.issue() for _ in range(1_100)]
    assert len(sessions.ends) <= 1_000
    assert sessions.holds(issued[-1])
    assert not sessions.holds(issued[0])
    assert all(secret.encode() not in sessions.ends for secret in issued)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1:8081", True),
        ("localhost", True),
        ("[::1]:8081", True),
        ("evil.example:8081", False),
        ("10.0.0.1", True),
    ],
)
def test_names_of_others_are_not_local(host: str, local: bool) -> None:
    from gateway.operators.app import _is_local

    assert _is_local(host) is local
