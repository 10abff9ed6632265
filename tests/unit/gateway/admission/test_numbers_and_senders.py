"""Numbers and senders as tenants write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission import numbering, senders


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("+447700900123", "+447700900123"),
        ("+44 7700-900.123", "+447700900123"),
        ("+44 (7700) [900123]", "+447700900123"),
        ("+393331234567", "+393331234567"),
        ("+15551234567", "+15551234567"),
        ("+88213123456", "+88213123456"),  # shared by no country
        ("447700900123", None),
        ("00447700900123", None),
        ("+44(0)7700900123", None),  # the national 0 is not part of the number
        ("+49 (0)151 12345678", None),  # as long as a number may be, and another one with it
        ("+49 [ 0 ] 151 12345678", None),
        ("+49 (0151) 2345678", "+4901512345678"),
        ("+4477009", None),
        ("+1234567890123456", None),
        ("+0447700900123", None),
        ("++447700900123", None),
        ("+44+7700900123", None),
        ("+44\t7700900123", None),
        ("+44\u00a07700900123", None),
        ("+\u0664\u0664\u0667\u0667\u0660\u0660\u0669\u0660\u0660\u0661\u0662\u0663", None),
        ("+４４７７００９００１２３", None),
        ("+999123456789", None),
        ("+44770090abc1", None),
        ("+", None),
        ("", None),
    ],
)
def test_numbers(text: str, number: str | None) -> None:
    assert numbering.normalise(text) == number


def test_00_stands_for_plus_only_where_allowed() -> None:
    assert numbering.normalise("0044 7700 900123", accept_00_prefix=True) == "+447700900123"
    assert numbering.normalise("+0044 7700 900123", accept_00_prefix=True) is None
    assert numbering.normalise("011447700900123", accept_00_prefix=True) is None


@given(st.text(max_size=40))
def test_any_text_is_a_number_or_not(text: str) -> None:
    number = numbering.normalise(text, accept_00_prefix=True)
    assert number is None or (number.isascii() and number[0] == "+" and number[1:].isdigit())
    if number is not None:
        assert numbering.normalise(number) == number


@pytest.mark.parametrize(
    ("text", "sender", "kind"),
    [
        ("ACME", "ACME", senders.ALPHANUMERIC),
        ("A & B_c-d.1", "A & B_c-d.1", senders.ALPHANUMERIC),
        ("ACMEBANKING", "ACMEBANKING", senders.ALPHANUMERIC),
        ("60070", "60070", senders.NUMERIC),
        ("123", "123", senders.NUMERIC),
        ("123456789012345", "123456789012345", senders.NUMERIC),
        ("+44 7700 900123", "+447700900123", senders.INTERNATIONAL),
        ("ACMEBANKINGS", None, ""),
        ("ÄCME", None, ""),
        ("ACME!", None, ""),
        (" ACME", None, ""),
        ("ACME ", None, ""),
        ("", None, ""),
        ("  ", None, ""),
        ("12", None, ""),
        ("1234567890123456", None, ""),
        ("+12", None, ""),
        ("--", None, ""),
        ("A\x00B", None, ""),
        ("\u0661\u0662\u0663", None, ""),
    ],
)
def test_senders(text: str, sender: str | None, kind: str) -> None:
    assert senders.normalise(text) == sender
    if sender is not None:
        assert senders.kind_of(sender) == kind


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("07700 900123", "must begin with + and the country code, such as"),
        ("447700900124", "must begin with + and the country code, such as"),
        ("00447700900123", "not with 00"),
        ("+447700900123,+447700900124", "must be one number"),
        ("+4477009OO123", "must be one number"),
        ("call me", "must be one number"),
        ("+49 (0)151 12345678", "leave it out"),
        ("\u200e+447700900123", "(U+200E), which may not show"),
        ("+44\u00a07700\u2011900123", "(U+00A0)"),
        ("+1\ufe0d-555-123-4567", "(U+FE0D)"),
        ("\uff0b447700900123", "(U+FF0B)"),
        ("+\u0664\u0664\u0667700900123", "digits of another script"),
        ("+44 (0) 7700 900123", "leave it out"),
        ("+999123456789", "no known country code"),
        ("+4477009001234", "too few or too many digits"),
    ],
)
def test_a_wrong_number_is_told_what_to_write(text: str, said: str) -> None:
    """A newcomer writes numbers as at home: the answer says what is missing and never repeats the number."""
    assert numbering.normalise(text) is None
    told = numbering.fault_of(text)
    assert said in told
    assert text not in told
