"""`/admin/numbers/{number}`: what is kept about a person's number, and its removal (GDPR articles 15 and 17)."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from gateway.admission.numbering import normalise
from gateway.ledger import erasures
from gateway.operators.answers import json, problem
from gateway.operators.desk import Desk

_KEPT: Final = [
    "stop lists, so that nobody writes again",
    "callbacks that a tenant has not taken yet, until they are taken or given up",
]


async def export_number(desk: Desk, request: Request, actor: str) -> Response:
    """Every message, inbound text and list entry of a number, texts included as far as they are kept."""
    number = _number(request)
    if number is None:
        return _unreadable()
    rt = desk.rt
    async with rt.pool.acquire() as conn:
        found = await erasures.export(conn, rt.sealer, rt.pepper, number)
        await erasures.note(conn, rt.pepper, number, "number.exported", actor, rt.clock.now_at())
    return json(found)


async def erase_number(desk: Desk, request: Request, actor: str) -> Response:
    """Hashes the number and wipes its texts in everything that is over; what is still open follows by itself."""
    number = _number(request)
    if number is None:
        return _unreadable()
    rt = desk.rt
    now_at = rt.clock.now_at()
    async with rt.pool.acquire() as conn, conn.transaction():
        done = await erasures.erase(conn, rt.pepper, number, actor, now_at)
        await erasures.note(conn, rt.pepper, number, "number.erased", actor, now_at)
    return json(
        {
            "erased": {"messages": done.messages, "inbound": done.inbound},
            "open": done.open,
            "owed": done.owed,
            "kept": _KEPT,
        },
        202 if done.open or done.owed else 200,
    )


def _number(request: Request) -> str | None:
    return normalise(request.path_params["number"])


def _unreadable() -> Response:
    return problem(422, "request.invalid", "The number is E.164 with its plus sign: /admin/numbers/+447700900123")
