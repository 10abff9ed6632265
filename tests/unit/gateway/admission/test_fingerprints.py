"""Same fields, same fingerprint."""

from __future__ import annotations

import pytest

from gateway.admission.fingerprints import fingerprint, fingerprint_of_batch, key_token

PEPPER = b"p" * 32
BODY = {"to": "+447700900123", "from": "60070", "text": "hi"}


@pytest.mark.parametrize(
    "same",
    [
        {"text": "hi", "from": "60070", "to": "+44 (7700) 900-123"},
        BODY | {"ttl": None},
        BODY | {"from": "600.70"},
    ],
)
def test_layout_makes_no_difference(same: dict[str, object]) -> None:
    assert fingerprint(PEPPER, same) == fingerprint(PEPPER, BODY)


@pytest.mark.parametrize(
    "other",
    [
        BODY | {"text": "hi "},
        BODY | {"ttl": 1},
        BODY | {"text": "h-i"},
        BODY | {"from": "6007"},
        BODY | {"text": "\ud800"},
        BODY | {"metadata": {"a": None}},
        [BODY],
        "x",
        None,
    ],
)
def test_other_fields_are_another_body(other: object) -> None:
    assert fingerprint(PEPPER, other) != fingerprint(PEPPER, BODY)


def test_blanks_of_a_name_count() -> None:
    assert fingerprint(PEPPER, BODY | {"from": "A B"}) != fingerprint(PEPPER, BODY | {"from": "AB"})


def test_the_pepper_counts() -> None:
    assert fingerprint(b"q" * 32, BODY) != fingerprint(PEPPER, BODY)


def test_batches() -> None:
    batch = {"messages": [BODY, {"to": "x"}]}
    assert fingerprint_of_batch(PEPPER, batch) == fingerprint_of_batch(
        PEPPER, {"messages": [dict(reversed(BODY.items())), {"to": "x"}], "defaults": {}}
    )
    assert fingerprint_of_batch(PEPPER, batch) != fingerprint_of_batch(PEPPER, {"messages": [{"to": "x"}, BODY]})
    fingerprint_of_batch(PEPPER, {"messages": 5, "defaults": 7})


def test_tokens_fit_into_64_bits_and_differ() -> None:
    tokens = {
        key_token(tenant, endpoint, key)
        for tenant in (1, 2)
        for endpoint in ("messages", "batch")
        for key in ("a", "b")
    }
    assert len(tokens) == 8
    assert all(-(2**63) <= token < 2**63 for token in tokens)
