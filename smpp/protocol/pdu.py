"""The PDUs of SMPP 3.4 as typed records; fields are spelled and ordered as section 4 spells and orders them.

`tlvs` keeps every optional parameter as (tag, value) in wire order, known to us or not. Strings map octet by octet
(Latin-1), so what was read is written back unchanged. `repr` shows no text, number or password.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from smpp.protocol import commands as c
from smpp.protocol import errors as e

Tlvs = tuple[tuple[int, bytes], ...]

INTEGER: Final = 0


class Field(NamedTuple):
    """One mandatory parameter: `limit` octets including the NUL for a C-octet string, INTEGER for one octet."""

    name: str
    limit: int
    fault: int
    """command_status that names this field."""


@dataclass(slots=True, repr=False)
class Pdu:
    """Header fields and optional parameters that every PDU has. command_length is the codec's."""

    COMMAND_ID: ClassVar[int] = -1
    LAYOUT: ClassVar[tuple[Field, ...]] = ()

    command_status: int = field(default=0, kw_only=True)
    sequence_number: int = field(default=0, kw_only=True)
    tlvs: Tlvs = field(default=(), kw_only=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(command_status={self.command_status:#x}, sequence_number={self.sequence_number})"

    def tlv(self, tag: int) -> bytes | None:
        """Value of the first optional parameter with this tag."""
        for found, value in self.tlvs:
            if found == tag:
                return value
        return None


@dataclass(slots=True, repr=False)
class Unknown(Pdu):
    """A well-framed PDU whose command we do not know; the session answers generic_nack to a request."""

    command_id: int = 0
    body: bytes = b""


@dataclass(slots=True, repr=False)
class GenericNack(Pdu):
    """Answers a PDU that could not be read, or whose command is unknown (section 4.3)."""

    COMMAND_ID: ClassVar[int] = c.GENERIC_NACK


@dataclass(slots=True, repr=False)
class Unbind(Pdu):
    """Asks to end the session (section 4.2.1)."""

    COMMAND_ID: ClassVar[int] = c.UNBIND


@dataclass(slots=True, repr=False)
class UnbindResp(Pdu):
    """Ends the session (section 4.2.2)."""

    COMMAND_ID: ClassVar[int] = c.response_of(c.UNBIND)


@dataclass(slots=True, repr=False)
class EnquireLink(Pdu):
    """Asks whether the peer is still there (section 4.11.1)."""

    COMMAND_ID: ClassVar[int] = c.ENQUIRE_LINK


@dataclass(slots=True, repr=False)
class EnquireLinkResp(Pdu):
    """Says that it is (section 4.11.2)."""

    COMMAND_ID: ClassVar[int] = c.response_of(c.ENQUIRE_LINK)


@dataclass(slots=True, repr=False)
class Bind(Pdu):
    """What the three bind requests share (section 4.1)."""

    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("system_id", 16, e.RINVSYSID),
        Field("password", 9, e.RINVPASWD),
        Field("system_type", 13, e.RINVSYSTYP),
        Field("interface_version", INTEGER, e.RINVCMDLEN),
        Field("addr_ton", INTEGER, e.RINVCMDLEN),
        Field("addr_npi", INTEGER, e.RINVCMDLEN),
        Field("address_range", 41, e.RINVCMDLEN),
    )

    system_id: str = ""
    password: str = ""
    system_type: str = ""
    interface_version: int = 0x34
    addr_ton: int = 0
    addr_npi: int = 0
    address_range: str = ""


@dataclass(slots=True, repr=False)
class BindReceiver(Bind):
    """Binds an ESME that only receives (section 4.1.3)."""

    COMMAND_ID: ClassVar[int] = c.BIND_RECEIVER


@dataclass(slots=True, repr=False)
class BindTransmitter(Bind):
    """Binds an ESME that only submits (section 4.1.1)."""

    COMMAND_ID: ClassVar[int] = c.BIND_TRANSMITTER


@dataclass(slots=True, repr=False)
class BindTransceiver(Bind):
    """Binds an ESME that does both (section 4.1.5)."""

    COMMAND_ID: ClassVar[int] = c.BIND_TRANSCEIVER


@dataclass(slots=True, repr=False)
class BindResp(Pdu):
    """What the three bind responses share. Some carriers answer a longer system_id than the spec's 16 octets."""

    LAYOUT: ClassVar[tuple[Field, ...]] = (Field("system_id", 65, e.RINVSYSID),)

    system_id: str = ""


@dataclass(slots=True, repr=False)
class BindReceiverResp(BindResp):
    """Section 4.1.4."""

    COMMAND_ID: ClassVar[int] = c.response_of(c.BIND_RECEIVER)


@dataclass(slots=True, repr=False)
class BindTransmitterResp(BindResp):
    """Section 4.1.2."""

    COMMAND_ID: ClassVar[int] = c.response_of(c.BIND_TRANSMITTER)


@dataclass(slots=True, repr=False)
class BindTransceiverResp(BindResp):
    """Section 4.1.6."""

    COMMAND_ID: ClassVar[int] = c.response_of(c.BIND_TRANSCEIVER)


@dataclass(slots=True, repr=False)
class Outbind(Pdu):
    """The MC asks the ESME to bind as receiver (section 4.1.7); it has no response."""

    COMMAND_ID: ClassVar[int] = c.OUTBIND
    LAYOUT: ClassVar[tuple[Field, ...]] = (Field("system_id", 16, e.RINVSYSID), Field("password", 9, e.RINVPASWD))

    system_id: str = ""
    password: str = ""


@dataclass(slots=True, repr=False)
class ShortMessage(Pdu):
    """What submit_sm and deliver_sm share (sections 4.4.1 and 4.6.1); the codec knows this layout by heart."""

    TEXT_OCTETS_MAX: ClassVar[int] = 254
    """sm_length of section 5.2.21; longer text travels in message_payload."""

    service_type: str = ""
    source_addr_ton: int = 0
    source_addr_npi: int = 0
    source_addr: str = ""
    dest_addr_ton: int = 1
    dest_addr_npi: int = 1
    destination_addr: str = ""
    esm_class: int = 0
    protocol_id: int = 0
    priority_flag: int = 0
    schedule_delivery_time: str = ""
    validity_period: str = ""
    registered_delivery: int = 0
    replace_if_present_flag: int = 0
    data_coding: int = 0
    sm_default_msg_id: int = 0
    short_message: bytes = b""


@dataclass(slots=True, repr=False)
class SubmitSm(ShortMessage):
    """A segment from the ESME to the MC (section 4.4.1)."""

    COMMAND_ID: ClassVar[int] = c.SUBMIT_SM


@dataclass(slots=True, repr=False)
class DeliverSm(ShortMessage):
    """A receipt or a message from a handset, from the MC to the ESME (section 4.6.1)."""

    TEXT_OCTETS_MAX: ClassVar[int] = 255
    """Carriers fill the length octet, and what they sent is written again to be kept."""

    COMMAND_ID: ClassVar[int] = c.DELIVER_SM


@dataclass(slots=True, repr=False)
class MessageResp(Pdu):
    """A response whose body is a message_id. Carriers exceed the spec's 65 octets, so 255 are taken."""

    LAYOUT: ClassVar[tuple[Field, ...]] = (Field("message_id", 255, e.RINVMSGID),)

    message_id: str = ""


@dataclass(slots=True, repr=False)
class SubmitSmResp(MessageResp):
    """The MC's answer with the id it gave the segment (section 4.4.2)."""

    COMMAND_ID: ClassVar[int] = c.response_of(c.SUBMIT_SM)


@dataclass(slots=True, repr=False)
class DeliverSmResp(MessageResp):
    """The ESME's answer; its message_id is unused (section 4.6.2)."""

    COMMAND_ID: ClassVar[int] = c.response_of(c.DELIVER_SM)


@dataclass(slots=True, repr=False)
class DataSmResp(MessageResp):
    """Section 4.7.2."""

    COMMAND_ID: ClassVar[int] = c.response_of(c.DATA_SM)


@dataclass(slots=True, repr=False)
class DataSm(Pdu):
    """A message in either direction whose text is in message_payload (section 4.7.1)."""

    COMMAND_ID: ClassVar[int] = c.DATA_SM
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("service_type", 6, e.RINVSERTYP),
        Field("source_addr_ton", INTEGER, e.RINVCMDLEN),
        Field("source_addr_npi", INTEGER, e.RINVCMDLEN),
        Field("source_addr", 65, e.RINVSRCADR),
        Field("dest_addr_ton", INTEGER, e.RINVCMDLEN),
        Field("dest_addr_npi", INTEGER, e.RINVCMDLEN),
        Field("destination_addr", 65, e.RINVDSTADR),
        Field("esm_class", INTEGER, e.RINVCMDLEN),
        Field("registered_delivery", INTEGER, e.RINVCMDLEN),
        Field("data_coding", INTEGER, e.RINVCMDLEN),
    )

    service_type: str = ""
    source_addr_ton: int = 0
    source_addr_npi: int = 0
    source_addr: str = ""
    dest_addr_ton: int = 1
    dest_addr_npi: int = 1
    destination_addr: str = ""
    esm_class: int = 0
    registered_delivery: int = 0
    data_coding: int = 0


@dataclass(slots=True, repr=False)
class AlertNotification(Pdu):
    """A handset became reachable (section 4.12.1); it has no response."""

    COMMAND_ID: ClassVar[int] = c.ALERT_NOTIFICATION
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("source_addr_ton", INTEGER, e.RINVCMDLEN),
        Field("source_addr_npi", INTEGER, e.RINVCMDLEN),
        Field("source_addr", 65, e.RINVSRCADR),
        Field("esme_addr_ton", INTEGER, e.RINVCMDLEN),
        Field("esme_addr_npi", INTEGER, e.RINVCMDLEN),
        Field("esme_addr", 65, e.RINVDSTADR),
    )

    source_addr_ton: int = 0
    source_addr_npi: int = 0
    source_addr: str = ""
    esme_addr_ton: int = 0
    esme_addr_npi: int = 0
    esme_addr: str = ""


