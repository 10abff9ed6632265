"""Who did what: the audit, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response
from starlette.routing import Route

from gateway.console.visit import Site, Visit, page
from gateway.ledger import audit

_FIRST: Final = (1 << 63) - 1
_VALUE_MAX: Final = 300


def routes(site: Site) -> list[Route]:
    """The one page."""
    return [page(site, "/console/audit", _audit)]


async def _audit(visit: Visit) -> Response:
    action, actor = visit.query("action"), visit.query("actor")
    before = visit.query("before", 19)
    before_id = int(before) if before.isascii() and before.isdecimal() else _FIRST
    async with visit.desk.rt.pool.acquire() as conn:
        rows = await audit.page(conn, min(before_id, _FIRST), action, actor)
    shown = [dict(row) | {"detail": in_words(row["detail"])} for row in rows[: audit.PAGE]]
    older = shown[-1]["id"] if len(rows) > audit.PAGE else None
    return visit.show("audit.html", rows=shown, action=action, actor=actor, older=older)


def in_words(detail: Mapping[str, Any]) -> str:
    """A row's detail as `name value` pairs, cut where it is long."""
    pairs = ", ".join(
        f"{name.replace('_', ' ')} {_value(value)}" for name, value in detail.items() if value not in (None, "")
    )
    return pairs if len(pairs) <= _VALUE_MAX else f"{pairs[:_VALUE_MAX]}…"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " + ".join(map(str, value))
    return str(value)
