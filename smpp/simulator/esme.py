"""One ESME's connection, as the carrier sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smpp.link import Connection
from smpp.protocol.pdu import Bind, CancelSm, DataSm, Pdu, QuerySm, SubmitSm
from smpp.simulator.outlet import Item

if TYPE_CHECKING:
    from smpp.simulator.carrier import Simulator


class Esme:
    """The link's handler: tells the carrier what comes in. `number` counts connections, `unanswered` its submits."""

    def __init__(self, carrier: Simulator, connection: Connection, number: int) -> None:
        self.carrier = carrier
        self.connection = connection
        self.number = number
        self.system_id = ""
        self.submits = 0
        self.answers = 0
        self.unanswered = 0

    def answered(self, token: Item, response: Any, late: bool) -> None:
        self.carrier.receipt_answered(self, token, response.command_status, late)

    def timed_out(self, token: Item) -> None:
        self.carrier.receipt_refused(token)

    def requested(self, pdu: Pdu) -> None:
        if isinstance(pdu, SubmitSm):
            self.carrier.take_submit(self, pdu, pdu)
        elif isinstance(pdu, DataSm):
            self.carrier.take_submit(self, pdu, as_submit(pdu))
        elif isinstance(pdu, Bind):
            self.carrier.take_bind(self, pdu)
        elif isinstance(pdu, QuerySm):
            self.carrier.take_query(self, pdu)
        elif isinstance(pdu, CancelSm):
            self.carrier.take_cancel(self, pdu)

    def room(self) -> None:
        self.carrier.pump(self.system_id)

    def lost(self, tokens: list[tuple[Item, bool]], reason: str) -> None:
        self.carrier.lose(self, [token for token, _ in tokens if token is not None], reason)


def as_submit(pdu: DataSm) -> SubmitSm:
    """A data_sm as the submit_sm that says the same; its text is in message_payload."""
    return SubmitSm(
        service_type=pdu.service_type,
        source_addr_ton=pdu.source_addr_ton,
        source_addr_npi=pdu.source_addr_npi,
        source_addr=pdu.source_addr,
        dest_addr_ton=pdu.dest_addr_ton,
        dest_addr_npi=pdu.dest_addr_npi,
        destination_addr=pdu.destination_addr,
        esm_class=pdu.esm_class,
        registered_delivery=pdu.registered_delivery,
        data_coding=pdu.data_coding,
        tlvs=pdu.tlvs,
        sequence_number=pdu.sequence_number,
    )