@dataclass(slots=True, repr=False)
class QuerySm(Pdu):
    """Asks for the state of a message (section 4.8.1)."""

    COMMAND_ID: ClassVar[int] = c.QUERY_SM
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("message_id", 65, e.RINVMSGID),
        Field("source_addr_ton", INTEGER, e.RINVCMDLEN),
        Field("source_addr_npi", INTEGER, e.RINVCMDLEN),
        Field("source_addr", 21, e.RINVSRCADR),
    )

    message_id: str = ""
    source_addr_ton: int = 0
    source_addr_npi: int = 0
    source_addr: str = ""


@dataclass(slots=True, repr=False)
class QuerySmResp(Pdu):
    """Section 4.8.2."""

    COMMAND_ID: ClassVar[int] = c.response_of(c.QUERY_SM)
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("message_id", 65, e.RINVMSGID),
        Field("final_date", 17, e.RINVCMDLEN),
        Field("message_state", INTEGER, e.RINVCMDLEN),
        Field("error_code", INTEGER, e.RINVCMDLEN),
    )

    message_id: str = ""
    final_date: str = ""
    message_state: int = 0
    error_code: int = 0


@dataclass(slots=True, repr=False)
class CancelSm(Pdu):
    """Asks to cancel a message (section 4.9.1)."""

    COMMAND_ID: ClassVar[int] = c.CANCEL_SM
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("service_type", 6, e.RINVSERTYP),
        Field("message_id", 65, e.RINVMSGID),
        Field("source_addr_ton", INTEGER, e.RINVCMDLEN),
        Field("source_addr_npi", INTEGER, e.RINVCMDLEN),
        Field("source_addr", 21, e.RINVSRCADR),
        Field("dest_addr_ton", INTEGER, e.RINVCMDLEN),
        Field("dest_addr_npi", INTEGER, e.RINVCMDLEN),
        Field("destination_addr", 21, e.RINVDSTADR),
    )

    service_type: str = ""
    message_id: str = ""
    source_addr_ton: int = 0
    source_addr_npi: int = 0
    source_addr: str = ""
    dest_addr_ton: int = 1
    dest_addr_npi: int = 1
    destination_addr: str = ""


@dataclass(slots=True, repr=False)
class CancelSmResp(Pdu):
    """Section 4.9.2."""

    COMMAND_ID: ClassVar[int] = c.response_of(c.CANCEL_SM)


TYPES: Final[dict[int, type[Pdu]]] = {
    kind.COMMAND_ID: kind
    for kind in (
        GenericNack, Unbind, UnbindResp, EnquireLink, EnquireLinkResp, Outbind, AlertNotification,
        BindReceiver, BindTransmitter, BindTransceiver, BindReceiverResp, BindTransmitterResp, BindTransceiverResp,
        SubmitSm, SubmitSmResp, DeliverSm, DeliverSmResp, DataSm, DataSmResp,
        QuerySm, QuerySmResp, CancelSm, CancelSmResp,
    )
}  # fmt: skip
"""Every command this package knows."""
