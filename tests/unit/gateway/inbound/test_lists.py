"""Stop lists as people save them: what can be read is taken, what cannot is told, and no row is swallowed."""

from __future__ import annotations

import random

import pytest

from gateway.inbound.lists import ListUnreadable, read_rows, rows_of
from gateway.policy.rules.parse import read_policy

POLICY = read_policy(
    "tenants: {acme: {inbound_numbers: ['60070'], senders: {'60070': {}}}}\n"
    "providers: {a: {sessions: {a1: {host: h, port: 1, system_id: a, password: b, bind: transceiver}}}}\n"
    "routes: {main: {match: {}, provider: a}}\n"
)
ONE, TWO = "+447700900123", "+447700900124"


def read(source: bytes) -> list[tuple[int, tuple[str, str] | None]]:
    return [(row.line, row.entry) for row in read_rows(rows_of(source), POLICY, "acme")]


@pytest.mark.parametrize(
    ("source", "entries"),
    [
        (f"\ufeffnumber,sender\r\n{ONE},\r\n".encode(), [(ONE, "")]),
        (f'"Number";"Sender"\n"{ONE}";"60070"\n'.encode(), [(ONE, "60070")]),
        (f"number\r{ONE}\r{TWO}\r".encode(), [(ONE, ""), (TWO, "")]),
        (f"name,number\nJosé,{ONE}\n".encode(), [(ONE, "")]),
        (f'name,number\n"a\nb",{ONE}\n'.encode(), [(ONE, "")]),
        (f"number,sender,,,\n{ONE},,,,\n".encode(), [(ONE, "")]),
        (f"\n\nnumber,sender\n{ONE},60070\n".encode(), [(ONE, "60070")]),
        (f"{ONE};60070\n".encode(), [(ONE, "60070")]),
        (f"{ONE}\t60070\r\n{TWO}\t\r\n".encode(), [(ONE, "60070"), (TWO, "")]),
        (f"sender\tnumber\n60070\t{ONE}\n".encode(), [(ONE, "60070")]),
        (f"\ufeffsep=;\r\nsender;number\r\n60070;{ONE}\r\n".encode(), [(ONE, "60070")]),
        (f"SEP=,\n{ONE},60070\n".encode(), [(ONE, "60070")]),
        (f"sep=\t\r{ONE}\t\r".encode(), [(ONE, "")]),
        (f'number\n"{ONE}\n"\n{TWO}\n'.encode(), [(ONE, ""), (TWO, "")]),
    ],
)  # fmt: skip
def test_what_spreadsheets_write_is_read(source: bytes, entries: list[tuple[str, str]]) -> None:
    assert [entry for _, entry in read(source)] == entries


def test_a_line_that_declares_the_separator_counts_and_is_no_number_anywhere_else() -> None:
    assert read(f"sep=;\n{ONE};\nnone;\n".encode()) == [(2, (ONE, "")), (3, None)]
    assert read(f"number\nsep=,\n{ONE}\n".encode()) == [(2, None), (3, (ONE, ""))]
    assert read(f"sep=|\n{ONE}\n".encode()) == [(1, None), (2, (ONE, ""))]


@pytest.mark.parametrize(
    "source",
    [
        f"number\n{ONE}\n".encode("utf-16"),
        f"name,number\nJosé,{ONE}\n".encode("latin-1"),
        b"number\n\xed\xa0\x80\n",
        b"number\n\xc0\x80\n",
        b"number\n+44\0\n",
        b'number\n"' + b"x" * 200_000 + b'"\n',
        f'number\n"{ONE}\n{TWO}\n'.encode(),  # a quotation mark that nobody closed
        f'number\n"{ONE}\n"{TWO}"\n{ONE}\n'.encode(),
        f'name,number\n"Jo,{ONE}\nMo,{TWO}\n'.encode(),
    ],
)
def test_what_would_be_read_wrongly_is_refused_as_a_whole(source: bytes) -> None:
    with pytest.raises(ListUnreadable) as told:
        read(source)
    assert ONE[1:] not in str(told.value)


@pytest.mark.parametrize(
    "cell",
    ["3.93331E+11", "'" + ONE, "+44\u00a07700900123", "\u202a" + ONE, "+\uff14\uff14", "=cmd|x", ONE[1:], "0" + ONE],
)  # fmt: skip
def test_what_is_no_number_is_a_fault_of_its_line_alone(cell: str) -> None:
    assert read(f"number\n{cell}\n{ONE}\n".encode()) == [(2, None), (3, (ONE, ""))]


def test_no_damage_swallows_rows_in_silence() -> None:
    """Octets changed at random: each of the thousand numbers is an entry, or a fault of its line, or all is refused."""
    whole = b"number,sender\n" + b"".join(b"+4477009%05d,60070\n" % n for n in range(1_000))
    for seed in range(150):
        chance = random.Random(seed)
        damaged = bytearray(whole)
        for _ in range(chance.choice([1, 2, 5])):
            damaged[chance.randrange(14, len(damaged))] = chance.choice(b'",;\n\r\x00\xffA0')
        try:
            rows = read(bytes(damaged))
        except ListUnreadable:
            continue
        assert len(rows) >= 990, seed
