"""How a round of released work is shared out (design section 3: what falls due together is released paced)."""

from __future__ import annotations

from gateway.ledger.promotions import ROUND, Lane, pace, share_out
from gateway.policy.rules.parse import read_policy

POLICY = read_policy("""
tenants: {acme: {}}
providers:
  slow: {limits: {rate_per_s: 10, burst: 10}, sessions: {s1: {host: h, port: 1, system_id: s, password: p, bind: transceiver, window: 1}}}
  summed: {sessions: {t1: {host: h, port: 1, system_id: s, password: p, bind: transceiver, window: 1, limits: {rate_per_s: 100, burst: 1}}, t2: {host: h, port: 2, system_id: s, password: p, bind: transceiver, window: 1, limits: {rate_per_s: 150, burst: 1}}}}
  free: {sessions: {f1: {host: h, port: 1, system_id: s, password: p, bind: transceiver, window: 1}}}
  crawling: {limits: {rate_per_s: 0.1, burst: 1}, sessions: {c1: {host: h, port: 1, system_id: s, password: p, bind: transceiver, window: 1}}}
routes: {all: {match: {}, provider: slow}}
""")  # noqa: E501 - lines of YAML


def lane(class_name: str = "marketing", provider: str = "slow", tenant: int = 1, kind: str = "send_at") -> Lane:
    return Lane(class_name, provider, tenant, kind, 0)


def test_the_pace_of_a_line_goes_by_its_carrier() -> None:
    assert [pace(POLICY.providers[name]) for name in ("slow", "summed", "free", "crawling")] == [5, 100, 200, 5]
    assert pace(None) == 200


def test_one_time_passwords_and_retries_come_first_and_unpaced() -> None:
    shares = share_out(POLICY, [lane(), lane(kind="retry"), lane("otp")])
    assert [(one.class_name, one.kind, wanted) for one, wanted in shares] == [
        ("otp", "send_at", 200), ("marketing", "retry", 200), ("marketing", "send_at", 5),
    ]  # fmt: skip


def test_tenants_share_the_pace_of_a_line() -> None:
    shares = share_out(POLICY, [lane(provider="summed", tenant=n) for n in range(4)])
    assert [wanted for _, wanted in shares] == [25] * 4


def test_no_line_is_squeezed_out_of_a_round() -> None:
    """Class order decides among lines, and every line has its part."""
    lanes = [lane(name, provider) for provider in ("free", "summed") for name in ("marketing", "transactional")]
    shares = share_out(POLICY, [*lanes, *[lane("otp", tenant=n) for n in range(50)]])
    assert sum(wanted for _, wanted in shares) <= ROUND
    assert all(wanted >= 1 for _, wanted in shares)
    assert [one.class_name for one, _ in shares[50:]] == ["transactional"] * 2 + ["marketing"] * 2
