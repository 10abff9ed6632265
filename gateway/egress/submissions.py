"""From a claimed row to its submit_sm in the provider's dialect: segments, addresses, flags, TLVs (SMPP 3.4, 4.4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID
from zlib import crc32

from gateway.egress.flights import Flight
from gateway.policy.rules.snapshot import Dialect, VendorTlv
from smpp.protocol.pdu import SubmitSm
from smpp.text import segment

_TAG_USER_MESSAGE_REFERENCE: Final = 0x0204
_REGISTERED: Final[Mapping[str, int]] = {"final": 0x01, "all": 0x11, "none": 0x00}  # 5.2.17
_DAYS_MAX: Final = 31  # the relative form has two digits of days and no agreement on longer months (7.1.1.2)
_SHORT_CODE_DIGITS_MAX: Final = 8
_COUNTERS: Final = 4096

# (TON, NPI) of section 5.2.5 and 5.2.6 by kind of sender, and of the destination.
_PLANS: Final[Mapping[str, tuple[int, int]]] = {
    "destination": (1, 1),
    "international": (1, 1),
    "alphanumeric": (5, 0),
    "short_code": (3, 0),
}


class TextMissing(ValueError):
    """The ledger holds no text that could be sent."""


class References:
    """Concatenation references, counted per destination so that two long texts to one handset never share one.

    Destinations share `_COUNTERS` counters by hash; `seed` keeps two processes from counting in step.
    """

    def __init__(self, seed: bytes) -> None:
        self._next = [int.from_bytes(seed[(2 * n) % len(seed) :][:2].ljust(2, b"\0"), "big") for n in range(_COUNTERS)]

    def take(self, recipient: str) -> int:
        """The next reference (16 bits) for this destination."""
        place = crc32(recipient.encode()) % _COUNTERS
        self._next[place] = (self._next[place] + 1) & 0xFFFF
        return self._next[place]


@dataclass(frozen=True, slots=True)
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
    reference = None
    if row["segments"] > 1:
        reference = before.get("reference")
        if reference is None:
            reference = references.take(row["recipient"])
    pdus = _pdus(row, dialect, reference or 0)
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


def validity_period(kind: str, now_at: int, expires_at: int) -> str:
    """What is left to `expires_at`, in whole seconds rounded down, as the dialect writes it (SMPP 3.4, 7.1.1)."""
    if kind == "omit":
        return ""
    left_s = max(1, (expires_at - now_at) // 1000)
    if kind == "absolute":
        moment = datetime.fromtimestamp(now_at // 1000 + left_s, UTC)
        return f"{moment:%y%m%d%H%M%S}000+"
    minutes, seconds = divmod(left_s, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days > _DAYS_MAX:
        days, hours, minutes, seconds = _DAYS_MAX, 0, 0, 0
    return f"0000{days:02d}{hours:02d}{minutes:02d}{seconds:02d}000R"


def sender_kind(sender: str) -> str:
    """international, alphanumeric or short_code: what decides the type of number."""
    if sender.startswith("+"):
        return "international"
    return "short_code" if sender.isdecimal() and len(sender) <= _SHORT_CODE_DIGITS_MAX else "alphanumeric"


def numbering(dialect: Dialect, kind: str) -> tuple[int, int]:
    """(TON, NPI) of a kind of address; the dialect's `address` may say otherwise."""
    ton, npi = _PLANS[kind]
    own = dialect.address.get(kind)
    return (ton, npi) if own is None else (own.get("ton", ton), own.get("npi", npi))


def vendor_tlv(rule: VendorTlv, value: Any) -> tuple[int, bytes]:
    """A carrier's own TLV of a message, encoded by the type that the policy names."""
    if rule.type == "c_octet":
        return rule.tag, str(value).encode() + b"\0"
    if rule.type == "octets":
        return rule.tag, str(value).encode()
    size = {"int8": 1, "int16": 2, "int32": 4}[rule.type]
    return rule.tag, int(value).to_bytes(size, "big")


def _pdus(row: Mapping[str, Any], dialect: Dialect, reference: int) -> list[SubmitSm]:
    if row["body"] is None:
        raise TextMissing
    text = bytes(row["body"]).decode()
    segments = segment(text, row["encoding"], dialect.carriage, reference=reference)
    sender: str = row["sender"]
    source_ton, source_npi = numbering(dialect, sender_kind(sender))
    dest_ton, dest_npi = numbering(dialect, "destination")
    tlvs = _message_tlvs(row, dialect)
    registered = _REGISTERED[dialect.register]
    return [
        SubmitSm(
            service_type=dialect.service_type,
            source_addr_ton=source_ton,
            source_addr_npi=source_npi,
            source_addr=sender.removeprefix("+"),
            dest_addr_ton=dest_ton,
            dest_addr_npi=dest_npi,
            destination_addr=row["recipient"].removeprefix("+"),
            esm_class=part.esm_class,
            registered_delivery=registered,
            data_coding=part.data_coding,
            short_message=part.short_message,
            tlvs=part.tlvs + tlvs,
        )
        for part in segments
    ]


def _message_tlvs(row: Mapping[str, Any], dialect: Dialect) -> tuple[tuple[int, bytes], ...]:
    asked: Mapping[str, Any] = (row["extras"] or {}).get("tlvs") or {}
    tlvs = [vendor_tlv(dialect.tlvs[name], value) for name, value in sorted(asked.items()) if name in dialect.tlvs]
    own = _own_reference(row["id"], dialect.own_reference)
    return tuple(tlvs) if own is None else (*tlvs, own)


def _own_reference(message_id: UUID, kind: str) -> tuple[int, bytes] | None:
    if kind == "none":
        return None
    if kind == "user_message_reference":
        return _TAG_USER_MESSAGE_REFERENCE, (message_id.int & 0xFFFF).to_bytes(2, "big")
    return int(kind.removeprefix("tlv:"), 0), message_id.hex.encode()
