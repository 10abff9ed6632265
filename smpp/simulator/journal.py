"""The carrier's journal: one JSON line per event, for oracles that compare what was accepted with what arrived.

It is written for tests and load runs and holds numbers and the beginning of texts; a gateway never writes one.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from smpp.protocol.pdu import SubmitSm
from smpp.simulator.receipts import MESSAGE_PAYLOAD, USER_MESSAGE_REFERENCE
from smpp.text import decode, split_header

FLUSH_S: Final = 0.05
PREFIX_CHARACTERS: Final = 40

_SAR: Final = (0x020C, 0x020E, 0x020F)


class Journal:
    """Appends to a file; lines reach it within FLUSH_S, or at `close`."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("ab", buffering=0)  # noqa: SIM115 - closed by close()
        self._lines: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None

    def write(self, event: str, **members: Any) -> None:
        """One line; `t_ns` is the monotonic clock, `at` the wall clock in ms UTC."""
        line = {"t_ns": time.monotonic_ns(), "at": time.time_ns() // 1_000_000, "event": event, **members}
        self._lines.append(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self.flush)

    def flush(self) -> None:
        """Hands the lines to the operating system."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._lines:
            self._file.write(b"".join(self._lines))
            self._lines.clear()

    def close(self) -> None:
        self.flush()
        self._file.close()


def submit_members(pdu: SubmitSm) -> Mapping[str, Any]:
    """What the journal tells of a submit_sm: addresses, coding, digest and beginning of the body, its part."""
    content = split_header(pdu.short_message, pdu.esm_class)
    part = content.concatenation
    sar = [pdu.tlv(tag) for tag in _SAR]
    reference = pdu.tlv(USER_MESSAGE_REFERENCE)
    return {
        "sequence": pdu.sequence_number,
        "source": pdu.source_addr,
        "destination": pdu.destination_addr,
        "esm_class": pdu.esm_class,
        "data_coding": pdu.data_coding,
        "registered_delivery": pdu.registered_delivery,
        "validity_period": pdu.validity_period,
        "body_sha": hashlib.sha256(body_octets(pdu)).hexdigest(),
        "body_prefix": text_prefix(pdu, PREFIX_CHARACTERS),
        "part": [part.reference, part.number, part.total] if part is not None else None,
        "sar": [int.from_bytes(sar[0], "big"), int.from_bytes(sar[2], "big"), int.from_bytes(sar[1], "big")]
        if sar[0] is not None and sar[1] is not None and sar[2] is not None
        else None,
        "user_message_reference": int.from_bytes(reference, "big") if reference is not None else None,
    }


def text_prefix(pdu: SubmitSm, characters: int) -> str:
    """The first characters of the text, from short_message or message_payload; what cannot be read is replaced."""
    if not pdu.short_message:
        return decode(body_octets(pdu)[: 2 * characters], pdu.data_coding)[:characters]
    content = split_header(pdu.short_message, pdu.esm_class)
    return decode(content.body[: 2 * characters], pdu.data_coding, "gsm7", content.shift)[:characters]


def body_octets(pdu: SubmitSm) -> bytes:
    """short_message, or message_payload where that is empty."""
    return pdu.short_message or pdu.tlv(MESSAGE_PAYLOAD) or b""
