"""How fast things go: what limits let a provider drain, what was measured of a line, and a class's part of it."""

from __future__ import annotations

from collections.abc import Callable
from math import exp

from scheduler.plain.state import FOREVER, FlowQueue, Line
from scheduler.plain.turn import DRAIN_MS, Turn

UNMEASURED = 200.0  # segments/s where neither a measurement nor a limit says anything
_PEAK_MS = 60_000  # how long a surge of active weight is remembered at least
_RELAX_MS = 10_000


def answered_rate(turn: Turn, line: Line) -> float:
    """What a line was answered of late, segments/s; fades while nothing more is."""
    return line.answers * exp(-max(0.0, turn.now - line.answers_from - 1000) / DRAIN_MS)


def part_of(turn: Turn, flow: FlowQueue, rate: float, waits: Callable[[str, Line], float]) -> float:
    """The part of `rate` that a flow's class has: its own weight, and what the others cannot take at present.

    What they can take is their pace of late and what waits of them (`waits`), over a few seconds.
    """
    classes = turn.index.classes
    others = []
    total = own = classes[flow.class_name].weight
    for name, line in turn.index.lines_of(flow.provider):
        can = answered_rate(turn, line) + waits(name, line) / 5 if name != flow.class_name else 0.0
        if can > 0:
            others.append((classes[name].weight, can))
            total += classes[name].weight
    taken = sum(min(rate * weight / total, can) for weight, can in others)
    return max(own / total, 1 - taken / rate)


def class_part(turn: Turn, flow: FlowQueue, rate: float) -> float:
    """The same among the lines of its provider."""
    return part_of(turn, flow, rate, lambda _, line: line.segments)


def configured_rate(turn: Turn, provider: str) -> float | None:
    """What limits and health let a provider drain, segments/s; None where no limit says anything."""
    return _configured(turn, provider)[0]


def sessions_bind(turn: Turn, provider: str) -> str | None:
    """The scope that is named where the sessions' own limits bind."""
    return _configured(turn, provider)[1]


def _configured(turn: Turn, provider: str) -> tuple[float | None, str | None]:
    found: tuple[float | None, str | None] = turn.once(("configured", provider), lambda: _limited(turn, provider))
    return found


def _limited(turn: Turn, provider: str) -> tuple[float | None, str | None]:
    """Sessions that are down, paused or broken carry nothing; where none is up yet all count, since they will be."""
    own = turn.scope(f"provider:{provider}")
    rate = 1000 / own.pace_ms if own is not None and own.pace_ms > 0 else None
    fleet = turn.fleet(provider)
    none_up = not any(up for _, up, _ in fleet)
    able = [
        1000 / scope.pace_ms if scope is not None and scope.pace_ms > 0 else FOREVER
        for _, up, scope in fleet
        if (up or none_up) and not (scope is not None and (scope.closed_until > turn.now or scope.probe_at > 0))
    ]
    together = sum(able)
    if not able or together >= FOREVER or (rate is not None and together >= rate):
        return rate, None
    return together, f"session:{fleet[0][0]}" if len(fleet) == 1 else f"provider:{provider}"


def known_rate(turn: Turn, flow: FlowQueue) -> float:
    """What the provider would do if it served at all: never decayed by silence."""
    rate = configured_rate(turn, flow.provider)
    if rate is not None:
        return rate
    line, provider = turn.line(flow.line), turn.provider(flow.provider)
    if line.drain > 0:
        return line.drain
    return provider.answers if provider.answers > 0 else UNMEASURED


def drain_of(turn: Turn, flow: FlowQueue) -> float:
    """Drain of a line, segments/s: measured while work waits (zero counts too); when idle it relaxes to the limits."""
    drain: float = turn.once(("drain", flow.line), lambda: _drain(turn, flow))
    return drain


def _drain(turn: Turn, flow: FlowQueue) -> float:
    now, line, rate = turn.now, turn.line(flow.line), configured_rate(turn, flow.provider)
    fallback = rate * class_part(turn, flow, rate) if rate is not None else max(UNMEASURED, line.drain)
    if line.drain <= 0 and line.busy_at == 0:
        return fallback
    drain = line.drain if line.drain > 0 else fallback
    if line.busy_at > 0:
        span = now - line.drain_from
        if span > 400:
            kept = exp(-span / DRAIN_MS)
            drain = drain * kept + line.drain_count * 1000 / span * (1 - kept)
            if line.drain <= 0:  # never measured: what one answer more would say
                drain = min(drain, (line.drain_count + 1) * 1000 / span)
    else:
        idle = now - line.drain_at
        kept = exp(-idle / _RELAX_MS)
        relaxed = drain * kept + fallback * (1 - kept)
        # Without a limit only trying shows more.
        drain = relaxed if rate is not None else min(relaxed, drain * 2 ** min(50.0, idle / _RELAX_MS))
    drain = max(drain, answered_rate(turn, line))  # what was just answered can be done
    return max(drain if rate is None else min(drain, rate), 0.001)


def competing_weight(turn: Turn, flow: FlowQueue, drain: float, budget_ms: float) -> float:
    """The weight that competes: as virtual time runs, and as it ran in the last surge; else all that is active."""
    now, line, share = turn.now, turn.line(flow.line), turn.share(flow)
    weight, active = turn.index.weight_of(flow.tenant), share.flows > 0
    competing = line.weight + weight - (share.weight if active else 0)
    if line.tag_ms > 0:
        competing = max(weight, min(competing, drain * line.tag_ms / 1000 + (0 if active else weight)))
    window, since = max(budget_ms, _PEAK_MS), now - line.peak_at
    if line.peak > competing and since < window:
        competing += (line.peak - competing) * (1 - since / window)
    return competing
