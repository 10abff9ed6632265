"""Stop and start words as carriers read them, and whose number a handset wrote to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.domain.keywords import Ownership, fold, keyword_of, own_number, owner_of
from gateway.policy.rules.parse import read_policy

POLICY = read_policy(
    """
tenants:
  acme: {inbound_numbers: ["+393330000001", "60070"]}
  beta: {inbound_numbers: ["+447700900123", "60071"]}
providers:
  a: {sessions: {a1: {host: 127.0.0.1, port: 2775, system_id: a, password: b, bind: transceiver}}}
routes:
  main: {match: {}, provider: a}
"""
)


@pytest.mark.parametrize(
    "text",
    [
        "STOP",
        "stop",
        " Stop. ",
        "\tSTOP!\r\n",
        "¡STOP!",
        "“stop”",
        "S T O P",
        "Stop all",
        "STOP-ALL",
        "ARRÊT",
        "arret",
        "ＳＴＯＰ",
        "STOP STOP",
        "Stop!!\nstop. STOP",
        "stop, unsubscribe",
        "STOP 🛑",
        "S.T.O.P",
        "STOP\u200b\0",
    ],
)
def test_a_stop_word_is_the_whole_text(text: str) -> None:
    assert keyword_of(text, POLICY.inbound) == "stop"


@pytest.mark.parametrize("text", ["START", "unstop", " start. ", "start START"])
def test_a_start_word(text: str) -> None:
    assert keyword_of(text, POLICY.inbound) == "start"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "...",
        "please stop",
        "stop it",
        "STOPPED",
        "STO",
        "non stop",
        "1STOP",
        "STOP" + " " * 200 + "STOP",
        "STOP START",
        "start stop",
        "stop stop it",
        "🛑",
    ],
)
def test_other_texts_are_no_words(text: str) -> None:
    assert keyword_of(text, POLICY.inbound) is None


@pytest.mark.parametrize(
    ("word", "same", "other"),
    [
        ("หยุด", ("หยุด!", " หยุด "), ("หยด", "หยุ", "หยูด")),  # Thai: stop, and a drop
        ("बंद", ("बंद।", "“बंद”"), ("बद", "बंदा", "बांद")),
        ("বন্ধ", ("বন্ধ",), ("বনধ",)),
        ("ストップ", ("ｽﾄｯﾌﾟ", "ストップ。"), ("スドップ", "ストッブ")),
        ("停止", ("停止。", "停\u3000止"), ("停",)),
        ("정지", ("정지", "\u110c\u1165\u11bc\u110c\u1175"), ("정치",)),
        ("إيقاف", ("ايقاف", "إِيقَاف"), ("إيقا",)),  # with vowel points and without
        ("СТОП", ("стоп", "«Стоп»"), ("СТОЛ",)),
        ("İPTAL", ("iptal", "ıptal", "IPTAL", "İptal."), ("İPTA",)),
        ("UNSUBSCRIBE", ("unsubscrıbe", "UNSUBSCRİBE"), ("unsubscribed",)),
        ("STOP", ("S\u0336T\u0336O\u0336P", "STOP\ufe0f", "\ufeffst\u00adop", "ⓢⓣⓞⓟ", "𝐒𝐓𝐎𝐏"), ("ST0P",)),
        ("ΔΙΑΚΟΠΗ", ("διακοπή", "Διακοπή;"), ("διακοπές",)),
    ],
)
def test_a_word_of_any_script_is_that_word_alone(word: str, same: tuple[str, ...], other: tuple[str, ...]) -> None:
    """Accents fold away; where marks are vowels another mark is another word, and nobody who wrote it opted out."""
    rules = replace(POLICY.inbound, stop_words=(word,), start_words=())
    assert [keyword_of(text, rules) for text in (word, *same)] == ["stop"] * (1 + len(same))
    assert [keyword_of(text, rules) for text in other] == [None] * len(other)


def test_folding_keeps_letters_of_any_script_and_digits() -> None:
    assert fold("Отписка, 7!") == "ОТПИСКА7"
    assert fold("straße") == fold("STRASSE")


@pytest.mark.parametrize(
    ("written", "tenant", "number"),
    [
        ("+393330000001", "acme", "+393330000001"),
        ("393330000001", "acme", "+393330000001"),
        ("00393330000001", "acme", "+393330000001"),
        ("3330000001", "acme", "+393330000001"),
        ("60070", "acme", "60070"),
        ("60071", "beta", "60071"),
        ("07700900123", "beta", "+447700900123"),
    ],
)
def test_a_number_is_found_however_the_carrier_writes_it(written: str, tenant: str, number: str) -> None:
    assert owner_of(POLICY, written) == Ownership(tenant, number)


@pytest.mark.parametrize("written", ["", "ACME", "600", "0070", "60072", "+3933300000011", "0900123"])
def test_what_is_nobodys_stays_nobodys(written: str) -> None:
    assert owner_of(POLICY, written) is None


def test_a_number_is_its_tenants_only() -> None:
    assert own_number(POLICY, "acme", "393330000001") == "+393330000001"
    assert own_number(POLICY, "beta", "393330000001") is None
    assert own_number(POLICY, "acme", "ACME") is None
