"""PDUs to octets and back, with strict bounds (SMPP 3.4 sections 3, 4 and 5).

`decode` takes exactly one PDU as the framer cut it and raises ProtocolError, never anything else. submit_sm and
deliver_sm have a path of their own for speed; every other PDU is read and written from its LAYOUT table.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Any, Final

from smpp.protocol import commands as c
from smpp.protocol import errors as e
from smpp.protocol.errors import Blame, PduInvalid, ProtocolError
from smpp.protocol.pdu import INTEGER, TYPES, DataSm, DeliverSm, Pdu, ShortMessage, SubmitSm, Tlvs, Unknown

ADDRESS_OCTETS_MAX: Final = 20

TLVS_MAX: Final = 1_000
"""Optional parameters of one PDU, both ways. SMPP 3.4 names 45; a PDU full of empty ones would cost 20 ms to read."""

TLV_OCTETS_MAX: Final = 0xFFFF

_C_OCTETS_MAX: Final = {
    "service_type": 5,
    "source_addr": ADDRESS_OCTETS_MAX,
    "destination_addr": ADDRESS_OCTETS_MAX,
    "schedule_delivery_time": 16,
    "validity_period": 16,
}
_SHORT_MESSAGES: Final[dict[tuple[int, ...], Struct]] = {}
_STRUCTS_MAX: Final = 2_000

_TLV: Final = Struct(">HH")
_HEADER = c.HEADER
_SIZE: Final = c.HEADER_OCTETS
_CHARSET: Final = "latin-1"


def encode(pdu: Pdu) -> bytes:
    """The octets of one PDU. Raises PduInvalid when a field does not fit its place: nothing is ever cut short."""
    try:
        if isinstance(pdu, ShortMessage):
            return _encode_short_message(pdu)
        command_id = pdu.COMMAND_ID
        if isinstance(pdu, Unknown):
            command_id, body = pdu.command_id, pdu.body
        else:
            body = _encode_layout(pdu)
        if pdu.tlvs:
            body += encode_tlvs(pdu.tlvs)
        return _HEADER.pack(_SIZE + len(body), command_id, pdu.command_status, pdu.sequence_number) + body
    except (OverflowError, UnicodeEncodeError, TypeError, AttributeError, StructError):
        # The value itself stays out of the message: it may be a text, a number or a password.
        raise PduInvalid(f"{type(pdu).__name__}: a field has the wrong type or range") from None


def encode_bare(command_id: int, command_status: int, sequence_number: int) -> bytes:
    """A PDU of a header alone: the shape of error responses, generic_nack, enquire_link and unbind."""
    return _HEADER.pack(_SIZE, command_id, command_status, sequence_number)


def encode_tlvs(tlvs: Tlvs) -> bytes:
    """Optional parameters in the given order (section 3.2.4.1)."""
    if len(tlvs) > TLVS_MAX:
        raise PduInvalid(f"tlvs: more than {TLVS_MAX}")
    parts = []
    for tag, value in tlvs:
        if not 0 <= tag <= TLV_OCTETS_MAX or len(value) > TLV_OCTETS_MAX:
            raise PduInvalid("tlvs: a tag or a value does not fit in 16 bits")
        parts.append(_TLV.pack(tag, len(value)))
        parts.append(value)
    return b"".join(parts)


def _encode_short_message(pdu: ShortMessage) -> bytes:
    text = pdu.short_message
    octets = len(text)
    service_type = pdu.service_type.encode(_CHARSET)
    source = pdu.source_addr.encode(_CHARSET)
    destination = pdu.destination_addr.encode(_CHARSET)
    schedule = pdu.schedule_delivery_time.encode(_CHARSET)
    validity = pdu.validity_period.encode(_CHARSET)
    lengths = (len(service_type), len(source), len(destination), len(schedule), len(validity))
    misfit = octets > pdu.TEXT_OCTETS_MAX
    if misfit or 0 in source or 0 in destination or 0 in service_type or 0 in schedule or 0 in validity:
        raise _misfit(pdu)
    mandatory = _SHORT_MESSAGES.get(lengths) or _short_message_struct(lengths, pdu)
    tail = text + encode_tlvs(pdu.tlvs) if pdu.tlvs else text
    return (
        mandatory.pack(
            mandatory.size + len(tail),
            pdu.COMMAND_ID,
            pdu.command_status,
            pdu.sequence_number,
            service_type,
            pdu.source_addr_ton,
            pdu.source_addr_npi,
            source,
            pdu.dest_addr_ton,
            pdu.dest_addr_npi,
            destination,
            pdu.esm_class,
            pdu.protocol_id,
            pdu.priority_flag,
            schedule,
            validity,
            pdu.registered_delivery,
            pdu.replace_if_present_flag,
            pdu.data_coding,
            pdu.sm_default_msg_id,
            octets,
        )
        + tail
    )


def _short_message_struct(lengths: tuple[int, ...], pdu: ShortMessage) -> Struct:
    # One Struct packs the header and every mandatory parameter at once. There is one for each combination of string
    # lengths; traffic uses a few dozen of them, and a flood of odd ones finds the table full and compiles its own.
    if any(length > limit for length, limit in zip(lengths, _C_OCTETS_MAX.values(), strict=True)):
        raise _misfit(pdu)
    kind = "{}sxBB{}sxBB{}sxBBB{}sx{}sxBBBBB".format(*lengths)
    made = Struct(">IIII" + kind)
    if len(_SHORT_MESSAGES) < _STRUCTS_MAX:
        _SHORT_MESSAGES[lengths] = made
    return made


def _misfit(pdu: ShortMessage) -> PduInvalid:
    if len(pdu.short_message) > pdu.TEXT_OCTETS_MAX:
        return PduInvalid(f"short_message: more than {pdu.TEXT_OCTETS_MAX} octets")
    for name, octets_max in _C_OCTETS_MAX.items():
        value = getattr(pdu, name)
        if len(value) > octets_max or "\0" in value:
            return _too_long(name, octets_max)
    return PduInvalid(f"{type(pdu).__name__}: a field does not fit")


def _too_long(name: str, octets_max: int) -> PduInvalid:
    return PduInvalid(f"{name}: more than {octets_max} octets, or a NUL inside")


def _encode_layout(pdu: Pdu) -> bytes:
    parts = []
    filled = bool(pdu.tlvs)
    for name, limit, _ in pdu.LAYOUT:
        value = getattr(pdu, name)
        filled = filled or bool(value)
        if limit == INTEGER:
            parts.append(b"%c" % value)
        else:
            if len(value) >= limit or "\0" in value:
                raise _too_long(name, limit - 1)
            parts.append(value.encode(_CHARSET) + b"\0")
    if pdu.command_status and not filled and c.is_response(pdu.COMMAND_ID):
        return b""  # an error response has no body (section 3.2: "body not returned")
    return b"".join(parts)


def decode(octets: bytes) -> Pdu:
    """Reads one whole PDU. Raises ProtocolError with the command_status to answer, and nothing else."""
    size = len(octets)
    if size < _SIZE:
        raise ProtocolError("shorter than a header", e.RINVCMDLEN, fatal=True)
    length, command_id, command_status, sequence_number = _HEADER.unpack_from(octets)
    if length != size:
        raise ProtocolError("command_length is not the length", e.RINVCMDLEN, fatal=True)
    pdu: Pdu
    try:
        if command_id == c.SUBMIT_SM:
            pdu = _decode_short_message(SubmitSm(), octets, size)
        elif command_id == c.DELIVER_SM:
            pdu = _decode_short_message(DeliverSm(), octets, size)
        else:
            kind = TYPES.get(command_id)
            if kind is None:
                pdu = Unknown(command_id, octets[_SIZE:])
            else:
                pdu = _decode_layout(kind, octets, size, command_status)
    except _Fault as fault:
        refusal = ProtocolError(fault.reason, fault.status, Blame(command_id, sequence_number))
        if fault.readable is not None:
            fault.readable.command_status = command_status
            fault.readable.sequence_number = sequence_number
            refusal.readable = fault.readable
        raise refusal from None
    pdu.command_status = command_status
    pdu.sequence_number = sequence_number
    return pdu


class _Fault(Exception):
    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.readable: Pdu | None = None


def _decode_layout(kind: type[Pdu], octets: bytes, size: int, command_status: int) -> Pdu:
    # Error responses come bare, with their body, and with half of it; the status alone is what counts, so an
    # unreadable body is dropped. A good response without a body is read as one with empty fields.
    answer = c.is_response(kind.COMMAND_ID)
    if size == _SIZE and answer:
        return kind()
    fields: dict[str, Any] = {}
    tlvs: list[tuple[int, bytes]] = []
    try:
        at = _SIZE
        for name, limit, status in kind.LAYOUT:
            if limit == INTEGER:
                if at >= size:
                    raise _Fault(f"{name}: the body is cut", e.RINVCMDLEN)
                fields[name] = octets[at]
                at += 1
            else:
                end = octets.find(0, at, at + limit)
                if end < 0:
                    if at + limit > size:
                        fields[name] = octets[at:size].decode(_CHARSET)
                    raise _unterminated(name, at + limit, size, status)
                fields[name] = octets[at:end].decode(_CHARSET)
                at = end + 1
        return kind(tlvs=_decode_tlvs(octets, at, size, tlvs), **fields)
    except _Fault as fault:
        if tlvs and issubclass(kind, DataSm):
            fault.readable = kind(tlvs=tuple(tlvs), **fields)
        if answer and command_status:
            return kind()
        if answer:
            fault.readable = kind(**fields)
        raise


def _decode_short_message(pdu: ShortMessage, octets: bytes, size: int) -> ShortMessage:
    find = octets.find
    end = find(0, _SIZE, _SIZE + 6)
    if end < 0:
        raise _unterminated("service_type", _SIZE + 6, size, e.RINVSERTYP)
    if end > _SIZE:
        pdu.service_type = octets[_SIZE:end].decode(_CHARSET)
    at = end + 3
    end = find(0, at, at + 21)
    if end < 0:
        raise _unterminated("source_addr", at + 21, size, e.RINVSRCADR)
    pdu.source_addr_ton = octets[at - 2]
    pdu.source_addr_npi = octets[at - 1]
    pdu.source_addr = octets[at:end].decode(_CHARSET)
    at = end + 3
    end = find(0, at, at + 21)
    if end < 0:
        raise _unterminated("destination_addr", at + 21, size, e.RINVDSTADR)
    pdu.dest_addr_ton = octets[at - 2]
    pdu.dest_addr_npi = octets[at - 1]
    pdu.destination_addr = octets[at:end].decode(_CHARSET)
    at = end + 4
    if at > size:
        raise _Fault("esm_class: the body is cut", e.RINVCMDLEN)
    pdu.esm_class, pdu.protocol_id, pdu.priority_flag = octets[end + 1 : at]
    end = find(0, at, at + 17)
    if end < 0:
        raise _unterminated("schedule_delivery_time", at + 17, size, e.RINVSCHED)
    if end > at:
        pdu.schedule_delivery_time = octets[at:end].decode(_CHARSET)
    at = end + 1
    end = find(0, at, at + 17)
    if end < 0:
        raise _unterminated("validity_period", at + 17, size, e.RINVEXPIRY)
    if end > at:
        pdu.validity_period = octets[at:end].decode(_CHARSET)
    at = end + 6
    if at > size:
        raise _Fault("registered_delivery: the body is cut", e.RINVCMDLEN)
    registered, replace, coding, default_id, sm_length = octets[end + 1 : at]
    pdu.registered_delivery = registered
    pdu.replace_if_present_flag = replace
    pdu.data_coding = coding
    pdu.sm_default_msg_id = default_id
    end = at + sm_length
    if end > size:
        raise _Fault("sm_length: beyond the end of the PDU", e.RINVMSGLEN)
    if sm_length > pdu.TEXT_OCTETS_MAX:
        raise _Fault("sm_length: over the limit", e.RINVMSGLEN)
    pdu.short_message = octets[at:end]
    if end < size:
        _read_tlvs(pdu, octets, end, size)
    return pdu


def _read_tlvs(pdu: ShortMessage, octets: bytes, at: int, size: int) -> None:
    tlvs: list[tuple[int, bytes]] = []
    try:
        pdu.tlvs = _decode_tlvs(octets, at, size, tlvs)
    except _Fault as fault:
        pdu.tlvs = tuple(tlvs)
        if isinstance(pdu, DeliverSm) and (pdu.short_message or tlvs):
            fault.readable = pdu
        raise


def _unterminated(name: str, limit_at: int, size: int, status: int) -> _Fault:
    if limit_at > size:
        return _Fault(f"{name}: the body is cut before its NUL", e.RINVCMDLEN)
    return _Fault(f"{name}: longer than the field", status)


def _decode_tlvs(octets: bytes, at: int, size: int, tlvs: list[tuple[int, bytes]] | None = None) -> Tlvs:
    """`tlvs` takes those in front of one that cannot be read."""
    if at == size:
        return ()
    tlvs = [] if tlvs is None else tlvs
    while size - at >= _TLV.size:
        if len(tlvs) == TLVS_MAX:
            raise _Fault("tlv: too many", e.RINVOPTPARSTREAM)
        tag, length = _TLV.unpack_from(octets, at)
        at += _TLV.size
        end = at + length
        if end > size:
            raise _Fault("tlv: length beyond the end of the PDU", e.RINVPARLEN)
        tlvs.append((tag, octets[at:end]))
        at = end
    if at < size and any(octets[at:]):
        # Fewer than four octets are no parameter. Zeros there are padding that carriers do send; others are not.
        raise _Fault("tlv: the header is cut", e.RINVOPTPARSTREAM)
    return tuple(tlvs)
