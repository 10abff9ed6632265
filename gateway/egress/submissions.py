"""From a claimed row to its submit_sm in the provider's dialect: segments, addresses, flags, TLVs (SMPP 3.4, 4.4.1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID
from zlib import crc32
from zoneinfo import ZoneInfo

from gateway.domain.ids import made_at
from gateway.domain.vendor_tlvs import octets_of
from gateway.egress.flights import Flight
from gateway.policy.rules.snapshot import Dialect
from scheduler.core.values import valueclass
from smpp.protocol.pdu import SubmitSm
from smpp.text import Segment, segment

_TAG_USER_MESSAGE_REFERENCE: Final = 0x0204
_REGISTERED: Final[Mapping[str, int]] = {"final": 0x01, "all": 0x11, "none": 0x00}  # 5.2.17
_DAYS_MAX: Final = 31  # the relative form has two digits of days and no agreement on longer months (7.1.1.2)
_SHORT_CODE_DIGITS_MAX: Final = 8
_PLACES: Final = 4096
_REMEMBERED: Final = 64
_STRIDE: Final = 159  # odd, near 256 x the golden ratio: neighbouring seconds lie far apart in the low octet
_QUARTER_S: Final = 900
_QUARTERS_MAX: Final = 48

# (TON, NPI) of section 5.2.5 and 5.2.6 by kind of sender, and of the destination.
_PLANS: Final[Mapping[str, tuple[int, int]]] = {
    "destination": (1, 1),
    "international": (1, 1),
    "alphanumeric": (5, 0),
    "short_code": (3, 0),
    "numeric": (0, 1),
}


class TextMissing(ValueError):
    """The ledger holds no text that could be sent."""


class References:
    """Concatenation references: two long texts to one handset never share one while it may still wait for parts (E24).

    A message's reference follows from the second it was made in, so that it depends neither on the process nor on
    restarts; what a destination was given last is left out. Destinations share `_PLACES` places by
    hash, each of which remembers `_REMEMBERED` references by their low octet, all that an 8-bit header has.
    """

    def __init__(self) -> None:
        self._last: dict[int, deque[int]] = {}

    def take(self, recipient: str, made_at: int) -> int:
        """The next reference (16 bits) for this destination; `made_at` is the message's own instant, UTC ms."""
        last = self._last.setdefault(crc32(recipient.encode()) % _PLACES, deque(maxlen=_REMEMBERED))
        reference = made_at // 1000 * _STRIDE
        while reference & 0xFF in last:
            reference += 1
        last.append(reference & 0xFF)
        return reference & 0xFFFF


@valueclass
class Lease:
    """What the scheduler said about one claimed message."""

    queued_at: int
    deadline_at: int
    spacing_ms: float
    claimed_mono: float


def flight_of(row: Mapping[str, Any], lease: Lease, dialect: Dialect, provider: str, references: References) -> Flight:
    """The flight of a claimed row with the submit_sm of every part that no carrier has accepted yet.

    Raises smpp.text.TextError or TextMissing where the row cannot be put on the wire.
    """
    before: Mapping[str, Any] = row["parts"] or {}
    pdus, reference = _pdus(row, dialect, references)
    accepted = {part for part in before.get("accepted", ()) if part <= len(pdus)}
    return Flight(
        day=row["day"],
        id=row["id"],
        slot=row["slot"],
        provider=provider,
        class_name=row["class"],
        recipient=row["recipient"],
        is_retry=row["attempts_spent"] > 0,
        deadline_at=row["expires_at"] if row["submit_begun"] else row["submit_by"],
        expires_at=row["expires_at"],
        queued_at=lease.queued_at,
        claimed_mono=lease.claimed_mono,
        spacing_s=lease.spacing_ms / 1000,
        pdus=[(part, pdu) for part, pdu in enumerate(pdus, 1) if part not in accepted],
        parts_total=len(pdus),
        reference=reference,
        accepted=accepted,
    )


def broken_flight(row: Mapping[str, Any], lease: Lease, provider: str, fault: str) -> Flight:
    """A flight that ends at once: its row cannot be put on the wire, `fault` says why."""
    flight = Flight(
        day=row["day"],
        id=row["id"],
        slot=row["slot"],
        provider=provider,
        class_name=row["class"],
        recipient=row["recipient"],
        is_retry=row["attempts_spent"] > 0,
        deadline_at=row["submit_by"],
        expires_at=row["expires_at"],
        queued_at=lease.queued_at,
        claimed_mono=lease.claimed_mono,
        spacing_s=0.0,
        pdus=[],
        parts_total=max(1, row["segments"]),
    )
    flight.reject_itself(fault)
    return flight


