"""A carrier (MC) to bind to: answers submit_sm, sends receipts, misbehaves on request.

It runs the gateway's own Session from the other side. One Simulator is one SMSC with any number of ESMEs; messages are
kept nowhere but in the line of receipts to come.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import Counter, deque
from typing import Any, Final

from smpp.link import Connection, LinkSettings, serve
from smpp.protocol import errors as e
from smpp.protocol.commands import BIND_TRANSMITTER, BINDS, response_of
from smpp.protocol.pdu import (
    TYPES,
    Bind,
    BindResp,
    CancelSm,
    DataSm,
    DeliverSm,
    Pdu,
    QuerySm,
    SubmitSm,
    SubmitSmResp,
)
from smpp.simulator.journal import Journal, submit_members
from smpp.simulator.outlet import Inbound, Item, Outlet
from smpp.simulator.receipts import Receipt, asks_receipt, deliver_sm
from smpp.simulator.settings import SimulatorSettings, changed
from smpp.simulator.timeline import Timeline

RECEIPT_TRIES_MAX: Final = 10
RCANCELFAIL: Final = 0x11
_SC_INTERFACE_VERSION: Final = (0x0210, b"\x34")
_EARLY_RECEIPT_LEAD_S: Final = 0.05


class _Esme:
    """One connection of an ESME: the link's handler."""

    def __init__(self, carrier: Simulator, connection: Connection, number: int) -> None:
        self.carrier = carrier
        self.connection = connection
        self.number = number
        self.system_id = ""
        self.submits = 0

    def answered(self, token: Item, response: Any, late: bool) -> None:
        self.carrier.receipt_answered(self, token, response.command_status, late)

    def timed_out(self, token: Item) -> None:
        self.carrier.receipt_refused(self, token)

    def requested(self, pdu: Pdu) -> None:
        if isinstance(pdu, SubmitSm):
            self.carrier.take_submit(self, pdu)
        elif isinstance(pdu, Bind):
            self.carrier.take_bind(self, pdu)
        elif isinstance(pdu, QuerySm):
            self.connection.answer(pdu, e.RQUERYFAIL)
        elif isinstance(pdu, CancelSm):
            self.connection.answer(pdu, RCANCELFAIL)
        elif isinstance(pdu, DataSm):
            self.connection.answer(pdu, e.RSYSERR)

    def room(self) -> None:
        self.carrier.pump(self.system_id)

    def lost(self, tokens: list[tuple[Item, bool]], reason: str) -> None:
        self.carrier.lose(self, [token for token, _ in tokens], reason)


