"""A minute of damaged PDUs: nothing but ProtocolError escapes, memory stays flat, no PDU takes 5 ms (P12)."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest

from loadtests import fuzz
from smpp.protocol.errors import ProtocolError

SECONDS = 60
SEED = 20_261_130


@pytest.mark.timeout(240)
def test_a_minute_of_damage(capsys: pytest.CaptureFixture[str]) -> None:
    tally = fuzz.run(SEED, SECONDS)
    with capsys.disabled():
        sys.stdout.write(f"\nfuzz: {tally}\n")
    assert tally.pdus > 20_000
    assert tally.read > tally.pdus / 20 and tally.refused > tally.pdus / 20, "the damage has to reach every depth"
    assert {"Requested", "Answered", "TimedOut", "PeerUnbound", "Ended"} <= set(tally.events)


def test_every_damage_changes_something() -> None:
    corpus = fuzz.seeds()
    for damage in fuzz.DAMAGES:
        rng = random.Random(1)
        changed = 0
        for _ in range(50):
            before = rng.choice(corpus)
            octets = bytearray(before)
            damage(rng, octets, corpus)
            changed += bytes(octets) != before
        assert changed > 25, damage.__name__


def test_a_case_is_made_from_its_number_alone() -> None:
    corpus = fuzz.seeds()
    once, again = (fuzz.damaged(random.Random(f"{SEED}/77"), corpus) for _ in range(2))
    assert once == again


def test_a_fault_is_found_and_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = fuzz.seeds()

    def broken(octets: bytes) -> Any:
        if len(octets) > 40:
            raise KeyError("escaped")
        raise ProtocolError("refused", 2)

    monkeypatch.setattr(fuzz, "decode", broken)
    with pytest.raises(fuzz.Finding, match=r"--seed 5 --only \d+: KeyError") as caught:
        for number in range(100):
            fuzz.run_case(5, number, corpus, fuzz.Tally(5))
    number = int(str(caught.value).split("--only ")[1].split(":")[0])
    monkeypatch.undo()
    monkeypatch.setattr(sys, "argv", ["fuzz", "--seed", "5", "--only", str(number)])
    fuzz.main()
