"""What a handset's deliver_sm or data_sm holds: octets, coding, and where a part of a long message belongs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Final

from phonenumbers import COUNTRY_CODE_TO_REGION_CODE

from gateway.admission import numbering
from gateway.domain.joining import Coding
from gateway.domain.keywords import digits_of
from gateway.policy.rules.snapshot import Policy
from scheduler.core.values import valueclass
from smpp.protocol import commands
from smpp.protocol.codec import decode as decode_pdu
from smpp.protocol.errors import ProtocolError
from smpp.protocol.pdu import DataSm, DeliverSm
from smpp.text.gsm import NO_SHIFT
from smpp.text.reading import Concatenation, decode, split_header
from smpp.text.segmentation import PARTS_MAX

_PAYLOAD: Final = 0x0424
_SAR_REFERENCE, _SAR_TOTAL, _SAR_NUMBER = 0x020C, 0x020E, 0x020F
_SAR_OCTETS_MAX: Final = 4
_HEADER_OCTETS: Final = 16
# Networks of Mexico still write the mark of mobile numbers that was given up in 2019; no message can be sent to it.
_MEXICAN_MOBILE: Final = re.compile(r"(?:00)?521(\d{10})", re.ASCII)
_INTERNATIONAL, _NATIONAL = 1, 2  # type of number (SMPP 3.4, 5.2.5)


@valueclass
class Read:
    """A PDU taken apart; `place` is None for a text that is whole, `source_ton` the type of the handset's number."""

    octets: bytes
    coding: Coding
    place: Concatenation | None
    source_ton: int = _INTERNATIONAL


def read_part(body: bytes, *, data_sm: bool) -> Read:
    """A PDU's body as the inbox keeps it (without its header). What cannot be read is an empty text, never an error."""
    command = commands.DATA_SM if data_sm else commands.DELIVER_SM
    words = (_HEADER_OCTETS + len(body), command, 0, 1)
    try:
        pdu = decode_pdu(b"".join(word.to_bytes(4, "big") for word in words) + body)
    except ProtocolError:
        return Read(b"", (0, NO_SHIFT), None)
    if not isinstance(pdu, (DeliverSm, DataSm)):
        return Read(b"", (0, NO_SHIFT), None)
    written = pdu.short_message if isinstance(pdu, DeliverSm) else b""
    content = split_header(written or pdu.tlv(_PAYLOAD) or b"", pdu.esm_class)
    place = content.concatenation or _by_sar(pdu)
    within = place if place is not None and place.total > 1 else None
    return Read(content.body, (pdu.data_coding, content.shift), within, pdu.source_addr_ton)


def decoder_of(policy: Policy, provider: str) -> Callable[[bytes, Coding], str]:
    """How this provider's octets become text: the default alphabet is its dialect's."""
    carrier = policy.providers.get(provider)
    alphabet = carrier.dialect.default_alphabet if carrier is not None else "gsm7"

    def read(octets: bytes, coding: Coding) -> str:
        return decode(octets, coding[0], alphabet, coding[1])

    return read


def handset_number(written: str, ton: int, own_number: str) -> str:
    """The handset's number in E.164 form, as messages to it are addressed; as it came where it cannot be one.

    A national number is one of the country of the number that it wrote to.
    """
    digits = digits_of(written)
    if not digits or any(letter.isalpha() for letter in written):
        return written
    if (mexican := _MEXICAN_MOBILE.fullmatch(digits)) is not None:
        digits = "52" + mexican.group(1)
    international = numbering.normalise("+" + digits.removeprefix("00"))
    national = _national(digits, own_number)
    first, second = (national, international) if ton == _NATIONAL else (international, national)
    return first or second or written


def _national(digits: str, own_number: str) -> str | None:
    if not own_number.startswith("+"):
        return None
    for length in (1, 2, 3):
        code = own_number[1 : 1 + length]
        if int(code) in COUNTRY_CODE_TO_REGION_CODE:
            return numbering.normalise(f"+{code}{digits.lstrip('0')}")
    return None


def join_key(sender: str, recipient: str, place: Concatenation) -> bytes:
    """What the parts of one long message share."""
    named = f"{len(sender)}:{sender}{len(recipient)}:{recipient}{place.reference}/{place.total}"
    return hashlib.sha256(named.encode()).digest()[:16]


def _by_sar(pdu: DeliverSm | DataSm) -> Concatenation | None:
    """Parting by optional parameters (SMPP 3.4, 5.3.2.22 to 5.3.2.24); a wrong number counts as none.

    Carriers write the reference in one octet, and total and number in two: what counts is the number.
    """
    written = (pdu.tlv(_SAR_REFERENCE), pdu.tlv(_SAR_TOTAL), pdu.tlv(_SAR_NUMBER))
    if not all(value and len(value) <= _SAR_OCTETS_MAX for value in written):
        return None
    reference, total, number = (int.from_bytes(value or b"", "big") for value in written)
    return Concatenation(reference, total, number) if 1 <= number <= total <= PARTS_MAX else None
