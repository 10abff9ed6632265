"""The delivery role: receipts merged, callbacks sent, deadlines swept, due work promoted, the index kept whole."""

from __future__ import annotations

import asyncio

from gateway.callbacks.client import Client
from gateway.callbacks.sender import Sender
from gateway.delivery.drift import DriftCheck
from gateway.delivery.due_book import DueBook
from gateway.delivery.gauges import Gauges
from gateway.delivery.pausing import Pausing
from gateway.delivery.promoter import Promoter
from gateway.delivery.rebuild import Rebuilder
from gateway.delivery.reroute import Rerouter
from gateway.delivery.retention import Retention
from gateway.delivery.sweeps import Sweeper
from gateway.inbound.importer import Importer
from gateway.inbound.joiner import Joiner
from gateway.logs import get
from gateway.loops import end
from gateway.receipts.merger import Merger
from gateway.runtime import Runtime

log = get(__name__)


async def run(rt: Runtime) -> None:
    """Work until `rt.stopping` is set; returns once what was in hand is written."""
    pausing, book, rerouter = Pausing(rt), DueBook(rt), Rerouter(rt)
    rebuilder = Rebuilder(rt, pausing)
    async with Client() as client:
        parts = {
            "receipts": Merger(rt).run(),
            "callbacks": Sender(rt, client).run(),
            "inbound": Joiner(rt).run(),
            "imports": Importer(rt).run(),
            "sweeps": Sweeper(rt).run(),
            "retention": Retention(rt).run(),
            "promoter": Promoter(rt, book, rerouter.detour).run(),
            "reroute": rerouter.run(),
            "due_book": book.run(),
            "pauses": pausing.run(),
            "rebuild": rebuilder.run(),
            "drift": DriftCheck(rt, rebuilder).run(),
            "gauges": Gauges(rt).run(),
        }
        tasks = [rt.spawn(work, name) for name, work in parts.items()]
        log.info("delivery_started")
        await rt.stopping.wait()
        _, late = await asyncio.wait(tasks, timeout=10.0)
        for task in late:
            log.warning("delivery_part_cut_off", part=task.get_name())
        await end(late)
    log.info("delivery_stopped")
