"""Who goes next: one lease of a session."""

from __future__ import annotations

from itertools import islice
from math import ceil, floor

from scheduler.core.asks import LeaseAsk, Leased, LeasedItem
from scheduler.core.gcra import charged
from scheduler.core.records import Reference
from scheduler.plain.endings import take_back
from scheduler.plain.numbers import Numbers
from scheduler.plain.state import EPSILON, FOREVER, FlowQueue, Lease, Scope
from scheduler.plain.turn import Turn
from scheduler.plain.views import ClassView, Visit

VISITS_MAX = 400  # what one call may do, so that it stays short
EXPIRED_MAX = 500
LAPSED_MAX = 4
RELEASED_MAX = 100
UNPARKED_MAX = 200
# A flow whose tail would not go before its deadline at the share that the flow has now was promised more than that: it
# pays a small part of the price, as long as late flows have no more than this share of the class's service. Looked at
# where the head has waited for this part of what the door lets in for.
LATE_PART, LATE_SHARE, LATE_PRICE = 0.5, 0.65, 0.001
RESERVATION_TAKEN = 0.001  # nobody reserves again before another flow had a turn


class Leasing:
    """One call of `lease`."""

    def __init__(self, turn: Turn, ask: LeaseAsk, want: int, want_segments: int) -> None:
        self.turn = turn
        self.ask = ask
        self.left = want
        self.left_segments = want_segments
        self.numbers = Numbers(turn)
        self.provider = turn.provider(ask.provider)
        self.groups: list[tuple[FlowQueue, float, list[Reference]]] = []
        self.expired: list[Reference] = []
        self.released: set[Reference] = set()
        self.cause: str | None = None  # the whole session is held by this, until `ready_at`
        self.ready_at = FOREVER
        self.blocker: str | None = None  # what held the last flow that was parked
        self.probed: list[Scope] = []
        self.shared: list[Scope] = []
        self.limits: dict[str, tuple[list[Scope], float]] = {}
        self.visits = 0

    def run(self, lease_id: bytes) -> Leased:
        """Takes what may go now."""
        turn, now = self.turn, self.turn.now
        if self.provider.seen_at == 0:  # the first sign of life
            self.provider.down_at = 0
        self.provider.seen_at = now
        self.shared_names = (f"provider:{self.ask.provider}", f"session:{self.ask.session}")
        seen = [turn.scope(name) for name in self.shared_names]
        for lapsed in turn.index.lapses.due(now, LAPSED_MAX):
            take_back(turn, lapsed)
        self._release()
        self._unpark()
        for scope in seen:
            if scope is not None:
                self._share(scope)
        if self.cause is None:
            self._serve_classes()
        if self.groups:
            self._write(lease_id)
        wait_ms = None if self.groups else self._wait_ms()
        cause = None if self.groups else self.cause or self.blocker
        turn.keep()
        items = [
            LeasedItem(reference, flow.key, flow.class_name, spacing_ms)
            for flow, spacing_ms, references in self.groups
            for reference in references
        ]
        return Leased(lease_id, items, self.expired, wait_ms, cause)

    # What comes back first

    def _release(self) -> None:
        """Messages that their number held go back to the head of their flow."""
        held = self.provider.held
        for member in held.due(self.turn.now, RELEASED_MAX):
            held.discard(member)
            reference = Reference.unpack(member[2])
            self.turn.put(self.turn.flow(member[1].decode()), [reference], front=True, again=True)
            self.released.add(reference)

    def _unpark(self) -> None:
        """Parked flows that are ready come back, never behind the service that they missed."""
        for tag, octets in self.provider.parked.due(self.turn.now, UNPARKED_MAX):
            self.provider.parked.discard((tag, octets))
            flow = self.turn.flow(octets.decode())
            line = self.turn.line(flow.line)
            line.active.put(octets, max(tag, line.tag))
            self.turn.turn_eligible(flow)

    def _share(self, scope: Scope) -> None:
        """What the provider or the session itself allows."""
        now = self.turn.now
        if scope.closed_until > now:
            self.cause, self.ready_at = scope.name, scope.closed_until
        if scope.probe_at > now:
            self.cause, self.ready_at = scope.name, scope.probe_at
        elif scope.probe_at > 0:  # half open: one message shows whether the carrier works again
            self.left = min(self.left, 1)
            self.probed.append(scope)
        if scope.pace_ms > 0:
            self.shared.append(scope)

    # Classes and flows in turn

    def _serve_classes(self) -> None:
        index, turn = self.turn.index, self.turn
        classes = []
        for name, line in index.lines_of(self.ask.provider):
            if name not in self.ask.without and index.is_open(name):
                tuned = index.classes[name]
                one = ClassView(turn.line(line.name), tuned.weight, max(1, tuned.quantum), tuned.door_share * LATE_PART)
                one.fetch(self.left)
                one.done = not one.tags
                classes.append(one)
        served_at = self.provider.class_time
        while self.left > 0 and self.left_segments > 0 and self.visits < VISITS_MAX:
            waiting = [one for one in classes if not one.done]
            if not waiting:
                break
            one = min(waiting, key=lambda one: one.line.class_time)
            if not one.tags and not one.whole:
                one.fetch(self.left)
            if not one.tags:
                one.done = True
                continue
            tag, octets = one.tags.pop(0)
            self.visits += 1
            one.line.tag = max(one.line.tag, tag)
            alone = len(waiting) == 1 and one.whole and not one.tags  # nobody to be fair to: one visit takes all
            taken, go_on = self._visit(one, octets, tag, self.left if alone else min(one.quantum, self.left))
            if taken:
                served_at = max(served_at, one.line.class_time)
                one.line.class_time += taken / one.weight
            if not go_on:
                break
        self.provider.class_time = served_at
        for one in classes:
            self._rest(one)

    def _rest(self, one: ClassView) -> None:
        """A class without an eligible flow is idle: drain is measured only while work waits."""
        line = one.line
        if line.busy_at > 0:
            self.turn.sample_tag(line)
        if one.done and not line.idle:
            if line.drain_count > 0:
                self.turn.sample_drain(line)
            line.idle, line.busy_at, line.drain_count, line.drain_from = True, 0, 0, self.turn.now

    def _visit(self, one: ClassView, octets: bytes, tag: float, asked: int) -> tuple[int, bool]:
        """One visit of a flow for at most `asked` messages: segments taken, and whether the call goes on."""
        turn, flow = self.turn, self.turn.flow(octets.decode())
        limits, slowest_ms = self._limits_of(flow)
        if not flow.references:
            self._retire(one, flow)
            return 0, True
        room, binding, ready_at = self._room(flow, limits)
        if room < 1:
            assert binding is not None
            return 0, self._set_aside(one, flow, tag, binding, ready_at, 1)
        seen = list(islice(flow.references, asked))
        visit = self._choose(flow, seen, room, binding, limits)
        for _ in range(visit.used):
            flow.references.popleft()
        for scope in limits:
            self._charge(scope, visit.segments, flow.key)
        served = len(visit.taken)
        if served + visit.gone:
            turn.account(flow, -(served + visit.gone), -(visit.segments + visit.gone_segments))
        if served:
            self.left -= served
            self.left_segments -= visit.segments
            self.groups.append((flow, slowest_ms, visit.taken))
            one.line.leased += served
            one.line.pass_at = turn.now
            before = tag
            tag += self._price(one, flow, visit)
            # More than a quantum goes only to a flow that is alone. Virtual time went on meanwhile: else whoever comes
            # next would be served all of that visit over before this flow has another turn.
            if served > one.quantum:
                one.line.tag = max(one.line.tag, tag - (tag - before) * one.quantum / served)
        if visit.tight is not None:
            ready_at = self._ready_at(visit.tight, visit.need, flow.key)
            return visit.segments, self._set_aside(one, flow, tag, visit.tight, ready_at, visit.need)
        one.line.active.put(octets, tag)
        if visit.full:
            return visit.segments, False
        if len(seen) == asked:
            one.insert(octets, tag)
        return visit.segments, True

    def _price(self, one: ClassView, flow: FlowQueue, visit: Visit) -> float:
        """What a visit costs its flow in virtual time.

        A tenant's weight is divided among its active flows; of that, retries have half of what others have. A flow that
        was promised more than its share gives now pays little, while late flows have not had too much of the class.
        """
        line = one.line
        step = visit.segments * self.turn.share(flow).flows * (2 if flow.retry else 1)
        price = step / self.turn.index.weight_of(flow.tenant)
        if line.late_credit >= visit.segments and self._is_late(one, flow, visit):
            line.late_credit -= visit.segments
            return price * LATE_PRICE
        most = max(line.drain, 2 * line.tenants * one.quantum, 32)  # a second of service, or a round of the others
        earned = visit.segments * LATE_SHARE / (1 - LATE_SHARE)
        line.late_credit = min(max(line.late_credit, most), line.late_credit + earned)
        return price

    def _is_late(self, one: ClassView, flow: FlowQueue, visit: Visit) -> bool:
        """Whether a flow was promised more than its share gives now."""
        line, head = one.line, visit.taken[0]
        if self.turn.now - head.queued_at <= one.late_share * (head.deadline_at - head.queued_at):
            return False
        if line.drain <= 0 or not flow.references:
            return True
        competing = self.turn.share(flow).flows * line.weight / self.turn.index.weight_of(flow.tenant)
        behind = len(flow.references) * visit.segments / len(visit.taken)
        return behind * competing * 1000 / line.drain > flow.references[-1].deadline_at - self.turn.now

    def _choose(
        self, flow: FlowQueue, seen: list[Reference], room: float, binding: Scope | None, limits: list[Scope]
    ) -> Visit:
        """Takes what may go of the references at a flow's head."""
        visit = Visit()
        canceled = {at for at, reference in enumerate(seen) if self._is_canceled(reference)}
        for at, reference in enumerate(seen):
            late = reference.deadline_at <= self.turn.now
            if late or at in canceled:
                if late and len(self.expired) >= EXPIRED_MAX:
                    visit.full = True
                    break
                if late:
                    self.expired.append(reference)
                if at in canceled:
                    for name in _names(reference):
                        self.turn.index.tombstones.discard(name)
                visit.gone += 1
                visit.gone_segments += reference.segments
            else:
                self._check(visit, flow, reference, room, binding, limits)
                if visit.full or visit.tight is not None:
                    break
                if not self._held_by_number(flow, reference):
                    visit.taken.append(reference)
                    visit.segments += reference.segments
            visit.used = at + 1
        return visit

    def _check(
        self,
        visit: Visit,
        flow: FlowQueue,
        reference: Reference,
        room: float,
        binding: Scope | None,
        limits: list[Scope],
    ) -> None:
        """Room for min(n, burst) in every scope, though n are charged: nothing that a policy allows waits for ever."""
        segments = reference.segments
        if self.left_segments - visit.segments < segments and (visit.segments > 0 or self.groups):
            visit.full = True
        elif segments == 1:
            if room - visit.segments < 1:
                visit.tight, visit.need = binding, 1
        else:
            for scope in limits:
                need = min(segments, scope.burst)
                if self.turn.spare(scope, flow.key) - visit.segments + EPSILON < need:
                    visit.tight, visit.need = scope, need

    def _is_canceled(self, reference: Reference) -> bool:
        return any(name in self.turn.index.tombstones for name in _names(reference))

    def _held_by_number(self, flow: FlowQueue, reference: Reference) -> bool:
        """A message whose number has no room moves alone; at its deadline it comes back to be told expired."""
        scope = self.numbers.limit(flow, reference.number)
        if scope is None:
            return False
        ready_at = self.numbers.ready_at(
            scope, reference.number, reference.segments, held_before=reference in self.released
        )
        if ready_at is None:
            self.numbers.charge(scope, reference.number, reference.segments)
            return False
        if ready_at < reference.deadline_at:
            self.numbers.hold(scope, reference.number, ready_at)
        member = len(flow.octets), flow.octets, reference.pack()
        self.provider.held.put(member, min(ready_at, reference.deadline_at))
        return True

    # Limits

    def _limits_of(self, flow: FlowQueue) -> tuple[list[Scope], float]:
        """The limits that a flow's messages need room in at this session, and the interval of the slowest."""
        if flow.key not in self.limits:
            own = [s for s in self.turn.needs(flow) if s.pace_ms > 0 and s.name != self.shared_names[0]]
            found = own + self.shared
            self.limits[flow.key] = found, max((scope.pace_ms for scope in found), default=0.0)
        return self.limits[flow.key]

    def _ready_at(self, scope: Scope, segments: float, key: str) -> float:
        return self.turn.now + max(0.0, segments - self.turn.spare(scope, key)) * scope.pace_ms

    def _room(self, flow: FlowQueue, limits: list[Scope]) -> tuple[float, Scope | None, float]:
        """Whole segments that a flow may send now, the scope that binds, and when that lets the next one through."""
        for scope in self.turn.needs(flow):
            if scope.closed_until > self.turn.now:
                return 0, scope, scope.closed_until
        room, binding = FOREVER, None
        for scope in limits:
            free = floor(self.turn.spare(scope, flow.key) + EPSILON)
            if free < room:
                room, binding = free, scope
        if binding is None or room >= 1:
            return room, binding, self.turn.now
        return room, binding, self._ready_at(binding, 1, flow.key)

    def _charge(self, scope: Scope, segments: int, key: str) -> None:
        if not segments:
            return
        debt = max(0.0, scope.paid_until - self.turn.clock) / scope.pace_ms
        scope.debts = charged(scope.debts, self.turn.now, debt)
        scope.paid_until = max(scope.paid_until, self.turn.clock) + segments * scope.pace_ms
        scope.holding_since = 0
        if scope.reserved_for != key and scope.reserved < 1:
            scope.reserved, scope.reserved_for = 0, ""
        elif scope.reserved_for == key and scope.reserved >= 1:
            scope.reserved_until = self.turn.now + 2 * (scope.reserved + 2) * scope.pace_ms + 1000
            scope.reserved = RESERVATION_TAKEN
        self.turn.change(scope)

    def _set_aside(
        self, one: ClassView, flow: FlowQueue, tag: float, scope: Scope, ready_at: float, need: float
    ) -> bool:
        """Parks a flow that a scope holds; where it holds all that this session could send, the call ends."""
        if scope.holding_since == 0:
            scope.holding_since = self.turn.now
        if need > 1 and scope.reserved == 0:  # short messages must not take for ever what a long one needs
            scope.reserved_until = self._ready_at(scope, need, flow.key) + 1000
            scope.reserved, scope.reserved_for = need, flow.key
        self.turn.change(scope)
        if scope.name in self.shared_names:
            self.cause, self.ready_at = scope.name, ready_at
            one.line.active.put(flow.octets, tag)
            return False
        self.blocker = scope.name
        one.line.active.discard(flow.octets)
        self.provider.parked.put((tag, flow.octets), ready_at)
        return True

    def _retire(self, one: ClassView, flow: FlowQueue) -> None:
        one.line.active.discard(flow.octets)
        self.turn.count_active(flow, -1)

    # The end of the call

    def _write(self, lease_id: bytes) -> None:
        turn, now = self.turn, self.turn.now
        self.provider.pass_at = now
        for scope in self.probed:
            scope.probe_at = now + turn.index.breaker(self.ask.provider).probe_after_ms
            turn.change(scope)
        groups = tuple((flow.key, tuple(references)) for flow, _, references in self.groups)
        lapses_at = now + self.ask.lease_ms
        turn.index.leases[lease_id] = Lease(now, lapses_at, self.ask.provider, self.ask.session, groups)
        turn.index.lapses.put(lease_id, lapses_at)

    def _wait_ms(self) -> int | None:
        """Until something may be ready; None where nothing waits."""
        if self.visits >= VISITS_MAX or self.expired:
            nearest = self.turn.now
        else:
            ends = (self.provider.parked.lowest(), self.provider.held.lowest(), self.turn.index.lapses.lowest())
            nearest = min([self.ready_at, *(end for end in ends if end is not None)])
        return max(1, ceil(nearest - self.turn.now)) if nearest < FOREVER else None


def _names(reference: Reference) -> tuple[bytes, bytes]:
    """What a tombstone may be set on: the message, or this slot of it."""
    packed = reference.pack()
    return packed[:16], packed[:20]
