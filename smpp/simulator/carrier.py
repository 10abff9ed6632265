"""A carrier (MC) to bind to: answers submit_sm, sends receipts, misbehaves on request.

It runs the gateway's own Session from the other side. One Simulator is one SMSC with any number of ESMEs; messages are
kept nowhere but in the line of receipts to come.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from smpp.link import Connection, LinkSettings, serve
from smpp.protocol import errors as e
from smpp.protocol.commands import BIND_TRANSMITTER
from smpp.protocol.pdu import (
    Bind,
    CancelSm,
    DataSm,
    DataSmResp,
    DeliverSm,
    Outbind,
    Pdu,
    QuerySm,
    SubmitSm,
    SubmitSmResp,
)
from smpp.simulator.disturbances import Outgoing, answer_of, octets_of
from smpp.simulator.doorkeeper import Doorkeeper
from smpp.simulator.esme import Esme
from smpp.simulator.journal import Journal, submit_members
from smpp.simulator.judge import Judge, Verdict
from smpp.simulator.kinds import Delay, seconds_of
from smpp.simulator.outlet import Inbound, Item, Outlet
from smpp.simulator.performer import perform, repeat
from smpp.simulator.receipts import Receipt, asks_receipt, receipt_pdu
from smpp.simulator.register import Kept, Register
from smpp.simulator.script import changed
from smpp.simulator.settings import Action, SimulatorSettings
from smpp.simulator.timeline import Timeline
from smpp.simulator.tls import server_context

RECEIPT_TRIES_MAX = 10
_EARLY_RECEIPT_LEAD_S = 0.05
_COUNTED_AS = {e.ROK: "accepted", e.RTHROTTLED: "throttled"}


class Simulator:
    """`await start()`, then `port`; `await stop()` unbinds and closes. `counters` tells what happened."""

    def __init__(self, settings: SimulatorSettings | None = None) -> None:
        self.settings = settings or SimulatorSettings()
        self.counters: Counter[str] = Counter()
        self.submits: deque[tuple[int, SubmitSm]] = deque(maxlen=self.settings.keep_submits)
        self.random = random.Random(self.settings.seed)
        self.outlets: dict[str, Outlet] = {}
        self.esmes: set[Esme] = set()
        self._judge = Judge(self.random)
        self._doorkeeper = Doorkeeper()
        self._register = Register(self.settings.keep_messages)
        self._server: asyncio.Server | None = None
        self._journal: Journal | None = None
        self._timeline: Timeline | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port it listens on."""
        if self._server is None:
            return self.settings.port
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def connections(self) -> list[Connection]:
        """The links of all ESMEs, bound or not."""
        return [esme.connection for esme in self.esmes]

    @property
    def bound(self) -> int:
        return sum(1 for esme in self.esmes if esme.connection.bound)

    @property
    def receipts_waiting(self) -> int:
        """Receipts held for lack of a receiver or of room."""
        return sum(len(outlet) for outlet in self.outlets.values())

    async def start(self) -> Simulator:
        """Listens. Raises OSError when the port is taken or a TLS file cannot be read (ssl.SSLError among them)."""
        settings = self.settings
        self._timeline = Timeline()
        link = LinkSettings(
            window=settings.receipt_window,
            enquire_link_s=settings.enquire_link_s,
            response_timeout_s=settings.response_timeout_s,
            inactivity_s=settings.inactivity_s,
        )
        tls = server_context(settings)
        self._server = await serve(settings.host, settings.port, tls=tls, settings=link, attach=self._attach)
        if settings.journal is not None:
            self._journal = Journal(settings.journal)
        for phase in settings.phases:
            self.later(phase.at_s, self._enter_phase, phase.changes)
        for action in settings.actions:
            if action.at_s is not None:
                self.later(action.at_s, repeat, self, action, None)
        return self

    async def stop(self) -> None:
        """Unbinds every ESME, closes, flushes the journal."""
        if self._server is not None:
            self._server.close()
        self.thaw()
        await asyncio.gather(*(connection.unbind(0.5) for connection in self.connections), *self._leaving)
        if self._timeline is not None:
            self._timeline.stop()
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def change(self, **changes: Any) -> None:
        """Behaves differently from now on. Raises ScriptInvalid."""
        before = self.settings
        self.settings = changed(before, changes)
        for connection in self.connections:
            connection.read_pause_s = self.settings.read_pause_ms / 1000
            if self.settings.black_hole != before.black_hole:
                _silence(connection, self.settings.black_hole)

    def perform(self, action: Action) -> None:
        """Does it now, for every session or for the account that it names."""
        self.record("action", do=action.do)
        perform(self, action, None)

    def cut(self) -> None:
        """Drops every connection without a word."""
        for connection in self.connections:
            connection.close(reset=self.settings.reset)

    def freeze(self) -> None:
        """Reads nothing more from anybody, as a hung peer does; connections stay up."""
        for connection in self.connections:
            connection.hold_reading(True)

    def thaw(self) -> None:
        """Ends `freeze` and a black hole."""
        for connection in self.connections:
            _silence(connection, False)

    def inject(self, system_id: str, pdu: DeliverSm) -> None:
        """Sends a message from a handset to an ESME, at once or when it binds."""
        self.outlet(system_id).put(Inbound(system_id, pdu))

    # -- links and binds ---------------------------------------------------------------------------------------------

    def _attach(self, connection: Connection) -> Esme:
        settings = self.settings
        self.counters["connections"] += 1
        esme = Esme(self, connection, self.counters["connections"])
        self.esmes.add(esme)
        connection.outgoing = Outgoing(connection, lambda: self.settings)
        connection.read_pause_s = settings.read_pause_ms / 1000
        if settings.black_hole:
            _silence(connection, True)
        if settings.outbind:
            connection.submit(Outbind(settings.system_id[:15], (settings.password or "")[:8]), None)
        return esme

    def take_bind(self, esme: Esme, pdu: Bind) -> None:
        status = self._doorkeeper.judge(self.settings, pdu, self.bound)
        self.record("bind", session=esme.number, system_id=pdu.system_id, status=status)
        if status is not None:
            self.later_ms(self.settings.bind_delay_ms, self._answer_bind, esme, pdu, status)

    def _answer_bind(self, esme: Esme, pdu: Bind, status: int) -> None:
        esme.connection.respond(pdu, self._doorkeeper.response(self.settings, pdu, status))
        if status != e.ROK or esme.system_id:
            return
        self.counters["binds"] += 1
        esme.system_id = pdu.system_id
        if pdu.COMMAND_ID != BIND_TRANSMITTER:
            self.outlet(esme.system_id).add_receiver(esme.connection)
        if self.settings.unbind_after_s:
            self.later(self.settings.unbind_after_s, self.unbind, esme)
        for action in self.settings.actions:
            if action.after_bind_s is not None:
                self.later(action.after_bind_s, repeat, self, action, esme)

    def unbind(self, esme: Esme) -> None:
        """Unbinds in good order, as a carrier that goes into maintenance does."""
        task = asyncio.get_running_loop().create_task(esme.connection.unbind(0.5))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def lose(self, esme: Esme, items: list[Item], reason: str) -> None:
        self.esmes.discard(esme)
        if esme.system_id:
            self.record("unbind" if reason == "unbound" else "lost", session=esme.number, system_id=esme.system_id)
            if reason != "unbound":
                self._doorkeeper.lost(esme.system_id)
            outlet = self.outlet(esme.system_id)
            outlet.remove_receiver(esme.connection)
            for item in reversed(items):
                outlet.put(item, front=True)
            if outlet.idle:
                del self.outlets[esme.system_id]

    # -- messages ----------------------------------------------------------------------------------------------------

    def take_submit(self, esme: Esme, request: SubmitSm | DataSm, pdu: SubmitSm) -> None:
        settings = self.settings
        self.counters["submits"] += 1
        self.submits.append((esme.number, pdu))
        esme.submits += 1
        esme.unanswered += 1
        if settings.close_after and esme.submits > settings.close_after:
            esme.connection.close(reset=settings.reset)
            return
        verdict = self._judge.judge(settings, pdu, esme.unanswered)
        self._record_submit(esme, pdu, verdict)
        if verdict.cut:
            esme.connection.close(reset=settings.reset)
            return
        if verdict.message_id:
            self._plan_receipts(esme, pdu, verdict)
        if verdict.status is None:
            self.counters["dropped"] += 1
        else:
            self.counters[_COUNTED_AS.get(verdict.status, "errors")] += 1
            self.later(verdict.delay_s, self._answer_submit, esme, request, verdict)
        if settings.unbind_after and esme.submits == settings.unbind_after:
            self.unbind(esme)

    def _answer_submit(self, esme: Esme, request: SubmitSm | DataSm, verdict: Verdict) -> None:
        settings = self.settings
        esme.answers += 1
        esme.unanswered -= 1
        message_id = verdict.message_id if settings.message_ids != "empty" else ""
        kind_of_response = SubmitSmResp if isinstance(request, SubmitSm) else DataSmResp
        response = kind_of_response(message_id, command_status=verdict.status or 0)
        kind = settings.bad_pdu if settings.bad_pdu and esme.answers % settings.bad_pdu_every == 0 else None
        if kind is None:
            esme.connection.respond(request, response)
            return
        self.disturb(esme, kind, request.sequence_number)
        for _ in range(2 if kind == "doubled_answer" else 1):
            esme.connection.respond(request, answer_of(kind, response))

    def disturb(self, esme: Esme, kind: str, sequence: int) -> None:
        """Writes the octets of a bad PDU, as they are."""
        self.counters["bad_pdus"] += 1
        self.record("bad_pdu", session=esme.number, kind=kind, sequence=sequence)
        esme.connection.write_octets(octets_of(kind, sequence, self.random))

    def take_query(self, esme: Esme, pdu: QuerySm) -> None:
        answer = self._register.query(pdu, _now_at())
        self._record_answer("query", esme, pdu.message_id, answer)
        esme.connection.respond(pdu, answer)

    def take_cancel(self, esme: Esme, pdu: CancelSm) -> None:
        answer = self._register.cancel(pdu, _now_at())
        self._record_answer("cancel", esme, pdu.message_id, answer)
        esme.connection.respond(pdu, answer)

    # -- receipts ----------------------------------------------------------------------------------------------------

    def _plan_receipts(self, esme: Esme, pdu: SubmitSm, verdict: Verdict) -> None:
        settings = self.settings
        at = _now_at()
        kept = Kept(verdict.stat or "DELIVRD", at + round(verdict.receipt_delay_s * 1000))
        self._register.keep(verdict.message_id, kept)
        if verdict.stat is None:
            return
        if settings.receipt_before_answer:
            verdict.delay_s = max(verdict.delay_s, verdict.receipt_delay_s + _EARLY_RECEIPT_LEAD_S)
        if settings.intermediate or settings.receipt_double_ratio or settings.receipt_contradicted_ratio:
            chain = self._judge.chain(settings, verdict.stat, verdict.receipt_delay_s)
        else:
            chain = [(verdict.receipt_delay_s, verdict.stat)]
        for delay_s, stat in chain:
            receipt = Receipt(esme.system_id, verdict.message_id, pdu, at, stat)
            if not receipt.intermediate and not asks_receipt(pdu.registered_delivery, receipt.failed):
                continue
            if self._timeline is not None and len(self._timeline) >= settings.receipts_held_max:
                self.counters["receipts_dropped"] += 1
                return
            self.later(delay_s, self._put_receipt, receipt, kept)

    def _put_receipt(self, receipt: Receipt, kept: Kept) -> None:
        if kept.canceled:
            receipt.stat = kept.stat
        self.put(receipt)

    def _write_item(self, item: Item, connection: Connection) -> DeliverSm | DataSm:
        item.tries += 1
        if isinstance(item, Inbound):
            self.counters["inbound_sent"] += 1
            self.record("inbound", system_id=item.system_id, source=item.pdu.source_addr, tries=item.tries)
            return item.pdu
        self.counters["receipts_sent"] += 1
        if self._journal is not None:
            self.record(
                "receipt", system_id=item.system_id, message_id=item.message_id, stat=item.stat, tries=item.tries
            )
        return receipt_pdu(item, self.settings.dialect, _now_at())

    def receipt_answered(self, esme: Esme, item: Item, status: int, late: bool) -> None:
        if late:
            return  # it is on its way again already
        if status != e.ROK:
            self.receipt_refused(item)
            return
        self.counters["receipts_taken" if isinstance(item, Receipt) else "inbound_taken"] += 1
        if self._journal is not None and isinstance(item, Receipt):
            self.record(
                "receipt_taken",
                session=esme.number,
                system_id=item.system_id,
                message_id=item.message_id,
                stat=item.stat,
            )
        elif self._journal is not None:
            self.record("inbound_taken", session=esme.number, system_id=item.system_id)

    def receipt_refused(self, item: Item) -> None:
        self.counters["receipts_refused"] += 1
        if item.tries < RECEIPT_TRIES_MAX:
            self.later(self.settings.receipt_retry_ms / 1000, self.put, item)
        else:
            self.counters["receipts_dropped"] += 1

    def pump(self, system_id: str) -> None:
        if system_id:
            self.outlet(system_id).pump()

    # -- what its parts share ----------------------------------------------------------------------------------------

    def outlet(self, system_id: str) -> Outlet:
        """The line of this account."""
        outlet = self.outlets.get(system_id)
        if outlet is None:
            outlet = self.outlets[system_id] = Outlet(self.settings.receipts_held_max, self._write_item)
        return outlet

    def put(self, item: Item) -> None:
        """Sends a receipt or an inbound message to its account."""
        self.outlet(item.system_id).put(item)

    def later(self, delay_s: float, call: Any, *arguments: Any) -> None:
        """Runs the call after that time, at once when it is 0."""
        if self._timeline is not None:
            self._timeline.after(delay_s, call, *arguments)

    def record(self, event: str, **members: Any) -> None:
        """A line of the journal, where there is one."""
        if self._journal is not None:
            self._journal.write(event, **members)

    def later_ms(self, delay: Delay, call: Any, *arguments: Any) -> None:
        self.later(seconds_of(delay, self.random), call, *arguments)

    def _enter_phase(self, changes: Mapping[str, Any]) -> None:
        self.record("phase", changes=list(changes))
        self.change(**changes)

    def _record_answer(self, event: str, esme: Esme, message_id: str, answer: Pdu) -> None:
        self.record(event, session=esme.number, message_id=message_id, status=answer.command_status)

    def _record_submit(self, esme: Esme, pdu: SubmitSm, verdict: Verdict) -> None:
        if self._journal is not None:
            self.record(
                "submit",
                session=esme.number,
                system_id=esme.system_id,
                message_id=verdict.message_id,
                status=verdict.status,
                **submit_members(pdu),
            )


def _silence(connection: Connection, silent: bool) -> None:
    connection.hold_reading(silent)
    connection.hold_writing(silent)


def _now_at() -> int:
    return time.time_ns() // 1_000_000
