"""Cases of kind `queue` on virtual time: the real scripts on a real Valkey, the door's own decisions (I17-I25).

The others of this kind stand beside what they concern: `grep -rn test_q tests`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.tuning import tuning_of
from scheduler.core.asks import Ask, LeaseAsk
from scheduler.core.records import Entry, Flow, Reference
from scheduler.store.scheduler import Scheduler
from simulations.index import Clock, ScriptsEngine
from simulations.link import Link
from simulations.scenarios.policies import policy, provider
from simulations.traffic import Kind, Stream
from simulations.world import Lab, World

SECOND = 1_000
LIMITED = """
tenant_defaults: {limits: null, requests: {rate_per_s: 1000, burst: 1000}, classes: [otp, transactional, marketing]}
tenants:
  acme: {senders: {SLOW: {limits: {rate_per_s: 1, burst: 1}}, QUICK: {}}}
providers:
  carrier:
    sessions: {s1: {host: smsc.example, system_id: acme, password: "env:X", window: 100, limits: {rate_per_s: 100, burst: 10}}}
routes:
  main: {match: {}, provider: carrier}
"""  # noqa: E501 - lines of YAML


@pytest.fixture
def lab(redis_url: str) -> Iterator[Lab]:
    """Simulations on the Valkey of this test process."""
    link = Link(redis_url)
    yield Lab(ScriptsEngine(link), 1, 0)
    link.close()


class Bench:
    """The index alone, under LIMITED, on a clock of its own; a sender's flow by its name."""

    def __init__(self, link: Link) -> None:
        self.clock = Clock()
        self.scheduler = Scheduler(link, clock=self.clock)  # type: ignore[arg-type]
        self._link = link
        self._batches = 0
        self.tell(self.scheduler.tune(tuning_of(read_policy(LIMITED, 1))))
        self.tell(self.scheduler.finish_rebuild(self.tell(self.scheduler.begin_rebuild())))
        self.clock.at += 600 * SECOND
        self.tell(self.scheduler.session_up("carrier", "s1"))

    def tell(self, call):  # type: ignore[no-untyped-def]
        return self._link.run(call)

    def flow(self, sender: str, class_name: str = "otp") -> Flow:
        scopes = ("route:main", *(("sender:acme/SLOW",) if sender == "SLOW" else ()))
        return Flow("carrier", class_name, "acme", scopes, 0)

    def queue(self, flow: Flow, count: int, *, first: int, segments: int = 1, retry: bool = False) -> None:
        now_at = int(self.clock())
        entries = [
            Entry(flow, Reference(n.to_bytes(16, "big"), int(retry), segments, now_at + 3_600_000, now_at), retry=retry)
            for n in range(first, first + count)
        ]
        self._batches += 1
        self.tell(self.scheduler.enqueue(self._batches.to_bytes(16, "big"), entries))

    def leased(self, want: int = 100) -> list[int]:
        found = self.tell(self.scheduler.lease(LeaseAsk("carrier", "s1", want)))
        if found.items:
            self.tell(self.scheduler.ack(found.lease_id))
        return [int.from_bytes(item.reference.id, "big") for item in found.items]


@pytest.fixture
def bench(redis_url: str) -> Iterator[Bench]:
    """The index alone."""
    link = Link(redis_url)
    yield Bench(link)
    link.close()


def wait_ms(world: World, tenant: str) -> float:
    """The longest time that a message of a tenant waited; infinite where one has not left."""
    waits = [
        float("inf") if message.started_at is None else message.started_at - message.accepted_at
        for message in world.ledger.messages
        if message.kind.tenant == tenant
    ]
    assert waits, f"nothing of {tenant} was accepted"
    return max(waits)


def test_q01_a_job_of_25000_rows_holds_up_nobody(lab: Lab) -> None:
    """One tenant's job would take 500 s; a code of another leaves within 1 s, five notices of a third within 3 s."""
    world = lab.world(policy(providers={"p": provider(50, burst=5)}))
    job = Stream([Kind("a", "marketing")], 25_000, amount=25_000, pattern="even")
    code = Stream([Kind("b", "otp")], 1_000, start_s=10, amount=1)
    notices = Stream([Kind("c", "transactional")], 1_000, start_s=10, amount=5)
    world.offer(job, code, notices)
    world.run(20)
    assert len(world.ledger.messages) == 25_006, "the job was not accepted as a whole"
    assert wait_ms(world, "b") <= 1 * SECOND
    assert wait_ms(world, "c") <= 3 * SECOND
    sent = sum(1 for message in world.ledger.messages if message.started_at is not None)
    assert sent >= 0.99 * 50 * 20, "the job does not get the rest of the rate"


def test_q03_a_code_does_not_wait_behind_ten_thousand_others_of_its_own_tenant(lab: Lab) -> None:
    world = lab.world(policy(providers={"p": provider(200, burst=20)}))
    jobs = Stream([Kind("shop", "transactional")], 20_000, amount=10_000, pattern="even")
    codes = Stream([Kind("shop", "otp")], 5, start_s=2, end_s=12, pattern="even")
    world.offer(jobs, codes)
    world.run(13)
    waits = world.waits(lambda message: message.kind.class_name == "otp")
    assert len(waits) == codes.offered and codes.offered >= 49
    assert max(waits) <= 50
    queued = sum(1 for message in world.ledger.messages if message.started_at is None)
    assert queued > 7_000, "the queue was gone: nothing was proven"