def validity_period(kind: str, now_at: int, expires_at: int, timezone: str = "UTC") -> str:
    """What is left to `expires_at`, in whole seconds rounded down, as the dialect writes it (SMPP 3.4, 7.1.1).

    The absolute form is local time of the carrier's `timezone` (IANA name) with its distance from UTC in quarters.
    """
    if kind == "omit":
        return ""
    left_s = max(1, (expires_at - now_at) // 1000)
    if kind == "absolute":
        return _absolute(now_at // 1000 + left_s, timezone)
    minutes, seconds = divmod(left_s, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days > _DAYS_MAX:
        days, hours, minutes, seconds = _DAYS_MAX, 0, 0, 0
    return f"0000{days:02d}{hours:02d}{minutes:02d}{seconds:02d}000R"


def _absolute(at_s: int, timezone: str) -> str:
    moment = datetime.fromtimestamp(at_s, UTC if timezone == "UTC" else ZoneInfo(timezone))
    offset_s = int((moment.utcoffset() or timedelta()).total_seconds())
    quarters, rest_s = divmod(abs(offset_s), _QUARTER_S)
    if rest_s or quarters > _QUARTERS_MAX:  # 7.1.1.1 cannot say it: UTC is the same instant
        moment, quarters = moment.astimezone(UTC), 0
    return f"{moment:%y%m%d%H%M%S}0{quarters:02d}{'-' if offset_s < 0 and quarters else '+'}"


def sender_kind(sender: str) -> str:
    """international, alphanumeric, short_code or numeric (a longer row of digits): what decides the type of number."""
    if sender.startswith("+"):
        return "international"
    if not sender.isdecimal():
        return "alphanumeric"
    return "short_code" if len(sender) <= _SHORT_CODE_DIGITS_MAX else "numeric"


def numbering(dialect: Dialect, kind: str) -> tuple[int, int]:
    """(TON, NPI) of a kind of address; the dialect's `address` may say otherwise."""
    ton, npi = _PLANS[kind]
    own = dialect.address.get(kind)
    return (ton, npi) if own is None else (own.get("ton", ton), own.get("npi", npi))


def address(dialect: Dialect, kind: str, number: str) -> str:
    """An address as the carrier wants it: digits only, or with the plus sign where the dialect says so."""
    return number if dialect.address.get(kind, {}).get("plus") else number.removeprefix("+")


def _segments(row: Mapping[str, Any], dialect: Dialect, references: References) -> tuple[list[Segment], int | None]:
    """The segments and what joins them; a reference stays with its message, for parts may have left under it."""
    if row["body"] is None:
        raise TextMissing
    text = bytes(row["body"]).decode()
    reference: int | None = (row["parts"] or {}).get("reference")
    if reference is None and row["segments"] > 1:
        reference = references.take(row["recipient"], made_at(row["id"]))
    segments = segment(text, row["encoding"], dialect.carriage, reference=reference or 0)
    if reference is None and len(segments) > 1:  # whole at another carrier, parted at this one
        reference = references.take(row["recipient"], made_at(row["id"]))
        segments = segment(text, row["encoding"], dialect.carriage, reference=reference)
    return segments, reference


def _pdus(row: Mapping[str, Any], dialect: Dialect, references: References) -> tuple[list[SubmitSm], int | None]:
    segments, reference = _segments(row, dialect, references)
    sender: str = row["sender"]
    kind = sender_kind(sender)
    source_ton, source_npi = numbering(dialect, kind)
    dest_ton, dest_npi = numbering(dialect, "destination")
    tlvs = _message_tlvs(row, dialect)
    registered = _REGISTERED[dialect.register]
    pdus = [
        SubmitSm(
            service_type=dialect.service_type,
            source_addr_ton=source_ton,
            source_addr_npi=source_npi,
            source_addr=address(dialect, kind, sender),
            dest_addr_ton=dest_ton,
            dest_addr_npi=dest_npi,
            destination_addr=address(dialect, "destination", row["recipient"]),
            esm_class=part.esm_class | dialect.esm_class,
            registered_delivery=registered,
            data_coding=part.data_coding,
            short_message=part.short_message,
            tlvs=part.tlvs + tlvs,
        )
        for part in segments
    ]
    return pdus, reference


def _message_tlvs(row: Mapping[str, Any], dialect: Dialect) -> tuple[tuple[int, bytes], ...]:
    asked: Mapping[str, Any] = (row["extras"] or {}).get("tlvs") or {}
    tlvs = [
        (dialect.tlvs[name].tag, octets_of(dialect.tlvs[name], value))
        for name, value in sorted(asked.items())
        if name in dialect.tlvs
    ]
    own = _own_reference(row["id"], dialect.own_reference)
    return tuple(tlvs) if own is None else (*tlvs, own)


def _own_reference(message_id: UUID, kind: str) -> tuple[int, bytes] | None:
    if kind == "none":
        return None
    if kind == "user_message_reference":
        return _TAG_USER_MESSAGE_REFERENCE, (message_id.int & 0xFFFF).to_bytes(2, "big")
    return int(kind.removeprefix("tlv:"), 0), message_id.hex.encode()
