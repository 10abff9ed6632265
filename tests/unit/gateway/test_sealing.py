"""Texts at rest: what opens, what must not, and what a key looks like."""

from __future__ import annotations

import base64
from uuid import UUID

import pytest

from gateway.sealing import KeyUnreadable, SealBroken, Sealer, about_message, check_value, read_key

OLD, NEW = bytes(range(32)), bytes(range(1, 33))
ABOUT = about_message(7, UUID(int=5))


def test_a_text_opens_for_its_own_row_alone() -> None:
    sealer = Sealer({1: OLD}, 1)
    sealed = sealer.seal("ключ 4711".encode(), ABOUT)
    assert b"4711" not in sealed
    assert sealer.open(1, sealed, ABOUT).decode() == "ключ 4711"
    for about in (about_message(8, UUID(int=5)), about_message(7, UUID(int=6)), b""):
        with pytest.raises(SealBroken):
            sealer.open(1, sealed, about)


def test_every_changed_octet_is_noticed() -> None:
    sealer = Sealer({1: OLD}, 1)
    sealed = sealer.seal(b"pay 100", ABOUT)
    for at in range(len(sealed)):
        broken = sealed[:at] + bytes((sealed[at] ^ 1,)) + sealed[at + 1 :]
        with pytest.raises(SealBroken):
            sealer.open(1, broken, ABOUT)
    with pytest.raises(SealBroken):
        sealer.open(1, b"", ABOUT)


def test_the_same_text_never_looks_the_same() -> None:
    sealer = Sealer({1: OLD}, 1)
    assert len({sealer.seal(b"code", ABOUT) for _ in range(100)}) == 100


def test_earlier_keys_open_and_the_newest_seals() -> None:
    before = Sealer({1: OLD}, 1).seal(b"old", ABOUT)
    both = Sealer({1: OLD, 2: NEW}, 2)
    assert both.open(1, before, ABOUT) == b"old"
    assert both.open(2, both.seal(b"new", ABOUT), ABOUT) == b"new"
    assert both.unwrap(both.wrap(b"pdu", b"x"), b"x") == b"pdu"
    alone = Sealer({2: NEW}, 2)
    assert not alone.knows(1) and alone.knows(2) and alone.knows(0)
    with pytest.raises(SealBroken, match="data key 1"):
        alone.open(1, before, ABOUT)


def test_rows_from_before_texts_were_sealed_are_read_as_they_are() -> None:
    assert Sealer({1: OLD}, 1).open(0, b"plain", ABOUT) == b"plain"


@pytest.mark.parametrize("given", [OLD.hex(), OLD.hex().upper(), base64.b64encode(OLD).decode(), f" {OLD.hex()}\n"])
def test_a_key_is_read_in_both_forms(given: str) -> None:
    assert read_key(given) == OLD


@pytest.mark.parametrize(
    "given", ["", "secret", OLD.hex()[:-2], base64.b64encode(OLD[:31]).decode(), "zz" * 32, "é" * 44]
)
def test_what_is_no_key_is_refused_without_being_repeated(given: str) -> None:
    with pytest.raises(KeyUnreadable) as refused:
        read_key(given)
    assert "openssl rand -base64 32" in str(refused.value)
    assert not given or given not in str(refused.value)


def test_a_key_is_recognised_without_being_told() -> None:
    assert check_value(OLD) == check_value(OLD) != check_value(NEW)
    assert OLD not in check_value(OLD)


def test_a_fingerprint_recognises_and_cannot_be_found_by_trying_without_the_key() -> None:
    one, other = Sealer({1: OLD}, 1), Sealer({1: NEW}, 1)
    assert one.fingerprint(b"code 123456") == one.fingerprint(b"code 123456") != one.fingerprint(b"code 123457")
    assert one.fingerprint(b"code 123456") != other.fingerprint(b"code 123456")