def test_q04_a_sender_with_five_thousand_retries_holds_up_no_other_retry(bench: Bench) -> None:
    """All retries share a tenth of the rate; one that may go at once does not wait for a sender that does 1/s."""
    bench.queue(bench.flow("SLOW"), 5_000, first=1, retry=True)
    for _ in range(50):
        bench.leased()
        bench.clock.at += 100
    bench.queue(bench.flow("QUICK"), 1, first=9_999, retry=True)
    queued_at = bench.clock.at
    while 9_999 not in (found := bench.leased()):
        assert len(found) <= 2
        bench.clock.at += 50
        assert bench.clock.at - queued_at <= 2 * SECOND


def test_q18_an_otp_is_refused_by_the_segments_before_it_and_its_senders_own_rate(bench: Bench) -> None:
    """200 messages of three segments at 1/s are ten minutes, whatever the carrier could do; another sender is free."""
    bench.queue(bench.flow("SLOW"), 200, first=1, segments=3)
    asks = [
        Ask((bench.flow(sender),), 1, 10 * SECOND, 5 * SECOND, 3_600 * SECOND, sender.encode().ljust(8, b"."))
        for sender in ("SLOW", "QUICK")
    ]
    slow, quick = bench.tell(bench.scheduler.admit(asks))
    assert not slow.accepted and (slow.scope, slow.cause) == (("sender", "acme/SLOW"), "wait")
    assert slow.predicted_wait_ms == pytest.approx(600 * SECOND, rel=0.05)
    assert slow.retry_after_s == pytest.approx(590, rel=0.05)
    assert quick.accepted and quick.predicted_wait_ms < 1 * SECOND


CLASSES = {
    "otp": {"wait_budget": "10s", "ttl": {"default": "2m", "max": "10m"}, "weight": 60, "quantum": 1},
    "transactional": {"wait_budget": "60s", "ttl": {"default": "1h", "max": "24h"}, "weight": 25, "quantum": 4},
    "marketing": {
        "wait_budget": "40s", "ttl": {"default": "1h", "max": "24h"}, "weight": 10, "quantum": 32, "when_full": "refuse"
    },
    "non_priority": {"wait_budget": "4m", "ttl": {"default": "1h", "max": "24h"}, "weight": 5, "quantum": 32},
}  # fmt: skip


def test_q25_a_day_of_twice_the_capacity_sheds_by_class_and_codes_stay_in_time(lab: Lab) -> None:
    """200/s for 100/s, long enough to fill marketing's budget: codes do not notice, marketing is told when to come."""
    world = lab.world(policy(classes=CLASSES, providers={"p": provider(100, burst=10)}))
    tenants = ("a", "b", "c", "d")
    for class_name, rate in (("otp", 20), ("transactional", 20), ("marketing", 120), ("non_priority", 40)):
        world.offer(Stream([Kind(tenant, class_name) for tenant in tenants], rate))
    world.run(60)
    refused = {name: world.series.total(f"refused {name}") for name in CLASSES}
    assert refused["otp"] == refused["transactional"] == 0
    assert refused["marketing"] > 1_000
    assert {code for code, *_ in world.door.refusals} == {"capacity.class_budget_exceeded"}
    codes = world.waits(lambda message: message.kind.class_name == "otp")
    assert max(codes) <= 1 * SECOND
    assert world.ended("expired") == 0, "something was taken in and could not be sent in time"


def test_q25_codes_are_shed_only_where_they_alone_are_too_many(lab: Lab) -> None:
    """200 codes a second for 100: half is told when to come again; what is taken in leaves within its ten seconds."""
    world = lab.world(policy(classes=CLASSES, providers={"p": provider(100, burst=10)}))
    codes = Stream([Kind("bank", "otp")], 200, end_s=30)
    world.offer(codes, Stream([Kind("shop", "marketing")], 100, end_s=30))
    told: list[int] = []
    world.clients.come_again = lambda request, at: told.append(int(at - world.clock.at))  # type: ignore[method-assign]
    codes.manner = "obedient"  # so that it is told when to come again, and never does
    world.run(45)
    assert world.series.total("refused otp") > 2_000
    assert world.ended("expired", "otp") == 0
    assert max(world.waits(lambda message: message.kind.class_name == "otp")) <= 10 * SECOND
    waits_s = [ms // SECOND for ms in told]
    assert all(ms % SECOND == 0 and ms >= SECOND for ms in told)  # whole seconds, at least one
    hundred = len(waits_s) // 10
    assert sum(waits_s[-hundred:]) > 2 * sum(waits_s[:hundred]), "Retry-After does not grow with what is told to wait"
    assert len(set(waits_s)) > 10, "everybody is told to come at the same time"
