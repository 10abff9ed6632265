"""All that the server and the model remember, in one shape."""

from __future__ import annotations

import struct
from typing import Any, cast

import redis

from scheduler.core.names import escape, unescape
from scheduler.plain.state import PROMISE_MS, Index, Line, Provider, Scope

PREFIX = "{c1}:"
_SCOPE_HEAD = struct.Struct("<B20d")
_LINE = struct.Struct("<25d")
_PROVIDER = struct.Struct("<12d")
_DUE = struct.Struct(">dII")
_PROMISED, _PROMISED_AT = 15, 16  # places in a line's record
_PARTS = (
    "scope", "line", "provider", "shares", "active", "parked", "held", "queue", "number", "sessions", "promised", "due",
    "leases", "tombstones", "wakes",
)  # fmt: skip
_ZSET = ("zrange", (0, -1, False, True))
_HASH = ("hgetall", ())
_COMMANDS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "s": _HASH, "L": ("get", ()), "P": ("get", ()), "T": _HASH, "act": _ZSET, "park": _ZSET, "held": _ZSET,
    "q": ("lrange", (0, -1)), "n": ("get", ()), "leases": _ZSET, "tomb": _ZSET, "wake": ("llen", ()), "sessions": _HASH,
    "w": ("get", ()), "due": _HASH,
}  # fmt: skip


def forget_promises(lines: dict[Any, tuple[float, ...]], now: float) -> None:
    """What a line was promised reads as nothing in time, whenever that is written."""
    for name, line in lines.items():
        if now - line[_PROMISED_AT] > PROMISE_MS:
            lines[name] = (*line[:_PROMISED], 0.0, 0.0, *line[_PROMISED_AT + 1 :])


def of_server(client: redis.Redis) -> dict[str, dict[Any, Any]]:
    """What the server remembers."""
    found: dict[str, dict[Any, Any]] = {part: {} for part in _PARTS}
    kinds = []
    pipeline = client.pipeline(transaction=False)
    for key in sorted(cast(list[bytes], client.keys(PREFIX + "*"))):
        kind, _, name = key.decode("latin-1")[len(PREFIX) :].partition(":")
        if kind in _COMMANDS:
            command, args = _COMMANDS[kind]
            getattr(pipeline, command)(key, *args)
            kinds.append((kind, name.encode("latin-1")))
    for (kind, name), raw in zip(kinds, pipeline.execute(), strict=True):
        part, values = _read(kind, name, raw)
        found[part].update(values)
    return found


def _read(kind: str, name: bytes, raw: Any) -> tuple[str, dict[Any, Any]]:
    """The part of the state that a key belongs to, and what it adds."""
    match kind:
        case "s":
            return "scope", {unescape(one.decode()): _read_scope(packed) for one, packed in raw.items()}
        case "L":
            return "line", {_line_name(name): _LINE.unpack(raw)}
        case "P":
            values = _PROVIDER.unpack(raw)
            return "provider", {unescape(name.decode()): values} if any(values) else {}
        case "T":
            line = _line_name(name)
            return "shares", {(*line, unescape(one.decode())): struct.unpack("<3d", v) for one, v in raw.items()}
        case "act":
            return "active", {_line_name(name): raw}
        case "park":
            parked = [(*struct.unpack(">d", member[:8]), member[8:], at) for member, at in raw]
            return "parked", {unescape(name.decode()): parked}
        case "held":
            return "held", {unescape(name.decode()): raw}
        case "q":
            return "queue", {name.decode(): raw}
        case "n":
            return "number", {name: struct.unpack("<3d", raw)}
        case "sessions":
            return "sessions", {unescape(name.decode()): raw}
        case "w":
            return "promised", {name.decode(): int(raw)}
        case "due":
            return "due", {key.decode(): list(_DUE.iter_unpack(packed)) for key, packed in raw.items()}
        case "wake":
            return "wakes", {unescape(name.decode()): raw}
    return {"leases": "leases", "tomb": "tombstones"}[kind], dict(raw)


