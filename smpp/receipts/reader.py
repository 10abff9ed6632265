"""deliver_sm and data_sm to Receipt: TLVs first, the text where they are silent (SMPP 3.4, 5.2.12, 5.3.2.12, 5.3.2.35).

Nothing a carrier writes makes this raise: what cannot be read is a receipt with state None, to be kept and answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from smpp.receipts.dates import read_date
from smpp.receipts.fields import printable, read_fields
from smpp.receipts.states import BY_NUMBER, FINAL, state_of_word
from smpp.text.reading import split_header

TAG_RECEIPTED_MESSAGE_ID = 0x001E
TAG_NETWORK_ERROR_CODE = 0x0423
TAG_MESSAGE_PAYLOAD = 0x0424
TAG_MESSAGE_STATE = 0x0427
TAG_USER_MESSAGE_REFERENCE = 0x0204

_TYPE_BITS = 0x3C
_TYPE_RECEIPT = 0x04
_TYPE_INTERMEDIATE = 0x20


class Delivered(Protocol):
    """What of a deliver_sm or data_sm is read here; a data_sm has no short_message."""

    @property
    def esm_class(self) -> int: ...
    @property
    def data_coding(self) -> int: ...
    @property
    def tlvs(self) -> Sequence[tuple[int, bytes]]: ...


@dataclass(frozen=True, slots=True)
class Receipt:
    """A carrier's report; instants are UTC ms, `state` is a word of the contract or None where it could not be read."""

    raw_id: str
    state: str | None
    error_code: str | None
    done_at: int | None
    submitted_at: int | None
    final: bool
    from_tlv: bool
    raw_state: str | None = None
    network_error: tuple[int, int] | None = None  # network type and its code (5.3.2.31)
    user_message_reference: int | None = None  # a hint only: resellers put other numbers there


def read(pdu: Delivered, *, dates: str = "auto", timezone: str = "UTC", near_at: int | None = None) -> Receipt | None:
    """The receipt in a PDU, or None for a message from a handset.

    `dates` and `timezone` are the carrier's dialect; `near_at` (UTC ms) settles dates with two readings.
    """
    tlvs = _first_of_each(pdu.tlvs)
    kind = pdu.esm_class & _TYPE_BITS
    by_tlvs = TAG_RECEIPTED_MESSAGE_ID in tlvs and TAG_MESSAGE_STATE in tlvs
    if kind not in (_TYPE_RECEIPT, _TYPE_INTERMEDIATE) and not by_tlvs:
        return None
    fields = read_fields(_content(pdu, tlvs))
    state, raw_state = _state(tlvs, fields)
    id_of_tlv = _c_octets(tlvs.get(TAG_RECEIPTED_MESSAGE_ID, b""))
    network_error = _network_error(tlvs.get(TAG_NETWORK_ERROR_CODE, b""))
    reference = tlvs.get(TAG_USER_MESSAGE_REFERENCE, b"")
    return Receipt(
        raw_id=id_of_tlv or fields.get("id", ""),
        state=state,
        error_code=fields.get("err", None if network_error is None else str(network_error[1])),
        done_at=read_date(fields.get("done date", ""), dates, timezone, near_at),
        submitted_at=read_date(fields.get("submit date", ""), dates, timezone, near_at),
        final=state in FINAL and kind != _TYPE_INTERMEDIATE,
        from_tlv=bool(id_of_tlv),
        raw_state=raw_state,
        network_error=network_error,
        user_message_reference=int.from_bytes(reference, "big") if len(reference) == 2 else None,
    )


def _first_of_each(tlvs: Sequence[tuple[int, bytes]]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for tag, value in tlvs:
        found.setdefault(tag, value)
    return found


def _content(pdu: Delivered, tlvs: dict[int, bytes]) -> str:
    """The fields are ASCII by nature, so only UTF-16 needs decoding; Latin-1 keeps every other octet as it is."""
    short_message: bytes = getattr(pdu, "short_message", b"")
    octets = split_header(short_message, pdu.esm_class).body or tlvs.get(TAG_MESSAGE_PAYLOAD, b"")
    if pdu.data_coding == 0x08 and b"\x00" in octets[:2]:
        return octets.decode("utf-16-be" if octets[0] == 0 else "utf-16-le", "replace")
    return octets.decode("latin-1")


def _state(tlvs: dict[int, bytes], fields: dict[str, str]) -> tuple[str | None, str | None]:
    word = fields.get("stat")
    number = tlvs.get(TAG_MESSAGE_STATE, b"")
    if len(number) == 1:
        return BY_NUMBER.get(number[0], "unknown"), word or str(number[0])
    if word is None:
        return None, None
    return state_of_word(word.split()[0]), word


def _c_octets(value: bytes) -> str:
    return printable(value.split(b"\x00", 1)[0].decode("latin-1"))


def _network_error(value: bytes) -> tuple[int, int] | None:
    return (value[0], int.from_bytes(value[1:], "big")) if len(value) == 3 else None
