"""`GET /v1/usage`: segments by outcome, as JSON or CSV (contract section 2)."""

from __future__ import annotations

import asyncio
import csv
import io
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any, Final

from gateway.admission import instants
from gateway.admission.fields import FieldFault
from gateway.admission.problems import OVERLOAD, STORAGE, Problem, invalid
from gateway.api.answers import Answer, json_answer, problem_answer
from gateway.api.desk import TenantRef
from gateway.api.exchange import Exchange
from gateway.api.parameters import parameters
from gateway.domain import states
from gateway.ledger import usage
from gateway.ledger.connect import LEDGER_ERRORS
from gateway.runtime import Runtime

ACQUIRE_S: Final = 0.25
DAYS_MAX: Final = 93
DAYS_DEFAULT: Final = 30
GROUPS_MAX: Final = 10_000
AT_ONCE: Final = 2
# As they follow each other in the life of a message. `sending` is not stored: such messages are counted as queued.
STATUSES: Final = (
    states.SCHEDULED,
    states.QUEUED,
    states.UNCONFIRMED,
    states.SENT,
    states.DELIVERED,
    states.UNDELIVERED,
    states.EXPIRED,
    states.REJECTED,
    states.FAILED,
    states.SUPPRESSED,
    states.CANCELED,
    states.UNKNOWN,
)
_KINDS: Final = frozenset({"text/csv", "text/*", "application/json", "application/*", "*/*"})
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_WEIGHT: Final = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")
_CSV: Final = (b"content-type", b"text/csv; charset=utf-8")


class Usage:
    """The handler of one process; a count reads many rows, so few run at once."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._room = asyncio.Semaphore(AT_ONCE)

    async def get(self, exchange: Exchange, tenant: TenantRef) -> Answer:
        """GET /v1/usage"""
        given, faults = parameters(exchange, {"from", "to", "group_by"})
        values = {name: text for name, text in given.items() if text != ""}
        today = datetime.fromtimestamp(self._rt.clock.now_at() / 1000, UTC).date()
        last = _day(values, "to", today, faults)
        # Years begin with 1: nothing lies before, and nothing was sent then.
        default = date.fromordinal(max(1, last.toordinal() - DAYS_DEFAULT + 1))
        first = _day(values, "from", default, faults)
        if not faults and not 0 <= (last - first).days < DAYS_MAX:
            faults.append(FieldFault("/from", f"must not be after `to`, and at most {DAYS_MAX - 1} days before it"))
        groups = _groups(values.get("group_by", "day"), faults)
        if faults:
            return problem_answer(invalid(faults))
        if self._room.locked():
            return problem_answer(OVERLOAD)
        try:
            async with self._room, self._rt.pool.acquire(timeout=ACQUIRE_S) as conn:
                rows = await usage.count(conn, tenant.id, (first, last), groups, GROUPS_MAX * len(STATUSES) + 1)
        except LEDGER_ERRORS:
            return problem_answer(STORAGE)
        data = _summed(rows, groups)
        if len(data) > GROUPS_MAX:
            return problem_answer(_too_many())
        if _wants_csv(exchange.header(b"accept")):
            return Answer(200, (_CSV,), _as_csv(data, groups))
        span = {"from": first.isoformat(), "to": last.isoformat(), "group_by": list(groups)}
        return json_answer(200, span | {"data": data})


def _too_many() -> Problem:
    return invalid([FieldFault("/group_by", f"makes more than {GROUPS_MAX} groups: ask for fewer days or groups")])


def _day(values: Mapping[str, str], name: str, default: date, faults: list[FieldFault]) -> date:
    """A UTC day, or the UTC day of an instant."""
    text = values.get(name)
    if text is None:
        return default
    try:
        return date.fromisoformat(text) if _DAY.fullmatch(text) else _day_of_instant(text)
    except ValueError:
        faults.append(FieldFault(f"/{name}", "must be a day such as 2030-01-31, or an instant in RFC 3339 form"))
        return default


def _day_of_instant(text: str) -> date:
    at = instants.read(text[:64]) or instants.read("+".join(text[:64].rsplit(" ", 1)))
    if at is None:
        raise ValueError("not an instant")
    return datetime.fromtimestamp(at / 1000, UTC).date()


def _groups(text: str, faults: list[FieldFault]) -> tuple[str, ...]:
    asked = [name.strip() for name in text.split(",")]
    if len(set(asked)) < len(asked) or not set(asked) <= set(usage.GROUPS):
        faults.append(FieldFault("/group_by", f"must be some of {', '.join(usage.GROUPS)}, with commas, each once"))
        return ()
    return tuple(asked)


def _summed(rows: Iterable[Mapping[str, Any]], groups: tuple[str, ...]) -> list[dict[str, Any]]:
    """One entry per group, with every status."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in groups)
        entry = found.get(key)
        if entry is None:
            shown = {name: row[name].isoformat() if name == "day" else row[name] for name in groups}
            entry = found[key] = shown | {
                "messages": 0,
                "segments": 0,
                "segments_by_status": dict.fromkeys(STATUSES, 0),
            }
        entry["messages"] += row["messages"]
        entry["segments"] += row["segments"]
        entry["segments_by_status"][row["status"]] += row["segments"]
    return list(found.values())


def _wants_csv(accept: str | None) -> bool:
    """Whether text/csv is wanted more than JSON, or as much and named first (RFC 9110, 12.5.1)."""
    best, found = 0.0, False
    for part in (accept or "").split(","):
        kind, *parameters = [piece.strip().lower() for piece in part.split(";")]
        weight = next((_weight(piece[2:]) for piece in parameters if piece.startswith("q=")), 1.0)
        if weight > best and kind in _KINDS:
            best, found = weight, kind.startswith("text/")
    return found


def _weight(text: str) -> float:
    return float(text) if _WEIGHT.fullmatch(text) else 0.0


def _as_csv(data: list[dict[str, Any]], groups: tuple[str, ...]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([*groups, "messages", "segments", *STATUSES])
    for entry in data:
        named = [_cell(entry[name]) for name in groups]
        writer.writerow([*named, entry["messages"], entry["segments"], *entry["segments_by_status"].values()])
    return text.getvalue().encode()


def _cell(value: str | None) -> str:
    """A name as a cell; what a spreadsheet would take for a formula is quoted."""
    shown = value or ""
    return f"'{shown}" if shown[:1] in ("=", "+", "-", "@", "\t", "\r") else shown
