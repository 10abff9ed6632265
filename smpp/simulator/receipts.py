"""Receipts as carriers write them: the text of SMPP 3.4 appendix B, and the TLVs of section 5.3.2."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from smpp.protocol.pdu import DeliverSm, SubmitSm

RECEIPTED_MESSAGE_ID: Final = 0x001E
USER_MESSAGE_REFERENCE: Final = 0x0204
NETWORK_ERROR_CODE: Final = 0x0423
MESSAGE_PAYLOAD: Final = 0x0424
MESSAGE_STATE: Final = 0x0427

_ESM_CLASS_RECEIPT: Final = 0x04
_UDHI: Final = 0x40
_UCS2: Final = 0x08
_DELIVERED: Final = ("DELIVRD", 2, 0)
_UNDELIVERABLE: Final = ("UNDELIV", 5, 1)


@dataclass(slots=True)
class Receipt:
    """One receipt on its way to an ESME; made at the submit, written when it is sent."""

    system_id: str
    message_id: str
    submit: SubmitSm
    submitted_at: int
    """Wall clock, UTC ms."""
    failed: bool
    tries: int = 0

    @property
    def stat(self) -> str:
        return (_UNDELIVERABLE if self.failed else _DELIVERED)[0]


def asks_receipt(registered_delivery: int, failed: bool) -> bool:
    """Whether the SMSC receipt bits ask for this outcome: 1 every final state, 2 failures, 3 successes (5.2.17)."""
    wish = registered_delivery & 0x03
    return wish == 1 or (wish == 2 and failed) or (wish == 3 and not failed)


def deliver_sm(receipt: Receipt, done_at: int) -> DeliverSm:
    """The receipt as deliver_sm: addresses swapped, text and TLVs both."""
    stat, state, error = _UNDELIVERABLE if receipt.failed else _DELIVERED
    submit = receipt.submit
    text = (
        f"id:{receipt.message_id} sub:001 dlvrd:{0 if receipt.failed else 1:03d}"
        f" submit date:{_date(receipt.submitted_at)} done date:{_date(done_at)}"
        f" stat:{stat} err:{error:03d} text:{_beginning(submit)}"
    )
    tlvs = [
        (RECEIPTED_MESSAGE_ID, receipt.message_id.encode("ascii") + b"\0"),
        (MESSAGE_STATE, bytes((state,))),
    ]
    if receipt.failed:
        tlvs.append((NETWORK_ERROR_CODE, b"\x03\x00\x01"))
    reference = submit.tlv(USER_MESSAGE_REFERENCE)
    if reference is not None:
        tlvs.append((USER_MESSAGE_REFERENCE, reference))
    return DeliverSm(
        source_addr_ton=submit.dest_addr_ton,
        source_addr_npi=submit.dest_addr_npi,
        source_addr=submit.destination_addr,
        dest_addr_ton=submit.source_addr_ton,
        dest_addr_npi=submit.source_addr_npi,
        destination_addr=submit.source_addr,
        esm_class=_ESM_CLASS_RECEIPT,
        short_message=text.encode("ascii", "replace"),
        tlvs=tuple(tlvs),
    )


def _beginning(submit: SubmitSm) -> str:
    # Carriers echo the octets as they are; where these are no letters it is of no use to anybody.
    if submit.data_coding == _UCS2 or submit.esm_class & _UDHI:
        return ""
    return submit.short_message[:20].decode("ascii", "replace")


def _date(at: int) -> str:
    return _minute(at // 60_000)


@lru_cache(maxsize=16)
def _minute(minute: int) -> str:
    return datetime.fromtimestamp(minute * 60, UTC).strftime("%y%m%d%H%M")
