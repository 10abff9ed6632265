"""The examples of docs/carrier-simulator.md, run as they stand there."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from smpp.protocol.pdu import DeliverSm, Pdu
from smpp.simulator import Simulator, load_script
from tests.integration.smpp.peers import Esme

PAGE = Path(__file__).resolve().parents[3] / "docs" / "carrier-simulator.md"
_EXAMPLE = re.compile(r"^### (.+?)$(?:(?!^#).)*?^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES: dict[str, str] = dict(_EXAMPLE.findall(PAGE.read_text(encoding="utf-8")))


@asynccontextmanager
async def example(title: str) -> AsyncIterator[Simulator]:
    """A carrier that runs the script under this heading, on a free port."""
    simulator = await Simulator(replace(load_script(EXAMPLES[title]), port=0)).start()
    try:
        yield simulator
    finally:
        await simulator.stop()


def texts(esme: Esme) -> list[str]:
    """The texts of the deliver_sm that came."""
    return [pdu.short_message.decode("latin-1") for pdu in esme.requests if isinstance(pdu, DeliverSm)]


def stats(esme: Esme) -> list[str]:
    """The states of the receipts that came, in order."""
    return [match[1] for text in texts(esme) if (match := re.search(r"stat:(\w+)", text))]


def of(esme: Esme, kind: type[Pdu]) -> list[Pdu]:
    """What the carrier asked, of one kind."""
    return [pdu for pdu in esme.requests if isinstance(pdu, kind)]
