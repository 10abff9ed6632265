"""Finding a message, and its whole story: what happened when, why it waits or why it ended.

Its text is shown only on a click of its own, which the audit keeps.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Any, Final

from starlette.responses import Response
from starlette.routing import Route

from gateway.admission.numbering import normalise
from gateway.api.explanations import Explanations
from gateway.console.story import draw, tell
from gateway.console.visit import Site, Visit, act, page, refused
from gateway.domain import ids
from gateway.ledger import audit, erasures, message_search
from gateway.operators.admin_messages import timeline
from gateway.sealing import SealBroken, about_message

_NUMBER: Final = re.compile(r"[+0][0-9 .()/-]{4,}")
_TEXT = """
SELECT tenant_id, body, body_key_id, class FROM messages WHERE day = $1 AND id = $2
"""


def routes(site: Site) -> list[Route]:
    """The search, a message, and its text."""
    return [
        page(site, "/console/messages", _search),
        page(site, "/console/messages/{id}", _message),
        act(site, "/console/messages/{id}/text", _text),
    ]


async def _search(visit: Visit) -> Response:
    asked = visit.query("q")
    if not asked:
        return visit.show("messages.html", asked="", found=None, kind=None, next_before=None)
    rt = visit.desk.rt
    if (message_id := ids.read(asked)) is not None:
        return await _shown(visit, message_id)
    number = normalise(asked) if _NUMBER.fullmatch(asked) else None
    async with rt.pool.acquire() as conn:
        if number is not None:
            before = _day(visit.query("before"))
            found = await message_search.by_number(conn, rt.pepper, number, before)
            await erasures.note(conn, rt.pepper, number, "number.searched", visit.actor, rt.clock.now_at())
        else:
            found = await message_search.by_reference(conn, asked)
    return visit.show(
        "messages.html",
        asked=asked,
        found=[dict(row) | {"shown_id": ids.show(row["id"])} for row in found.rows],
        kind="number" if number is not None else "client_ref",
        looked=found,
        next_before=found.first.isoformat() if found.more and found.first is not None else None,
    )


async def _message(visit: Visit) -> Response:
    message_id = ids.read(visit.request.path_params["id"])
    return _unknown(visit) if message_id is None else await _shown(visit, message_id)


async def _shown(visit: Visit, message_id: Any, text: str | None = None, fault: str | None = None) -> Response:
    rt = visit.desk.rt
    async with rt.pool.acquire() as conn:
        told = await timeline(conn, message_id)
        kept = await conn.fetchval(
            "SELECT body IS NOT NULL FROM messages WHERE day = $1 AND id = $2", ids.day_of(message_id), message_id
        )
    if told is None:
        return _unknown(visit)
    explanation = await Explanations(rt).told(None, message_id)
    return visit.show(
        "message.html",
        message=told,
        explanation=explanation,
        why=tell(told, explanation),
        picture=draw(told, rt.clock.now_at()),
        text=text,
        fault=fault,
        text_kept=bool(kept),
    )


async def _text(visit: Visit) -> Response:
    """The text, after the audit says who looked: where that cannot be written nothing is shown."""
    message_id = ids.read(visit.request.path_params["id"])
    if message_id is None:
        return _unknown(visit)
    rt = visit.desk.rt
    async with rt.pool.acquire() as conn:
        row = await conn.fetchrow(_TEXT, ids.day_of(message_id), message_id)
        if row is None:
            return _unknown(visit)
        if row["body"] is None:
            return await _shown(visit, message_id, fault="The text is wiped: its retention time is over.")
        await audit.note(conn, rt.clock.now_at(), visit.actor, "message.text_read", {"message": ids.show(message_id)})
    try:
        opened = rt.sealer.open(row["body_key_id"], bytes(row["body"]), about_message(row["tenant_id"], message_id))
    except SealBroken:
        return await _shown(visit, message_id, fault="The text is sealed under a data key that this process lacks.")
    return await _shown(visit, message_id, text=opened.decode())


def _unknown(visit: Visit) -> Response:
    advice = (
        "Its day may have been dropped (privacy.keep_messages), or the id has a slip: it reads msg_ and 32 hex digits."
    )
    return refused(visit.site, visit.request, 404, "There is no such message", advice)


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
