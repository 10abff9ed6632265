"""Arguments and replies of the scripts as octets."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scheduler.core.asks import Ask, IndexReport, LeasedItem, LineReport, LinkReport, ScopeReport, Verdict
from scheduler.core.due import coarsened
from scheduler.core.names import escape, scope_pair, unescape
from scheduler.core.records import REFERENCE_SIZE, Entry, Reference
from scheduler.core.tuning import Tuning

_HEAD = struct.Struct(">dHH")
_GROUP = struct.Struct(">HHd")
_DUE = struct.Struct(">dII")


def entries_out(entries: Sequence[Entry]) -> list[Any]:
    """Entries as groups (flow key, front, count, references); entries of a group keep their order."""
    groups: dict[tuple[str, bool], list[bytes]] = {}
    for entry in entries:
        groups.setdefault((entry.queue_key, entry.front), []).append(entry.reference.pack())
    args: list[Any] = []
    for (key, front), references in groups.items():
        args += (key, "1" if front else "0", len(references), *references)
    return args


def asks_out(asks: Iterable[Ask]) -> list[Any]:
    """Asks as the admit script reads them."""
    args: list[Any] = []
    for ask in asks:
        keys = ["" if at in ask.paused else flow.key for at, flow in enumerate(ask.flows)]
        args += (
            "1" if ask.probe else "0",
            ask.segments,
            ask.budget_ms,
            ask.door_limit_ms,
            ask.defer_until,
            ask.place,
            ask.number,
            len(keys),
            *keys,
        )
    return args


def verdicts_in(asks: Sequence[Ask], reply: Sequence[Any]) -> list[Verdict]:
    """The verdicts of an admit call, in the order of its asks.

    A wait without an end that is known (a pause) is told as the time that the message has left.
    """
    verdicts = []
    for at, ask in enumerate(asks):
        accepted, candidate, wait_ms, age_ms, scope, cause, retry_after_s, not_before = reply[8 * at : 8 * at + 8]
        verdicts.append(
            Verdict(
                accepted=accepted == 1,
                candidate=candidate,
                predicted_wait_ms=min(wait_ms, max(ask.left_ms, ask.door_limit_ms + 1)),
                queue_age_ms=age_ms,
                scope=scope_pair(unescape(scope.decode())) if scope else None,
                cause=cause.decode() or None,
                retry_after_s=retry_after_s,
                not_before=not_before or None,
            )
        )
    return verdicts


def items_in(blob: bytes) -> list[LeasedItem]:
    """The items of a lease, in the order in which they should be sent."""
    if not blob:
        return []
    _, provider_size, session_size = _HEAD.unpack_from(blob)
    at = _HEAD.size + provider_size + session_size
    items = []
    while at < len(blob):
        key_size, count, spacing_ms = _GROUP.unpack_from(blob, at)
        at += _GROUP.size
        key = blob[at : at + key_size].decode()
        class_name = unescape(key.split("|", 2)[1])
        at += key_size
        for reference in references_in(blob[at : at + count * REFERENCE_SIZE]):
            items.append(LeasedItem(reference, key, class_name, spacing_ms))
        at += count * REFERENCE_SIZE
    return items


def references_in(octets: bytes) -> list[Reference]:
    """A run of packed references."""
    size = REFERENCE_SIZE
    return [Reference.unpack(octets[at : at + size]) for at in range(0, len(octets), size)]


def tuning_out(tuning: Tuning) -> str:
    """A tuning as the tune script reads it."""
    return json.dumps(
        {
            "version": tuning.policy_version,
            "retry_share": tuning.retry_share,
            "default_weight": tuning.default_weight,
            "classes": [
                {
                    "name": escape(name),
                    "weight": c.weight,
                    "quantum": c.quantum,
                    "budget": c.wait_budget_ms,
                    "door": c.door_share,
                }
                for name, c in tuning.classes.items()
            ],
            "weights": [x for name, weight in tuning.tenant_weights.items() for x in (escape(name), weight)],
            "providers": [
                [escape(name), p.errors, p.of, p.within_ms, p.probe_after_ms, p.ramp_start, p.ramp_double_every_ms]
                for name, p in tuning.providers.items()
            ],
            "limits": [[escape(scope), rate, burst] for scope, (rate, burst) in tuning.limits.items()],
        }
    )


def line_in(name: str) -> tuple[str, str]:
    """A line's name as (provider, class)."""
    provider, class_name = name.split("|", 1)
    return unescape(provider), unescape(class_name)


def due_out(works: Mapping[str, Sequence[tuple[int, int, int]]]) -> list[Any]:
    """Work in the due table as pairs of flow key and packed buckets, in order of time and of bounded number."""
    args: list[Any] = []
    for key, buckets in works.items():
        args += (key, b"".join(_DUE.pack(*one) for one in coarsened(buckets)))
    return args


def lines_in(rows: Sequence[Any]) -> dict[tuple[str, str], LineReport]:
    """The lines of a report."""
    found = {}
    for name, depth, leased, oldest_ms, median_ms, p95_ms, active, drain_per_s, unserved_ms in rows:
        ages = int(oldest_ms), int(median_ms), int(p95_ms)
        found[line_in(name)] = LineReport(
            int(depth), int(leased), *ages, int(active), float(drain_per_s), int(unserved_ms)
        )
    return found


def report_in(found: Mapping[str, Any]) -> IndexReport:
    """A report; empty tables of the script are empty lists or objects alike."""
    tenants: dict[str, int] = {}
    for name, depth in found["tenants"] or ():
        tenants[unescape(name)] = tenants.get(unescape(name), 0) + int(depth)
    largest = sorted(tenants.items(), key=lambda pair: (-pair[1], pair[0]))[:20]
    providers, sessions = {}, {}
    for provider, session, state, share, since_ms, probe_in_ms, held_ms in found["links"] or ():
        link = LinkReport(unescape(provider), state, float(share), int(since_ms), int(probe_in_ms), int(held_ms))
        if session:
            sessions[unescape(session)] = link
        else:
            providers[link.provider] = link
    unserved: dict[str, int] = {}
    for name, waited_ms in found["unserved"] or ():
        unserved[unescape(name)] = max(unserved.get(unescape(name), 0), int(waited_ms))
    return IndexReport(
        lines=lines_in(found["lines"] or ()),
        tenants=dict(largest),
        scopes=scopes_in(found["scopes"] or ()),
        sessions=sessions,
        providers=providers,
        unserved=unserved,
    )


def scopes_in(rows: Sequence[Any]) -> dict[tuple[str, str], ScopeReport]:
    """The scopes of a report."""
    return {
        scope_pair(unescape(name)): ScopeReport(
            int(waiting),
            float(left),
            int(held_ms),
            bool(paused),
            {unescape(c): int(n) for c, n in by_class or ()},
            int(paused_ms),
        )
        for name, waiting, left, held_ms, paused, by_class, paused_ms in rows
    }