class Simulator:
    """`await start()`, then `port`; `await stop()` unbinds and closes. `counters` tells what happened."""

    def __init__(self, settings: SimulatorSettings | None = None) -> None:
        self.settings = settings or SimulatorSettings()
        self.counters: Counter[str] = Counter()
        self.submits: deque[tuple[int, SubmitSm]] = deque(maxlen=self.settings.keep_submits)
        self._random = random.Random(self.settings.seed)
        self._id_prefix = secrets.token_hex(3)
        self._server: asyncio.Server | None = None
        self._esmes: set[_Esme] = set()
        self._outlets: dict[str, Outlet] = {}
        self._journal: Journal | None = None
        self._timeline: Timeline | None = None
        self._tokens = 0.0
        self._tokens_mono = 0.0

    @property
    def port(self) -> int:
        """The port it listens on."""
        if self._server is None:
            return self.settings.port
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def connections(self) -> list[Connection]:
        """The links of all ESMEs, bound or not."""
        return [esme.connection for esme in self._esmes]

    @property
    def bound(self) -> int:
        return sum(1 for esme in self._esmes if esme.connection.bound)

    @property
    def receipts_waiting(self) -> int:
        """Receipts held for lack of a receiver or of room."""
        return sum(len(outlet) for outlet in self._outlets.values())

    async def start(self) -> Simulator:
        """Listens. Raises OSError when the port is taken."""
        settings = self.settings
        self._timeline = Timeline()
        if settings.journal is not None:
            self._journal = Journal(settings.journal)
        link = LinkSettings(
            window=settings.receipt_window,
            enquire_link_s=settings.enquire_link_s,
            response_timeout_s=settings.response_timeout_s,
            inactivity_s=settings.inactivity_s,
        )
        self._server = await serve(settings.host, settings.port, tls=None, settings=link, attach=self._attach)
        for phase in settings.phases:
            self._timeline.after(phase.at_s, self._enter_phase, dict(phase.changes))
        return self

    async def stop(self) -> None:
        """Unbinds every ESME, closes, flushes the journal."""
        if self._server is not None:
            self._server.close()
        self.thaw()
        await asyncio.gather(*(connection.unbind(0.5) for connection in self.connections))
        if self._timeline is not None:
            self._timeline.stop()
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def change(self, **changes: Any) -> None:
        """Behaves differently from now on. Raises ScriptInvalid."""
        self.settings = changed(self.settings, changes)

    def cut(self) -> None:
        """Drops every connection without a word."""
        for connection in self.connections:
            connection.close()

    def freeze(self) -> None:
        """Reads nothing more from anybody, as a hung peer does; connections stay up."""
        for connection in self.connections:
            connection.hold_reading(True)

    def thaw(self) -> None:
        """Ends `freeze`."""
        for connection in self.connections:
            connection.hold_reading(False)

    def inject(self, system_id: str, pdu: DeliverSm) -> None:
        """Sends a message from a handset to an ESME, at once or when it binds."""
        self._outlet(system_id).put(Inbound(system_id, pdu))

    # -- binds -------------------------------------------------------------------------------------------------------

    def _attach(self, connection: Connection) -> _Esme:
        self.counters["connections"] += 1
        esme = _Esme(self, connection, self.counters["connections"])
        self._esmes.add(esme)
        return esme

    def take_bind(self, esme: _Esme, pdu: Bind) -> None:
        settings = self.settings
        status = settings.bind_status
        if not status and settings.password is not None and pdu.password != settings.password:
            status = e.RINVPASWD
        if not status and settings.max_binds and self.bound >= settings.max_binds:
            status = e.RBINDFAIL
        response = TYPES[response_of(pdu.COMMAND_ID)](command_status=status)
        if status == e.ROK and isinstance(response, BindResp):
            response.system_id = settings.system_id
            response.tlvs = (_SC_INTERFACE_VERSION,)
        esme.connection.respond(pdu, response)
        self._record("bind", session=esme.number, system_id=pdu.system_id, status=status)
        if status != e.ROK or esme.system_id:
            return
        self.counters["binds"] += 1
        esme.system_id = pdu.system_id
        if pdu.COMMAND_ID in BINDS - {BIND_TRANSMITTER}:
            self._outlet(esme.system_id).add_receiver(esme.connection)

    def lose(self, esme: _Esme, items: list[Item], reason: str) -> None:
        self._esmes.discard(esme)
        if esme.system_id:
            self._record("unbind" if reason == "unbound" else "lost", session=esme.number, system_id=esme.system_id)
            outlet = self._outlet(esme.system_id)
            outlet.remove_receiver(esme.connection)
            for item in reversed(items):
                outlet.put(item, front=True)
            if outlet.idle:
                del self._outlets[esme.system_id]

    # -- messages ----------------------------------------------------------------------------------------------------

    def take_submit(self, esme: _Esme, pdu: SubmitSm) -> None:
        settings = self.settings
        self.counters["submits"] += 1
        self.submits.append((esme.number, pdu))
        esme.submits += 1
        if settings.close_after and esme.submits > settings.close_after:
            esme.connection.close()
            return
        dropped = settings.drop_ratio > 0 and self._random.random() < settings.drop_ratio
        status = e.ROK if dropped else self._verdict()
        message_id = ""
        if status == e.ROK and (not dropped or settings.dropped_delivered):
            message_id = f"{self._id_prefix}{self.counters['submits']:08x}"
        if self._journal is not None:
            answered = None if dropped else status
            members = submit_members(pdu)
            self._record(
                "submit",
                session=esme.number,
                system_id=esme.system_id,
                message_id=message_id,
                status=answered,
                **members,
            )
        if message_id:
            self._plan_receipt(esme, pdu, message_id)
        if dropped:
            self.counters["dropped"] += 1
            return
        self.counters["accepted" if status == e.ROK else "throttled" if status == e.RTHROTTLED else "errors"] += 1
        delay_s = settings.answer_delay_ms / 1000
        if settings.receipts and settings.receipt_before_answer and message_id:
            delay_s = max(delay_s, settings.receipt_delay_ms / 1000 + _EARLY_RECEIPT_LEAD_S)
        self._later(delay_s, esme.connection.respond, pdu, SubmitSmResp(message_id, command_status=status))

    def _verdict(self) -> int:
        settings = self.settings
        if settings.throttle_per_s > 0:
            now_mono = time.monotonic()
            burst = max(1.0, settings.throttle_per_s / 10)
            passed_s = now_mono - self._tokens_mono
            self._tokens = min(burst, self._tokens + passed_s * settings.throttle_per_s)
            self._tokens_mono = now_mono
            if self._tokens < 1:
                return e.RTHROTTLED
            self._tokens -= 1
        if settings.error_ratio > 0 and self._random.random() < settings.error_ratio:
            return settings.error_status
        return e.ROK

    # -- receipts ----------------------------------------------------------------------------------------------------

    def _plan_receipt(self, esme: _Esme, pdu: SubmitSm, message_id: str) -> None:
        settings = self.settings
        failed = settings.receipt_fail_ratio > 0 and self._random.random() < settings.receipt_fail_ratio
        if not settings.receipts or not asks_receipt(pdu.registered_delivery, failed):
            return
        if self._timeline is not None and len(self._timeline) >= settings.receipts_held_max:
            self.counters["receipts_dropped"] += 1
            return
        at = time.time_ns() // 1_000_000
        receipt = Receipt(esme.system_id, message_id, pdu, at, failed)
        self._later(settings.receipt_delay_ms / 1000, self._put, receipt)

    def _write_item(self, item: Item, connection: Connection) -> DeliverSm:
        item.tries += 1
        if isinstance(item, Inbound):
            self.counters["inbound_sent"] += 1
            return item.pdu
        self.counters["receipts_sent"] += 1
        if self._journal is not None:
            self._record(
                "receipt", system_id=item.system_id, message_id=item.message_id, stat=item.stat, tries=item.tries
            )
        return deliver_sm(item, time.time_ns() // 1_000_000)

    def receipt_answered(self, esme: _Esme, item: Item, status: int, late: bool) -> None:
        if late:
            return  # it is on its way again already
        if status != e.ROK:
            self.receipt_refused(esme, item)
            return
        self.counters["receipts_taken" if isinstance(item, Receipt) else "inbound_taken"] += 1
        if self._journal is not None and isinstance(item, Receipt):
            self._record("receipt_taken", session=esme.number, system_id=item.system_id, message_id=item.message_id)

    def receipt_refused(self, esme: _Esme, item: Item) -> None:
        self.counters["receipts_refused"] += 1
        if item.tries < RECEIPT_TRIES_MAX:
            self._later(self.settings.receipt_retry_ms / 1000, self._put, item)
        else:
            self.counters["receipts_dropped"] += 1

    def pump(self, system_id: str) -> None:
        if system_id:
            self._outlet(system_id).pump()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _outlet(self, system_id: str) -> Outlet:
        outlet = self._outlets.get(system_id)
        if outlet is None:
            outlet = self._outlets[system_id] = Outlet(self.settings.receipts_held_max, self._write_item)
        return outlet

    def _put(self, item: Item) -> None:
        self._outlet(item.system_id).put(item)

    def _later(self, delay_s: float, call: Any, *arguments: Any) -> None:
        if self._timeline is not None:
            self._timeline.after(delay_s, call, *arguments)

    def _enter_phase(self, changes: dict[str, Any]) -> None:
        self.change(**changes)

    def _record(self, event: str, **members: Any) -> None:
        if self._journal is not None:
            self._journal.write(event, **members)