def _read_scope(packed: bytes) -> Any:
    count, *numbers = _SCOPE_HEAD.unpack_from(packed)
    counted = struct.unpack_from(f"<{3 * count}d", packed, _SCOPE_HEAD.size)
    places = {at: counted[3 * at : 3 * at + 3] for at in range(count) if any(counted[3 * at : 3 * at + 3])}
    return numbers, places, packed[_SCOPE_HEAD.size + 24 * count :].decode()


def _line_name(octets: bytes) -> tuple[str, str]:
    provider, class_name = octets.decode().split("|")
    return unescape(provider), unescape(class_name)


def of_model(index: Index) -> dict[str, Any]:
    """What the model remembers, in the same shape."""
    names = list(index.classes)
    lines = {name: line for name, line in index.lines.items() if line.known}
    flows = index.flows
    return {
        "scope": {name: _scope(scope, names) for name, scope in index.scopes.items()},
        "line": {name: _line(line) for name, line in lines.items()},
        "provider": {name: _provider(one) for name, one in index.providers.items() if _used(one)},
        "shares": {
            (*name, tenant): (float(one.flows), float(one.weight), float(one.queued))
            for name, line in lines.items()
            for tenant, one in line.shares.items()
        },
        "active": {name: list(line.active) for name, line in lines.items() if len(line.active)},
        "parked": {
            name: [(tag, octets, at) for (tag, octets), at in one.parked]
            for name, one in index.providers.items()
            if len(one.parked)
        },
        "held": {
            name: [(struct.pack(">H", size) + octets + packed, at) for (size, octets, packed), at in one.held]
            for name, one in index.providers.items()
            if len(one.held)
        },
        "queue": {key: [one.pack() for one in flow.references] for key, flow in flows.items() if flow.references},
        "number": {
            escape(scope).encode() + b":" + token: (one.paid_until, one.charged_at, one.held_until)
            for (scope, token), one in index.numbers.items()
        },
        "sessions": {
            name: {escape(s).encode(): b"1" if up else b"0" for s, up in one.sessions.items()}
            for name, one in index.providers.items()
            if one.sessions
        },
        "promised": {key: flow.promised for key, flow in flows.items() if flow.promised},
        "due": {key: flow.due for key, flow in flows.items() if flow.due},
        "leases": dict(index.lapses),
        "tombstones": dict(index.tombstones),
        "wakes": dict.fromkeys(index.wakes, 1),
    }


def _used(one: Provider) -> bool:
    return any(_provider(one))


def _scope(s: Scope, names: list[str]) -> Any:
    numbers = [
        s.paid_until, s.interval_ms, s.pace_ms, s.burst, s.holding_since, s.closed_until, s.share,
        s.share_at, s.share_doubles_ms, s.reserved, s.reserved_until, s.promised_at, s.measured_ms, s.probe_at,
        s.closed_since, s.opened_at, s.debts.last_at, s.debts.low, s.debts.low_at, s.debts.low_before,
    ]  # fmt: skip
    counted = {at: (s.waiting.get(n, 0.0), s.flows.get(n, 0.0), s.promised.get(n, 0.0)) for at, n in enumerate(names)}
    return [float(number) for number in numbers], {at: one for at, one in counted.items() if any(one)}, s.reserved_for


def _line(one: Line) -> tuple[float, ...]:
    return tuple(
        float(number)
        for number in (
            one.queued, one.leased, one.segments, one.weight, one.tenants, one.tag, one.class_time, one.idle,
            one.busy_at, one.pass_at, one.drain, one.drain_from, one.drain_count, one.peak, one.peak_at, one.promised,
            one.promised_at, one.drain_at, one.answers, one.answers_from, one.answers_count, one.tag_ms,
            one.tag_from_at, one.tag_from, one.late_credit,
        )
    )  # fmt: skip


def _provider(p: Provider) -> tuple[float, ...]:
    return (
        p.class_time, p.down_at, p.seen_at, p.pass_at, p.answers, p.answers_from, p.answers_count, p.owed_at,
        p.round_trip_ms, p.unwritten, p.back_at, p.answered_at,
    )  # fmt: skip
