"""Receipts on their way to an ESME, and the PDU that a dialect makes of one (SMPP 3.4 appendix B, section 5.3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from smpp.protocol.pdu import DataSm, DeliverSm, SubmitSm
from smpp.simulator.dialect import INTERMEDIATE, STATES, TEXT, Dialect, receipt_id

RECEIPTED_MESSAGE_ID: Final = 0x001E
USER_MESSAGE_REFERENCE: Final = 0x0204
NETWORK_ERROR_CODE: Final = 0x0423
MESSAGE_PAYLOAD: Final = 0x0424
MESSAGE_STATE: Final = 0x0427

_UDHI: Final = 0x40
_UCS2: Final = 0x08
_GOOD: Final = frozenset({"DELIVRD", *INTERMEDIATE})
_FORMATS: Final = {
    "yymmddhhmm": "%y%m%d%H%M",
    "yymmddhhmmss": "%y%m%d%H%M%S",
    "yyyymmddhhmm": "%Y%m%d%H%M",
    "yyyymmddhhmmss": "%Y%m%d%H%M%S",
}


@dataclass(slots=True)
class Receipt:
    """One receipt on its way to an ESME; planned at the submit, written when it is sent."""

    system_id: str
    message_id: str
    submit: SubmitSm
    submitted_at: int
    """Wall clock, UTC ms."""
    stat: str = "DELIVRD"
    """The state, as a word of appendix B; the dialect may write another."""
    tries: int = 0

    @property
    def failed(self) -> bool:
        return self.stat not in _GOOD

    @property
    def intermediate(self) -> bool:
        return self.stat in INTERMEDIATE


def asks_receipt(registered_delivery: int, failed: bool) -> bool:
    """Whether the SMSC receipt bits ask for this outcome: 1 every final state, 2 failures, 3 successes (5.2.17)."""
    wish = registered_delivery & 0x03
    return wish == 1 or (wish == 2 and failed) or (wish == 3 and not failed)


def receipt_pdu(receipt: Receipt, dialect: Dialect, done_at: int) -> DeliverSm | DataSm:
    """The receipt as this dialect writes it. `done_at` is the wall clock in UTC ms."""
    message_id = receipt_id(receipt.message_id, dialect.ids)
    text = _text(receipt, dialect, message_id, done_at)
    tlvs = _tlvs(receipt, dialect, message_id)
    if text and (dialect.payload or dialect.data_sm):
        tlvs.append((MESSAGE_PAYLOAD, text))
        text = b""
    submit = receipt.submit
    esm_class = dialect.intermediate_esm_class if receipt.intermediate else dialect.esm_class
    handset = (submit.dest_addr_ton, submit.dest_addr_npi, submit.destination_addr)
    sender = (submit.source_addr_ton, submit.source_addr_npi, submit.source_addr)
    source, destination = (handset, sender) if dialect.swapped else (sender, handset)
    if dialect.data_sm:
        return DataSm("", *source, *destination, esm_class, data_coding=dialect.data_coding, tlvs=tuple(tlvs))
    return DeliverSm(
        "", *source, *destination, esm_class, data_coding=dialect.data_coding, short_message=text, tlvs=tuple(tlvs)
    )


def _text(receipt: Receipt, dialect: Dialect, message_id: str, done_at: int) -> bytes:
    if not dialect.text:
        return b""
    stat = receipt.stat
    dlvrd = "000" if receipt.failed or receipt.intermediate else "001"
    submitted, done = date(receipt.submitted_at, dialect), date(done_at, dialect)
    word = dialect.words.get(stat, stat)
    err = dialect.errors.get(stat, "001" if receipt.failed else "000")
    beginning = _beginning(receipt.submit)
    if dialect.text is TEXT:  # the usual one, at half the cost
        text = (
            f"id:{message_id} sub:001 dlvrd:{dlvrd} submit date:{submitted} done date:{done}"
            f" stat:{word} err:{err} text:{beginning}"
        )
    else:
        text = dialect.text.format(
            id=message_id,
            sub="001",
            dlvrd=dlvrd,
            submit_date=submitted,
            done_date=done,
            stat=word,
            err=err,
            text=beginning,
        )
    octets = text.encode("utf-16-be") if dialect.data_coding == _UCS2 else text.encode("latin-1", "replace")
    return octets + b"\0" if dialect.nul else octets


def _tlvs(receipt: Receipt, dialect: Dialect, message_id: str) -> list[tuple[int, bytes]]:
    tlvs: list[tuple[int, bytes]] = []
    for name in dialect.tlvs:
        if name == "receipted_message_id":
            tlvs.append((RECEIPTED_MESSAGE_ID, message_id.encode("latin-1", "replace") + b"\0"))
        elif name == "message_state":
            tlvs.append((MESSAGE_STATE, bytes((STATES[receipt.stat],))))
        elif name == "network_error_code":
            if receipt.failed:
                tlvs.append((NETWORK_ERROR_CODE, b"\x03\x00\x01"))
        else:
            reference = receipt.submit.tlv(USER_MESSAGE_REFERENCE)
            if reference is not None:
                tlvs.append((USER_MESSAGE_REFERENCE, reference))
    tlvs += dialect.extra_tlvs
    return tlvs


def _beginning(submit: SubmitSm) -> str:
    # Carriers echo the octets as they are; where these are no letters it is of no use to anybody.
    if submit.data_coding == _UCS2 or submit.esm_class & _UDHI:
        return ""
    return submit.short_message[:20].decode("ascii", "replace")


def date(at: int, dialect: Dialect) -> str:
    """A moment in UTC ms as the dialect writes dates."""
    return _second(at // 1000, dialect.dates, dialect.timezone)


@lru_cache(maxsize=64)
def _second(second: int, dates: str, timezone: str) -> str:
    if dates == "empty":
        return ""
    if dates == "zeros":
        return "0" * 10
    if dates == "epoch":
        return str(second)
    local = datetime.fromtimestamp(second, UTC).astimezone(ZoneInfo(timezone))
    if dates == "absolute":  # section 7.1.1.1: tenths of a second, quarters of an hour ahead of or behind UTC
        offset = local.utcoffset()
        quarters = round(offset.total_seconds() / 900) if offset is not None else 0
        return f"{local:%y%m%d%H%M%S}0{abs(quarters):02d}{'-' if quarters < 0 else '+'}"
    return local.strftime(_FORMATS[dates])
