"""The inbox writer of a process: what carriers deliver is committed in batches, then answered (I28).

While the ledger is away a carrier waits for a bounded time and is then told ESME_RX_T_APPN, so that it delivers again.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import deque
from typing import Final

from gateway import logs
from gateway.clock import Clock
from gateway.domain.folding import FINAL_WORDS
from gateway.egress import counters
from gateway.egress.rounds import Rounds
from gateway.egress.store_line import STORE_ERRORS, StoreLine
from gateway.ledger.inbox import ReceivedPart, ReceivedReceipt, keep
from gateway.policy.rules.snapshot import Dialect
from gateway.sealing import Sealer
from scheduler.core.values import valueclass
from smpp.link import Connection
from smpp.protocol.codec import encode
from smpp.protocol.errors import ROK, RX_T_APPN
from smpp.protocol.pdu import DataSm, DeliverSm
from smpp.receipts import read, receipt_key
from smpp.receipts.reader import TAG_USER_MESSAGE_REFERENCE

BATCH_MAX: Final = 500
WAITING_MAX: Final = 5_000
WAITING_OCTETS_MAX: Final = 8 * 1024 * 1024  # a PDU may have 64 KiB: their number alone bounds no memory
PATIENCE_S: Final = 5.0
_SLICE: Final = 8  # PDUs that are read at a time, about a millisecond
_LONG_OCTETS: Final = 1_000  # takes about as long by itself
_HEADER_OCTETS: Final = 16
_MESSAGE_ID: Final = re.compile(rb"[0-9A-Fa-f]{32}")
_log = logs.get("egress.inbox")


@valueclass
class Delivery:
    """One deliver_sm or data_sm that waits to be read, kept and answered; `session` is (provider, name)."""

    link: Connection
    session: tuple[str, str]
    pdu: DeliverSm | DataSm
    dialect: Dialect
    came_at: int
    came_mono: float

    @property
    def octets(self) -> int:
        """About how much memory it takes."""
        return len(getattr(self.pdu, "short_message", b"")) + sum(len(value) for _, value in self.pdu.tlvs)


class InboxWriter:
    """One task; sessions hand over, answers go out after the commit."""

    def __init__(self, clock: Clock, line: StoreLine, sealer: Sealer) -> None:
        self._clock = clock
        self._sealer = sealer
        self._line = line
        self._rounds = Rounds(clock)
        self._waiting: deque[Delivery] = deque()
        self._octets = 0  # of what waits, or is being kept
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def take(self, link: Connection, session: tuple[str, str], pdu: DeliverSm | DataSm, dialect: Dialect) -> None:
        """Queues what a session (provider, name) was delivered; where too much waits the carrier must come again."""
        if len(self._waiting) >= WAITING_MAX or self._octets >= WAITING_OCTETS_MAX:
            link.answer(pdu, RX_T_APPN)
            return
        # Read when it is its turn: behind it in the same octets may be answers that make room in the window.
        one = Delivery(link, session, pdu, dialect, self._clock.now_at(), self._clock.now_mono())
        self._octets += one.octets
        self._waiting.append(one)
        self._idle.clear()
        self._wake.set()

    async def wait_idle(self) -> None:
        """Returns once everything delivered is kept and answered."""
        await self._idle.wait()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._wake.wait()
            await self._rounds.begin()
            batch = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
            try:
                await self._keep(batch)
            except STORE_ERRORS as fault:
                self._waiting.extendleft(reversed(batch))
                self._line.drop()
                self._refuse_impatient()
                _log.warning("inbox_waiting", error=type(fault).__name__, waiting=len(self._waiting))
                await asyncio.sleep(random.uniform(0.05, 0.5))
            if not self._waiting:
                self._wake.clear()
                self._idle.set()

    async def _keep(self, batch: list[Delivery]) -> None:
        receipts: list[ReceivedReceipt] = []
        parts: list[ReceivedPart] = []
        unread: set[int] = set()
        for place, one in enumerate(batch):
            if place % _SLICE == _SLICE - 1 or one.octets > _LONG_OCTETS:
                await asyncio.sleep(0)
            try:
                kept = read_delivery(one.session, one.pdu, one.dialect, one.came_at)
            except Exception as fault:
                # Nothing that a carrier writes should do this; if it does, the others are kept all the same.
                _log.error("delivery_not_read", session=one.session[1], error=type(fault).__name__)
                unread.add(place)
                continue
            if isinstance(kept, ReceivedReceipt):
                receipts.append(kept)
            else:
                parts.append(kept)
        await keep(await self._line.connection(), self._sealer, receipts, parts)
        for place, one in enumerate(batch):
            self._octets -= one.octets
            one.link.answer(one.pdu, RX_T_APPN if place in unread else ROK)
        for receipt in receipts:
            counters.receipts(receipt.provider, receipt.state or "unreadable").inc()

    def _refuse_impatient(self) -> None:
        """Nobody is left waiting for longer than PATIENCE_S: the carrier keeps what we cannot."""
        now_mono = self._clock.now_mono()
        while self._waiting and now_mono - self._waiting[0].came_mono > PATIENCE_S:
            one = self._waiting.popleft()
            self._octets -= one.octets
            one.link.answer(one.pdu, RX_T_APPN)


def read_delivery(
    session: tuple[str, str], pdu: DeliverSm | DataSm, dialect: Dialect, now_at: int
) -> ReceivedReceipt | ReceivedPart:
    """A PDU as the ledger keeps it: a receipt read in its dialect, or a part of a handset's message, unread."""
    provider, name = session
    raw = encode(pdu)[_HEADER_OCTETS:]
    receipt = read(
        pdu,
        dates=dialect.receipt_dates,
        timezone=dialect.timezone,
        near_at=now_at,
        unflagged=dialect.unflagged_receipts,
    )
    if receipt is None:
        ends = (pdu.source_addr, pdu.destination_addr)
        return ReceivedPart(provider, name, pdu.sequence_number, now_at, *ends, raw, isinstance(pdu, DataSm))
    return ReceivedReceipt(
        provider=provider,
        session=name,
        received_at=now_at,
        carrier_id=receipt_key(receipt.raw_id, receipt.id_in_text, dialect.receipt_ids) if receipt.raw_id else None,
        raw_id=receipt.raw_id or None,
        recipient=_digits(pdu.source_addr),
        sender=pdu.destination_addr,
        state=receipt.state if receipt.final or receipt.state not in FINAL_WORDS else "enroute",
        error_code=receipt.error_code,
        done_at=receipt.done_at,
        submitted_at=receipt.submitted_at,
        raw=raw,
        own_reference=_own_reference(pdu, dialect.own_reference),
    )


def _digits(address: str) -> str:
    return address if address.isdecimal() else "".join(filter(str.isdecimal, address))


def _own_reference(pdu: DeliverSm | DataSm, kind: str) -> str | None:
    """Our reference as the carrier gives it back: a number, or the id of the message; None where it is neither."""
    if kind == "none":
        return None
    if kind == "user_message_reference":
        octets = pdu.tlv(TAG_USER_MESSAGE_REFERENCE)
        return str(int.from_bytes(octets, "big")) if octets is not None and len(octets) == 2 else None
    octets = pdu.tlv(int(kind.removeprefix("tlv:"), 0))
    found = _MESSAGE_ID.match(octets) if octets is not None else None
    return None if found is None else found.group().decode().lower()
