"""A small world on virtual time over the real scripts on a real Valkey, and the invariants that its index must keep."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from redis.asyncio import Redis

from scheduler.core.asks import LeaseAsk, Leased
from scheduler.core.names import escape, unescape
from scheduler.core.records import REFERENCE_SIZE, Entry, Flow, Reference
from scheduler.core.tuning import ClassTuning, Tuning
from scheduler.store.scheduler import Scheduler
from scheduler.store.wire import items_in

START_AT = 1_800_000_000_000
PREFIX = "{c1}:"
CLASSES = {
    "otp": ClassTuning(60, 1, 10_000),
    "transactional": ClassTuning(25, 4, 120_000),
    "marketing": ClassTuning(10, 32, 14_400_000),
    "non_priority": ClassTuning(5, 32, 43_200_000),
}


@dataclass(slots=True)
class VirtualClock:
    """Milliseconds that move when told."""

    at: float = START_AT

    def __call__(self) -> float:
        return self.at


@dataclass(slots=True)
class World:
    """The scheduler, its clock, and a journal of what happened to every reference."""

    redis: Redis
    clock: VirtualClock
    scheduler: Scheduler
    limits: Mapping[str, tuple[float, int]]
    enqueued: dict[bytes, Reference] = field(default_factory=dict)
    ended: Counter[bytes] = field(default_factory=Counter)
    journal: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    canceled: set[bytes] = field(default_factory=set)
    numbers: int = 0

    @staticmethod
    async def create(
        redis: Redis, limits: Mapping[str, tuple[float, int]], weights: Mapping[str, float] | None = None
    ) -> World:
        """A ready index; every bucket has had time to fill."""
        clock = VirtualClock()
        scheduler = Scheduler(redis, clock=clock)
        await scheduler.tune(Tuning(1, CLASSES, tenant_weights=weights or {}, limits=limits))
        epoch = await scheduler.begin_rebuild()
        assert epoch is not None
        await scheduler.finish_rebuild(epoch)
        clock.at += 600_000
        return World(redis, clock, scheduler, limits)

    def reference(self, *, ttl_ms: int = 60_000, segments: int = 1, number: bytes = bytes(8)) -> Reference:
        """A new message's reference."""
        self.numbers += 1
        at = int(self.clock.at)
        return Reference(self.numbers.to_bytes(16, "big"), 0, segments, at + ttl_ms, at, number)

    async def enqueue(self, entries: Iterable[Entry], *, repeat: bool = False) -> None:
        """Enqueues a batch, and once more where asked."""
        batch = list(entries)
        batch_id = b"batch" + self.numbers.to_bytes(8, "big")
        assert await self.scheduler.enqueue(batch_id, batch)
        for entry in batch:
            self.enqueued[entry.reference.id] = entry.reference
        if repeat:
            assert not await self.scheduler.enqueue(batch_id, batch)

    async def fill(self, flow: Flow, count: int, *, ttl_ms: int = 3_600_000) -> None:
        """A backlog of one-segment messages."""
        for at in range(0, count, 1_000):
            size = min(1_000, count - at)
            await self.enqueue([Entry(flow, self.reference(ttl_ms=ttl_ms)) for _ in range(size)])

    async def lease(self, ask: LeaseAsk) -> Leased:
        """Leases and checks: nothing past its deadline, nothing that ended before."""
        leased = await self.scheduler.lease(ask)
        for item in leased.items:
            assert item.reference.deadline_at > self.clock.at, "I16: leased after its deadline"
            assert not self.ended[item.reference.id], "leased after its end"
            assert item.reference.id not in self.canceled, "leased after its tombstone"
        for reference in leased.expired:
            assert reference.deadline_at <= self.clock.at
            self.end(reference)
        return leased

    async def send(self, ask: LeaseAsk) -> Leased:
        """Leases, journals and acknowledges."""
        leased = await self.lease(ask)
        self.record(ask.session, leased)
        if leased.items:
            await self.scheduler.ack(leased.lease_id)
        for item in leased.items:
            self.end(item.reference)
        return leased

    def record(self, session: str, leased: Leased, unsent: frozenset[bytes] = frozenset()) -> None:
        """Writes what left into the journal of every scope that it used."""
        for item in leased.items:
            if item.reference.id in unsent:
                continue
            flow = Flow.parse(item.flow_key)
            for scope in {*flow.scopes, f"provider:{flow.provider}", f"session:{session}"}:
                name = f"{scope}:{item.reference.number.hex()}" if scope.startswith("number:") else scope
                if scope in self.limits and (item.reference.number != bytes(8) or not scope.startswith("number:")):
                    self.journal[name].append((self.clock.at, item.reference.segments))

    def end(self, reference: Reference) -> None:
        """Books the end of a reference; a second end is a fault."""
        self.ended[reference.id] += 1
        assert self.ended[reference.id] == 1, "ended twice"

    def check_limits(self) -> None:
        """I18: over every window, sent <= rate x window + burst, for every scope."""
        for name, sent in self.journal.items():
            scope = name.rsplit(":", 1)[0] if name.startswith("number:") else name
            rate, burst = self.limits[scope]
            # Largest excess over all windows = largest rise of (sent so far - rate x time).
            total, lowest = 0.0, None
            for at, segments in sent:
                level = total - rate * (at - START_AT) / 1000
                lowest = level if lowest is None else min(lowest, level)
                total += segments
                allowed = max(burst, segments)
                assert total - rate * (at - START_AT) / 1000 - lowest <= allowed + 1e-3, f"I18 broken by {scope}"

    async def queued(self) -> list[tuple[str, bytes, str]]:
        """Every reference in the index as (flow key, octets, where)."""
        found = []
        async for key in self.redis.scan_iter(match=PREFIX + "q:*", count=1000):
            flow_key = key.decode()[len(PREFIX) + 2 :]
            found += [(flow_key, octets, "queue") for octets in await self.redis.lrange(key, 0, -1)]
        async for key in self.redis.scan_iter(match=PREFIX + "held:*", count=1000):
            for member in await self.redis.zrange(key, 0, -1):
                (size,) = struct.unpack_from(">H", member)
                found.append((member[2 : 2 + size].decode(), member[2 + size :], "held"))
        async for key in self.redis.scan_iter(match=PREFIX + "lease:*", count=1000):
            found += [(i.flow_key, i.reference.pack(), "lease") for i in items_in(await self.redis.get(key))]
        return found

    async def check_index(self) -> None:
        """Nothing lost or doubled; n, leased, A, m_t, B and F exact; every waiting flow reachable exactly once."""
        found = await self.queued()
        ids = Counter(octets[:16] for _, octets, _ in found)
        assert all(count == 1 for count in ids.values()), "doubled"
        expected = {id_ for id_ in self.enqueued if not self.ended[id_]}
        assert set(ids) == expected, "lost or revived"

        active: dict[str, list[str]] = defaultdict(list)
        async for key in self.redis.scan_iter(match=PREFIX + "act:*"):
            for member in await self.redis.zrange(key, 0, -1):
                active[member.decode()].append("act")
        async for key in self.redis.scan_iter(match=PREFIX + "park:*"):
            for member in await self.redis.zrange(key, 0, -1):
                active[member[8:].decode()].append("park")
                assert await self.redis.llen(PREFIX + "q:" + member[8:].decode()) > 0, "an empty flow is parked"
        assert all(len(places) == 1 for places in active.values())
        assert {flow for flow, _, where in found if where == "queue"} <= set(active), "a flow that nobody reaches"

        flows: dict[tuple[str, str], float] = defaultdict(float)
        for flow_key in active:
            provider, class_name, _, tenant = flow_key.split("|")[:4]
            flows[f"{provider}|{class_name}", tenant] += 0.5 if "|retry:" in flow_key else 1
        depths: Counter[str] = Counter("|".join(f.split("|")[:2]) for f, _, where in found if where != "lease")
        leased: Counter[str] = Counter("|".join(f.split("|")[:2]) for f, _, where in found if where == "lease")
        async for key in self.redis.scan_iter(match=PREFIX + "L:*"):
            name = key.decode()[len(PREFIX) + 2 :]
            record = struct.unpack("<25d", await self.redis.get(key))
            assert (record[0], record[1]) == (depths[name], leased[name]), "depth drifted"
            tenants = {}
            for tenant, packed in (await self.redis.hgetall(f"{PREFIX}T:{name}")).items():
                m, w, _ = struct.unpack("<3d", packed)
                tenants[tenant.decode()] = m, w
            for tenant, (m, _) in tenants.items():
                assert m == flows[name, tenant], "m_t drifted"
            assert all(t in tenants for (line, t) in flows if line == name)
            assert abs(record[3] - sum(w for m, w in tenants.values() if m > 0)) < 1e-6, "A drifted"
            assert record[4] == sum(1 for m, _ in tenants.values() if m > 0)
        await self._check_scopes(found, list(active))

    async def _check_scopes(self, found: list[tuple[str, bytes, str]], active: list[str]) -> None:
        order = {name: at for at, name in enumerate(CLASSES)}
        waiting: Counter[tuple[str, int]] = Counter()
        counted: Counter[tuple[str, int]] = Counter()
        for flow_key, octets, where in found:
            if where != "lease":
                for scope in _scopes(flow_key):
                    waiting[scope, order[flow_key.split("|")[1]]] += Reference.unpack(octets).segments
        for flow_key in active:
            for scope in _scopes(flow_key):
                counted[scope, order[flow_key.split("|")[1]]] += 1
        for name, packed in (await self.redis.hgetall(PREFIX + "s")).items():
            scope = unescape(name.decode())
            if scope not in self.limits or scope.startswith(("session:", "number:")):
                continue
            triples = struct.unpack_from(f"<{3 * packed[0]}d", packed, 1 + 20 * 8)
            for at in range(packed[0]):
                assert triples[3 * at] == waiting[scope, at], f"B of {scope} drifted"
                assert triples[3 * at + 1] == counted[scope, at], f"F of {scope} drifted"


def _scopes(flow_key: str) -> set[str]:
    parts = flow_key.split("|")
    return {unescape(part) for part in parts[4:]} | {"provider:" + unescape(parts[0])}


def flow(provider: str, class_name: str, tenant: str, *scopes: str, band: int = 5) -> Flow:
    """A flow with its tenant's and provider's scopes."""
    return Flow(provider, class_name, tenant, (*scopes, f"tenant:{tenant}", f"provider:{provider}"), band)


assert REFERENCE_SIZE == 42
assert escape("a|b") == "a%7cb"
