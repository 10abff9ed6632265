"""Parts joined are the text; every part decodes alone; gsm0338 agrees with the alphabet octet by octet."""

from __future__ import annotations

from dataclasses import replace

import gsm0338
from hypothesis import given, settings
from hypothesis import strategies as st

from smpp.text import Carriage, decode, gsm, measure, preview, segment, split_header
from smpp.text.forms import DEFAULT_ALPHABETS, GSM7, NATIONAL_SHIFTS, UCS2, Form
from smpp.text.graphemes import is_boundary
from smpp.text.segmentation import _ends

GSM_TEXT = st.text(alphabet=sorted(gsm.ALPHABET), max_size=700)
# Control characters do not get past the door (`gateway.admission.fields`).
ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n\f\r"), max_size=400)
NATIONAL_TEXT = st.text(
    alphabet=sorted(gsm.table(gsm.Shift(3)).letters | gsm.table(gsm.Shift(1)).letters), max_size=700
)
CLUSTERS = st.text(alphabet="яe\u0301😀👍\U0001f3fd\u200d🇮🇹\r\n", max_size=300)
WAYS = st.sampled_from(["udh8", "udh16", "sar", "payload"])


def joined(text: str, encoding: str, carriage: Carriage) -> str:
    default_alphabet = carriage.default_alphabet
    parts = segment(text, encoding, carriage, reference=7)
    out = []
    for part in parts:
        content = split_header(part.short_message or dict(part.tlvs).get(0x0424, b""), part.esm_class)
        assert len(part.short_message) <= (160 if part.data_coding == 0 else 140)
        piece = decode(content.body, part.data_coding, default_alphabet, content.shift)
        assert "\ufffd" not in piece or "\ufffd" in text
        out.append(piece)
    return "".join(out)


CARRIAGES = st.builds(Carriage, WAYS, st.sampled_from(DEFAULT_ALPHABETS), st.sampled_from(NATIONAL_SHIFTS))


@settings(deadline=None)
@given(GSM_TEXT, WAYS, st.sampled_from(["gsm7", "latin1", "ascii"]))
def test_gsm_text_comes_back(text: str, long_messages: str, default_alphabet: str) -> None:
    assert joined(text, "auto", Carriage(long_messages, default_alphabet)) == text


@settings(deadline=None)
@given(ANY_TEXT | NATIONAL_TEXT | CLUSTERS, CARRIAGES)
def test_any_text_comes_back(text: str, carriage: Carriage) -> None:
    assert joined(text, "auto", carriage) == text
    assert "".join(part.text for part in preview(text, "auto", carriage)) == text


@settings(deadline=None)
@given(ANY_TEXT | GSM_TEXT | NATIONAL_TEXT, CARRIAGES)
def test_the_measure_is_what_leaves(text: str, carriage: Carriage) -> None:
    measured = measure(text, carriage=carriage)
    parts = preview(text, "auto", carriage)
    assert measured.segments == len(parts)
    if carriage.long_messages != "payload":
        assert measured.segments == len(segment(text, measured.encoding, carriage, reference=1))


def fewest(text: str, form: Form, cuts: list[int]) -> int:
    """The fewest parts over every choice of cuts, tried out: at most `alone` units, or each at most `udh8`."""
    if form.size(text) <= form.alone:
        return 1
    best = {0: 0}
    for end in cuts:
        reached = [best[start] + 1 for start in best if start < end and form.size(text[start:end]) <= form.udh8]
        if reached:
            best[end] = min(reached)
    return best.get(len(text), 10**6)


@settings(deadline=None)
@given(
    st.text(alphabet="ab[€", max_size=40) | st.text(alphabet="яe\u0301😀👍\U0001f3fd\u200d🇮🇹\r\n", max_size=40),
    st.integers(2, 7),
    st.integers(0, 3),
)
def test_the_fewest_parts_and_whole_clusters_among_those(text: str, limit: int, header: int) -> None:
    """Against every possible cut: no part too many, and no broken cluster where as many parts can do without."""
    base = GSM7 if gsm.fits(text) else UCS2
    form = replace(base, alone=limit + header, udh8=limit)
    ends = _ends(text, form, "udh8")
    pieces = [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    assert "".join(pieces) == text
    assert all(form.size(piece) <= (form.alone if len(ends) == 1 else limit) for piece in pieces)
    everywhere = list(range(1, len(text) + 1))
    assert len(ends) == fewest(text, form, everywhere)
    whole = [at for at in everywhere if is_boundary(text, at)]
    if fewest(text, form, whole) == len(ends):
        assert all(is_boundary(text, end) for end in ends)


@settings(deadline=None)
@given(GSM_TEXT)
def test_the_alphabet_agrees_with_another_implementation(text: str) -> None:
    oracle = gsm0338.Codec()
    expected, _ = oracle.encode(text)
    assert gsm.encode(text) == bytes(expected)
    assert gsm.septets(text) == len(expected)
