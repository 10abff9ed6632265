"""How many PDUs a second one core encodes and decodes, object construction included.

    python -m loadtests.codec_speed --count 100000 --rounds 5

Each line is the best of the rounds, in CPU seconds of this process, so that a busy machine changes little. The goals
are those for a 2-core machine of 2026: 300,000 encoded and 100,000 decoded submit_sm a second. smpplib is measured
beside it on the same octets.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from types import SimpleNamespace

from smpplib import consts
from smpplib import smpp as smpplib_smpp

from smpp.protocol.codec import decode, encode
from smpp.protocol.pdu import DeliverSm, DeliverSmResp, SubmitSm, SubmitSmResp

ENCODES_PER_S = 300_000
DECODES_PER_S = 100_000
_TEXT = b"Your code is 123456. It is good for ten minutes, tell it to nobody."
_RECEIPT = (
    b"id:0123456789 sub:001 dlvrd:001 submit date:2611301015 done date:2611301015 stat:DELIVRD err:000 text:Your code"
)
_PEER = SimpleNamespace(sequence=1, next_sequence=lambda: 1)


def _submit() -> SubmitSm:
    return SubmitSm(
        source_addr_ton=5,
        source_addr="ACME",
        destination_addr="447700900123",
        registered_delivery=1,
        short_message=_TEXT,
        sequence_number=7,
    )


def _receipt() -> DeliverSm:
    return DeliverSm(
        source_addr="447700900123",
        destination_addr="ACME",
        esm_class=4,
        short_message=_RECEIPT,
        tlvs=((0x001E, b"0123456789\0"), (0x0427, b"\x02"), (0x0423, b"\x03\x00\x00")),
        sequence_number=8,
    )


def _smpplib_submit() -> bytes:
    pdu = smpplib_smpp.make_pdu(
        "submit_sm",
        client=_PEER,
        source_addr_ton=consts.SMPP_TON_ALNUM,
        source_addr="ACME",
        destination_addr="447700900123",
        registered_delivery=1,
        short_message=_TEXT,
    )
    return bytes(pdu.generate())


def measures() -> dict[str, Callable[[], object]]:
    """What is measured, by name."""
    submit = encode(_submit())
    answer = encode(SubmitSmResp("0123456789", sequence_number=7))
    receipt = encode(_receipt())
    return {
        "submit_sm made and encoded": lambda: encode(_submit()),
        "submit_sm decoded": lambda: decode(submit),
        "submit_sm_resp decoded": lambda: decode(answer),
        "deliver_sm (receipt, 3 TLVs) decoded": lambda: decode(receipt),
        "deliver_sm_resp made and encoded": lambda: encode(DeliverSmResp(sequence_number=8)),
        "smpplib: submit_sm made and encoded": _smpplib_submit,
        "smpplib: submit_sm decoded": lambda: smpplib_smpp.parse_pdu(submit, client=_PEER),
    }


def per_second(call: Callable[[], object], count: int, rounds: int) -> float:
    """Calls per CPU second, the best of the rounds."""
    best_s = float("inf")
    for _ in range(rounds):
        begun_s = time.process_time()
        for _ in range(count):
            call()
        best_s = min(best_s, time.process_time() - begun_s)
    return count / best_s


def main() -> None:
    """Prints one line per measure, and whether the goals are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="PDUs per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    asked = parser.parse_args()
    figures = {
        name: round(per_second(call, max(1, asked.count // (10 if name.startswith("smpplib") else 1)), asked.rounds))
        for name, call in measures().items()
    }
    if asked.json:
        print(json.dumps(figures))
        return
    for name, figure in figures.items():
        print(f"{name:<40} {figure:>10,} per s and core")
    encoded, decoded = figures["submit_sm made and encoded"], figures["submit_sm decoded"]
    print(f"goals: encoded {encoded / ENCODES_PER_S:.2f} x, decoded {decoded / DECODES_PER_S:.2f} x")


if __name__ == "__main__":
    main()
