"""What waits to be kept is bounded in octets too: while the ledger is away a carrier cannot fill the memory."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

from gateway.egress import inbox_writer
from gateway.egress.inbox_writer import WAITING_OCTETS_MAX, InboxWriter, read_delivery
from gateway.policy.rules.snapshot import Dialect
from gateway.sealing import Sealer
from smpp.protocol.codec import decode, encode
from smpp.protocol.errors import ROK, RX_T_APPN
from smpp.protocol.pdu import DeliverSm

PAYLOAD = 60_000


class Link:
    def __init__(self) -> None:
        self.answers: list[int] = []

    def answer(self, _request: object, status: int = ROK) -> None:
        self.answers.append(status)


class Clock:
    def now_at(self) -> int:
        return 0

    def now_mono(self) -> float:
        return 0.0


class Line:
    async def connection(self) -> None:
        return None


def huge() -> DeliverSm:
    return DeliverSm(source_addr="447700900123", esm_class=0x04, tlvs=((0x0424, b"id:1 " + b" " * PAYLOAD),))


async def test_many_huge_receipts_are_refused_for_now_and_taken_again_later(monkeypatch: Any) -> None:
    async def keep(*_: object) -> None:
        return None

    monkeypatch.setattr(inbox_writer, "keep", keep)
    writer = InboxWriter(cast(Any, Clock()), cast(Any, Line()), Sealer({1: bytes(32)}, 1))
    link = Link()
    fitting = WAITING_OCTETS_MAX // PAYLOAD
    for _ in range(2 * fitting):
        writer.take(cast(Any, link), ("carrier", "s"), huge(), Dialect())
    assert set(link.answers) == {RX_T_APPN}
    assert fitting - 2 <= len(link.answers) <= fitting + 2

    running = asyncio.create_task(writer.run())
    async with asyncio.timeout(60):
        await writer.wait_idle()
    link.answers.clear()
    writer.take(cast(Any, link), ("carrier", "s"), huge(), Dialect())
    async with asyncio.timeout(60):
        await writer.wait_idle()
    assert link.answers == [ROK]
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


def test_a_text_that_fills_the_length_octet_is_kept_as_it_came() -> None:
    """One octet over the specification's limit is no reason to leave a delivery without an answer for ever."""
    for octets in (254, 255):
        written = encode(DeliverSm(source_addr="447700900123", destination_addr="60070", short_message=b"x" * octets))
        kept = read_delivery(("carrier", "s"), cast(DeliverSm, decode(written)), Dialect(), 0)
        assert kept.raw == written[16:]
