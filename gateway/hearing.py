"""Ears for a loop of a role: a NOTIFY wakes it, so that it need not look often."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.ledger.connect import LEDGER_ERRORS, connect
from gateway.logs import get
from gateway.runtime import Runtime

_AGAIN_S: Final = 1.0

log = get(__name__)


async def hear(rt: Runtime, channel: str, woken: asyncio.Event) -> None:
    """Sets `woken` at each notice on `channel`, after each loss of the connection, and at the role's end."""
    ending = asyncio.create_task(rt.stopping.wait(), name=f"{channel} ends")
    try:
        while not ending.done():
            try:
                await _listen(rt, channel, woken, ending)
            except LEDGER_ERRORS as error:
                log.warning("hearing_lost", channel=channel, cause=type(error).__name__)
                await asyncio.wait({ending}, timeout=_AGAIN_S)
    finally:
        ending.cancel()
        woken.set()


async def _listen(rt: Runtime, channel: str, woken: asyncio.Event, ending: asyncio.Task[bool]) -> None:
    broken = asyncio.Event()
    conn = await connect(rt.settings.database_url)
    try:
        conn.add_termination_listener(lambda *_: broken.set())
        await conn.add_listener(channel, lambda *_: woken.set())
        woken.set()  # what was told while nobody heard
        waiting = asyncio.create_task(broken.wait(), name=f"{channel} breaks")
        try:
            await asyncio.wait({ending, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
    finally:
        conn.terminate()
