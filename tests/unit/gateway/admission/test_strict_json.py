"""JSON as the door takes it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.strict_json import DEPTH_MAX, Malformed, parse


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": [1, -2.5, true, null, "\\u00e8"]}', {"a": [1, -2.5, True, None, "è"]}),
        (b' "x" ', "x"),
        (b"18446744073709551615", 2**64 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b"[" * DEPTH_MAX + b"]" * DEPTH_MAX, None),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"\\ud800"', "\ud800"),
    ],
)
def test_what_is_taken(body: bytes, value: object) -> None:
    assert value is None or parse(body) == value
    parse(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{}x",
        b"{'a':1}",
        b"[1,]",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b"18446744073709551616",
        b"-9223372036854775809",
        b"9" * 5000,
        b'{"a":1,"a":2}',
        b'{"x":{"a":1,"\\u0061":1}}',
        b"\xff",
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf{}",
        b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1),
        b'{"a":' * 17 + b"1" + b"}" * 17,
        b"[" * 500_000,
        b'"\x00"',
        b'"\n"',
    ],
)
def test_what_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        parse(body)


@given(st.binary(max_size=200))
def test_any_octets_are_parsed_or_malformed(body: bytes) -> None:
    try:
        parse(body)
    except Malformed as malformed:
        assert str(malformed)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=10,
    )
)
def test_what_json_writes_is_read_back(value: object) -> None:
    assert parse(json.dumps(value).encode()) == value
