"""Parts joined are the text; every part decodes alone; gsm0338 agrees with the alphabet octet by octet."""

from __future__ import annotations

import gsm0338
from hypothesis import given, settings
from hypothesis import strategies as st

from smpp.text import Carriage, decode, gsm, measure, segment, split_header

GSM_TEXT = st.text(alphabet=sorted(gsm.ALPHABET), max_size=700)
ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=400)
WAYS = st.sampled_from(["udh8", "udh16", "sar", "payload"])


def joined(text: str, encoding: str, long_messages: str, default_alphabet: str) -> str:
    parts = segment(text, encoding, Carriage(long_messages, default_alphabet), reference=7)
    out = []
    for part in parts:
        body = split_header(part.short_message, part.esm_class).body or dict(part.tlvs).get(0x0424, b"")
        assert len(part.short_message) <= (160 if part.data_coding == 0 else 140)
        piece = decode(body, part.data_coding, default_alphabet)
        assert "\ufffd" not in piece or "\ufffd" in text
        out.append(piece)
    return "".join(out)


@settings(deadline=None)
@given(GSM_TEXT, WAYS, st.sampled_from(["gsm7", "latin1", "ascii"]))
def test_gsm_text_comes_back(text: str, long_messages: str, default_alphabet: str) -> None:
    assert joined(text, "auto", long_messages, default_alphabet) == text


@settings(deadline=None)
@given(ANY_TEXT, WAYS)
def test_any_text_comes_back(text: str, long_messages: str) -> None:
    assert joined(text, "auto", long_messages, "gsm7") == text


@settings(deadline=None)
@given(ANY_TEXT | GSM_TEXT, st.sampled_from(["udh8", "udh16", "sar"]), st.sampled_from(["gsm7", "latin1", "ascii"]))
def test_the_measure_is_what_leaves(text: str, long_messages: str, default_alphabet: str) -> None:
    carriage = Carriage(long_messages, default_alphabet)
    measured = measure(text, carriage=carriage)
    assert measured.segments == len(segment(text, measured.encoding, carriage, reference=1))


@settings(deadline=None)
@given(GSM_TEXT)
def test_the_alphabet_agrees_with_another_implementation(text: str) -> None:
    oracle = gsm0338.Codec()
    expected, _ = oracle.encode(text)
    assert gsm.encode(text) == bytes(expected)
    assert gsm.septets(text) == len(expected)
