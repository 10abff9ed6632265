"""11, 12: processes that die at the worst moments, and an index that loses everything."""

from __future__ import annotations

import time
from dataclasses import replace

from scheduler.core.records import Entry
from scheduler.store.scheduler import IndexUnavailable
from simulations.measure import Findings
from simulations.scenarios.policies import policy, provider
from simulations.traffic import Kind, Request, Stream
from simulations.world import Lab, World

_PATIENT = {"wait_budget": "10h", "ttl": {"default": "20h", "max": "24h"}}
_LEASE_MS = 2_000
_LOAD_MAX = 2_000


def kills(lab: Lab) -> Findings:
    """Three of four senders die with a lease out, a door dies between commit and enqueue, and enqueues come twice."""
    rate = 2_500
    text = policy(
        classes={"transactional": _PATIENT}, providers={"p": provider(rate, burst=200, sessions=4, window=200)}
    )
    world = lab.world(text)
    world.repeat_share = 0.3
    stream = Stream([Kind(f"t{n}", "transactional") for n in range(20)], 10_000, amount=lab.size)
    world.offer(stream)
    for second, session in zip((2, 2.7, 3.4), world.senders.sessions, strict=False):
        world.change(second, session, dies_with_lease=True)
    world.change(0.5, world, leave_batches=True)
    world.change(0.7, world, leave_batches=False)
    world.run(lab.size / rate + 15)
    messages = world.ledger.messages
    back = [
        (messages[number].started_at or float("inf")) - at
        for at, numbers in world.senders.lost_leases
        for number in numbers
    ]
    abandoned = [m for m in messages if m.enqueued_at is not None and m.enqueued_at - m.accepted_at > 1_000]
    findings = Findings(offered=stream.offered)
    findings.keep("kills", world.told())
    findings.least("leases that died", len(world.senders.lost_leases), 3)
    findings.least("batches enqueued twice", world.repeated, 5)
    findings.least("messages of the door that died", len(abandoned), 10)
    findings.most("lost", sum(1 for m in messages if world.end_of(m) != "sent"), 0)
    findings.most("leased twice", world.ledger.doubles, 0)
    findings.most("back after a death, ms", max(back, default=float("inf")), _LEASE_MS + 1_000)
    findings.most("over burst, any window", world.excess(), 0.001)
    findings.foretold(*world.predictions(lambda m: m.enqueued_at is not None and m.enqueued_at - m.accepted_at < 100))
    return findings


def flush(lab: Lab) -> Findings:
    """FLUSHALL with everything queued: the queue is rebuilt from the ledger, OTP first. Times are of this machine."""
    rate = 500
    world = lab.world(policy(providers={"p": provider(rate, burst=50)}))
    kinds = [Kind(f"shop{n}", "marketing") for n in range(100)]
    otp = Stream([Kind(f"bank{n}", "otp") for n in range(20)], 400, end_s=lab.size / 20_000 + 20)
    flood = Stream(kinds, 20_000, amount=lab.size - 400 * 10, pattern="even")
    world.offer(otp, flood)
    world.run(lab.size / 20_000 + 5)
    world.lab.engine.lose()
    lost = _answers(world, "otp") + _answers(world, "marketing")
    opened_s, all_s, early = _rebuild(world)
    world.clock.at += all_s * 1_000 // world.tick_ms * world.tick_ms
    queued = sum(world.tell(world.index.counts()).values())
    waiting = sum(1 for m in world.ledger.messages if m.end is None and not m.closing and m.enqueued_at is not None)
    before = len(world.ledger.messages)
    world.run(world.elapsed_s + 10)
    findings = Findings(offered=otp.offered + flood.offered)
    findings.keep("flush", world.told())
    findings.most("answers while everything is lost", lost, 0)
    findings.most("let in before its class was loaded", early, 0)
    findings.most("OTP open after, s", opened_s, 3)
    findings.most("all open after, s", all_s, 30)
    findings.most("queue and ledger apart", abs(queued - waiting), 0)
    findings.most("leased twice", world.ledger.doubles, 0)
    findings.least("accepted after the rebuild", len(world.ledger.messages) - before, 100)
    ends = sum(world.ended(how) for how in ("sent", "expired", "unconfirmed", "flying", "waiting"))
    findings.most("accepted without an account", len(world.ledger.messages) - ends, 0)
    findings.most("over burst, any window", world.excess(), 0.001)
    return findings


def _answers(world: World, class_name: str) -> int:
    """How many of ten messages of a class the door would take now."""
    requests = [Request(Kind("bank0", class_name), world.rng.randbytes(8), False, 0) for _ in range(10)]
    _, asks = world.door.ask(requests, world.clock.at)
    try:
        verdicts = world.tell(world.index.admit([replace(ask, probe=True) for ask in asks]))
    except IndexUnavailable:
        return 0
    return sum(verdict.accepted for verdict in verdicts)


def _rebuild(world: World) -> tuple[float, float, int]:
    """Loads as the delivery role does, class by class.

    Seconds until OTP was open and until all was, and what the door took too early.
    """
    begun, asking_s = time.perf_counter(), 0.0
    epoch = world.tell(world.index.begin_rebuild())
    assert epoch is not None
    opened_s, early = 0.0, 0
    for name in world.policy.classes:
        paused = time.perf_counter()
        early += _answers(world, name)
        asking_s += time.perf_counter() - paused
        entries: list[Entry] = []
        for message in world.ledger.open_messages():
            if message.kind.class_name == name and not message.closing and message.enqueued_at is not None:
                entries.append(message.entry())
                if len(entries) >= _LOAD_MAX:
                    world.tell(world.index.load(epoch, entries))
                    entries = []
        if entries:
            world.tell(world.index.load(epoch, entries))
        world.tell(world.index.open_class(epoch, name))
        opened_s = opened_s or time.perf_counter() - begun - asking_s
    world.tell(world.index.finish_rebuild(epoch))
    for session in world.senders.sessions:
        world.tell(world.index.session_up(session.provider, session.name))
    return opened_s, time.perf_counter() - begun - asking_s, early
