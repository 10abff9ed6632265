"""deliver_sm and data_sm to Receipt: TLVs first, the text where they are silent (SMPP 3.4, 5.2.12, 5.3.2.12, 5.3.2.35).

Nothing a carrier writes makes this raise: what cannot be read is a receipt with state None, to be kept and answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from smpp.receipts.dates import read_date
from smpp.receipts.fields import is_whole, printable, read_fields
from smpp.receipts.states import BY_NUMBER, BY_WORD, FINAL, state_of_text
from smpp.text import gsm
from smpp.text.reading import split_header
from smpp.values import valueclass

TAG_RECEIPTED_MESSAGE_ID = 0x001E
TAG_NETWORK_ERROR_CODE = 0x0423
TAG_MESSAGE_PAYLOAD = 0x0424
TAG_MESSAGE_STATE = 0x0427
TAG_USER_MESSAGE_REFERENCE = 0x0204

_TYPE_BITS = 0x1C
_TYPE_RECEIPT = 0x04
_INTERMEDIATE = 0x20  # whatever the type bits beside it say (5.2.12)
_STATE_OCTETS_MAX = 4
_CODE_DIGITS_MAX = 8
_CONTENT_OCTETS_MAX = 2048  # a receipt's text is a message at most, in UTF-16 twice that; the rest of a payload is junk


class Delivered(Protocol):
    """What of a deliver_sm or data_sm is read here; a data_sm has no short_message."""

    @property
    def esm_class(self) -> int: ...
    @property
    def data_coding(self) -> int: ...
    @property
    def tlvs(self) -> Sequence[tuple[int, bytes]]: ...


@valueclass
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
    id_in_text: str = ""  # beside `raw_id`, which the TLV outranks
    network_error: tuple[int, int] | None = None  # network type and its code (5.3.2.31)
    user_message_reference: int | None = None  # a hint only: resellers put other numbers there


def read(
    pdu: Delivered, *, dates: str = "auto", timezone: str = "UTC", near_at: int | None = None, unflagged: bool = False
) -> Receipt | None:
    """The receipt in a PDU, or None for a message from a handset.

    It is flagged by esm_class, or by TLVs that only receipts have. A handset can write the words of a receipt, but no
    flag and no TLV: its text is one only where the carrier is known to leave them out (`unflagged`), and only in the
    full form of appendix B. `dates` and `timezone` are the carrier's dialect; `near_at` (UTC ms) settles dates with two
    readings.
    """
    tlvs = _first_of_each(pdu.tlvs)
    is_receipt = pdu.esm_class & _TYPE_BITS == _TYPE_RECEIPT
    is_intermediate = bool(pdu.esm_class & _INTERMEDIATE)
    by_tlv = TAG_RECEIPTED_MESSAGE_ID in tlvs or TAG_MESSAGE_STATE in tlvs
    is_flagged = is_receipt or is_intermediate
    if not (is_flagged or by_tlv or (unflagged and any(map(is_whole, _contents(pdu, tlvs))))):
        return None
    fields = _fields(pdu, tlvs)
    state, raw_state = _state(tlvs, fields)
    id_of_tlv = _c_octets(tlvs.get(TAG_RECEIPTED_MESSAGE_ID, b""))
    raw_id = id_of_tlv or fields.get("id", "")
    if not is_flagged and not (raw_id and state):
        return None
    network_error = _network_error(tlvs.get(TAG_NETWORK_ERROR_CODE, b""))
    reference = tlvs.get(TAG_USER_MESSAGE_REFERENCE, b"")
    return Receipt(
        raw_id=raw_id,
        state=state,
        error_code=_error_code(fields.get("err"), network_error),
        done_at=read_date(fields.get("done date", ""), dates, timezone, near_at),
        submitted_at=read_date(fields.get("submit date", ""), dates, timezone, near_at),
        final=state in FINAL and (is_receipt or not is_intermediate),
        from_tlv=bool(id_of_tlv),
        raw_state=raw_state,
        id_in_text=fields.get("id", ""),
        network_error=network_error,
        user_message_reference=int.from_bytes(reference, "big") if len(reference) == 2 else None,
    )


def _first_of_each(tlvs: Sequence[tuple[int, bytes]]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for tag, value in tlvs:
        found.setdefault(tag, value)
    return found


def _fields(pdu: Delivered, tlvs: dict[int, bytes]) -> dict[str, str]:
    """The fields of the first reading that has an id or a state; the others serve carriers that mislabel texts."""
    first: dict[str, str] | None = None
    for content in _contents(pdu, tlvs):
        fields = read_fields(content)
        if "id" in fields or "stat" in fields:
            return fields
        first = fields if first is None else first
    return first or {}


def _contents(pdu: Delivered, tlvs: dict[int, bytes]) -> Iterator[str]:
    """The text, likeliest reading first. The fields are ASCII by nature, so only UTF-16 and packed septets need to be
    decoded; Latin-1 keeps every other octet as it is."""
    short_message: bytes = getattr(pdu, "short_message", b"")
    body = split_header(short_message, pdu.esm_class).body
    if body:
        yield _as_declared(body[:_CONTENT_OCTETS_MAX], pdu.data_coding)
    payload = tlvs.get(TAG_MESSAGE_PAYLOAD, b"")[:_CONTENT_OCTETS_MAX]
    if payload:
        yield _as_declared(payload, pdu.data_coding)
    carried = [octets[:_CONTENT_OCTETS_MAX] for octets in (body, payload) if octets]
    if len(body) < len(short_message):  # said to have a header, and may have none
        yield _as_declared(short_message, pdu.data_coding)
        carried.append(short_message)
    for octets in carried:
        if b"\x00" in octets:
            yield octets.removeprefix(b"\xfe\xff").removeprefix(b"\xff\xfe").replace(b"\x00", b"").decode("latin-1")
        yield gsm.decode(gsm.unpack(octets))


def _as_declared(octets: bytes, data_coding: int) -> str:
    if data_coding == 0x08 and b"\x00" in octets[:2]:
        return octets.decode("utf-16-be" if octets[0] == 0 else "utf-16-le", "replace")
    # The one sign of names and ids that the GSM alphabet has elsewhere, where ASCII has a control character.
    return octets.replace(b"\x11", b"_").decode("latin-1")


def _state(tlvs: dict[int, bytes], fields: dict[str, str]) -> tuple[str | None, str | None]:
    """The TLV is authoritative; one that names no state leaves it to the text."""
    word = fields.get("stat")
    octets = tlvs.get(TAG_MESSAGE_STATE, b"")
    spelled = _c_octets(octets).strip()
    if len(octets) > 1 and spelled.upper() in BY_WORD:
        return BY_WORD[spelled.upper()], word or spelled  # some write the word of the text here too
    number = _state_number(octets) if 1 <= len(octets) <= _STATE_OCTETS_MAX else None
    if number is not None and (word is None or 1 <= number <= max(BY_NUMBER)):
        return BY_NUMBER.get(number, "unknown"), word or str(number)
    if word is None:
        return None, None
    return ("delivered" if word == "0" and _counts_as_arrived(fields) else state_of_text(word)), word


def _state_number(octets: bytes) -> int:
    """One octet by the spec (5.3.2.35). Carriers also write wider numbers, a NUL behind it, or digits of ASCII."""
    bare = octets.strip(b"\0")
    if bare.isdigit():
        return int(bare)
    return int.from_bytes(bare, "big")


def _counts_as_arrived(fields: dict[str, str]) -> bool:
    """For carriers to whom `stat:0 err:0` means success: only where the counts say the same (Yo! Uganda)."""
    arrived, sent, error = (fields.get(name, "") for name in ("dlvrd", "sub", "err"))
    return bool(arrived.strip("0")) and arrived == sent and not error.strip("0")


def _error_code(written: str | None, network_error: tuple[int, int] | None) -> str | None:
    """As sent; the network's own code where the text has none but zeros."""
    if network_error is not None and (written is None or (network_error[1] and not written.strip("0"))):
        return str(network_error[1])
    return written


def _c_octets(value: bytes) -> str:
    return printable(value.split(b"\x00", 1)[0].decode("latin-1"))


def _network_error(value: bytes) -> tuple[int, int] | None:
    """An octet of the network's type and two of its code (5.3.2.31); carriers also end it with a NUL, or write the code
    alone in digits of ASCII, which no type is (the type is 0 then)."""
    digits = value.rstrip(b"\0")
    if len(digits) <= _CODE_DIGITS_MAX and digits.isdigit():
        return 0, int(digits)
    if len(value) == 4 and value[3] == 0:
        value = value[:3]
    return (value[0], int.from_bytes(value[1:], "big")) if len(value) == 3 else None
