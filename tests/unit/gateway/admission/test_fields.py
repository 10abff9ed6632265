"""The fields of a message: what each takes, and that every fault is told with its place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.batch import BatchRequest, all_refused, read_batch, refused_item
from gateway.admission.fields import ALONE, Place, read_message
from gateway.admission.idempotency_keys import read as read_key
from gateway.admission.instants import read as read_instant
from gateway.admission.problems import CODES, IDEMPOTENCY_MALFORMED, IDEMPOTENCY_MISSING, STORAGE, Problem

GOOD = {"to": "+447700900123", "text": "hi"}


def pointers(given: dict[str, Any], place: Place = ALONE) -> list[str]:
    return [fault.pointer for fault in read_message(given, place)[1]]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", "a\nb\r"),
        ("text", "a\fb"),
        ("text", "\u200fשלום\u200b"),
        ("text", "👨\u200d👩"),
        ("text", "."),
        ("from", "ACME"),
        ("class", "non_priority"),
        ("ttl", 1),
        ("ttl", 35 * 86_400),
        ("expires_at", "2030-01-31T09:00:00+01:00"),
        ("send_at", "2030-01-31t09:00:00.5z"),
        ("application", "spring sale/2"),
        ("client_ref", "x" * 100),
        ("metadata", {"a": ""}),
        ("metadata", {}),
        ("callback_url", "https://cb.example:8443/x?y=1"),
        ("encoding", "ucs2"),
        ("transliterate", True),
        ("max_segments", 255),
        ("tlvs", {"dlt_entity_id": "1", "n": 5}),
        ("from", None),
        ("ttl", None),
        ("metadata", None),
        ("class", None),
    ],
)
def test_what_a_field_takes(field: str, value: Any) -> None:
    assert pointers(GOOD | {field: value}) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("to", 447700900123),
        ("to", None),
        ("to", ""),
        ("to", "x" * 41),
        ("to", "+44\x007700900123"),
        ("text", None),
        ("text", 5),
        ("text", ""),
        ("text", " \n\u2003"),
        ("text", "\f\r\n"),
        ("text", "\u200b"),
        ("text", "\ufeff \u2060\u00a0"),
        ("text", "\u200e\u200f\u2066"),
        ("text", "\u2800\u3164"),
        ("text", "a\x0b"),
        ("text", "a\x00"),
        ("text", "a\x1b"),
        ("text", "a\x7f"),
        ("text", "a\x85"),
        ("text", "a\tb"),
        ("text", "\ud800"),
        ("text", "a\udfff"),
        ("from", ""),
        ("from", 5),
        ("from", "ACMEBANKINGS"),
        ("class", "vip"),
        ("class", ["otp"]),
        ("class", {}),
        ("ttl", 0),
        ("ttl", -1),
        ("ttl", "60"),
        ("ttl", 60.0),
        ("ttl", True),
        ("ttl", 35 * 86_400 + 1),
        ("expires_at", 5),
        ("expires_at", "tomorrow"),
        ("expires_at", "2030-01-31T09:00:00"),
        ("expires_at", "2030-02-30T09:00:00Z"),
        ("send_at", "2030-01-31"),
        ("send_at", "2030-01-31T09:00:60Z"),
        ("send_at", "2030-01-31T09:00:00+01:60"),
        ("send_at", "2030-01-31T09:00:00+24:00"),
        ("send_at", "٢٠٣٠-01-31T09:00:00Z"),
        ("application", ""),
        ("application", "x" * 101),
        ("application", "a\n"),
        ("client_ref", ""),
        ("client_ref", "x" * 101),
        ("client_ref", 1),
        ("metadata", []),
        ("metadata", {"a": 1}),
        ("metadata", {"": "x"}),
        ("metadata", {"a" * 41: "x"}),
        ("metadata", {"a": "x" * 201}),
        ("metadata", {str(n): "" for n in range(11)}),
        ("metadata", {"a": "\x00"}),
        ("metadata", {"\ud800": ""}),
        ("callback_url", "ftp://cb.example/"),
        ("callback_url", "https://user:pw@cb.example/"),
        ("callback_url", "https://"),
        ("callback_url", "https://cb.example/ x"),
        ("callback_url", "https://cb.example/#f"),
        ("callback_url", "https://cb.example:99999/"),
        ("callback_url", "https://[::1"),
        ("callback_url", "https://cb.example/" + "x" * 2048),
        ("callback_url", "https://çb.example/"),
        ("encoding", "latin1"),
        ("encoding", 7),
        ("transliterate", 1),
        ("transliterate", "true"),
        ("max_segments", 0),
        ("max_segments", 256),
        ("max_segments", True),
        ("max_segments", "1"),
        ("tlvs", []),
        ("tlvs", {"a b": "x"}),
        ("tlvs", {"a": "é"}),
        ("tlvs", {"a": -1}),
        ("tlvs", {"a": 2**32}),
        ("tlvs", {"a": True}),
        ("tlvs", {"a": None}),
        ("unknown", None),
        ("To", "x"),
    ],
)
def test_what_a_field_refuses(field: str, value: Any) -> None:
    assert pointers(GOOD | {field: value}) == [f"/{field}"]


def test_missing_and_excluding_fields() -> None:
    assert pointers({}) == ["/to", "/text"]
    assert pointers(GOOD | {"ttl": 1, "expires_at": "2030-01-31T09:00:00Z"}) == ["/expires_at"]


def test_pointers_are_escaped_and_placed() -> None:
    place = Place("/messages/3", frozenset({"ttl"}))
    assert pointers(GOOD | {"a/b~\n": 1, "ttl": 0}, place) == ["/messages/3/a~1b~0\ufffd", "/defaults/ttl"]


@given(
    st.dictionaries(
        st.sampled_from([*GOOD, "from", "ttl", "tlvs", "metadata", "callback_url", "send_at", "x"]),
        st.from_type(object) | st.text() | st.integers() | st.none() | st.dictionaries(st.text(), st.text()),
    )
)
def test_any_values_are_read_or_faulted(given: dict[str, Any]) -> None:
    request, faults = read_message(given, ALONE)
    assert faults or (request.to and request.text.strip())


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01 01:00:00.1239+01:00", 123),
        ("2000-02-29T00:00:00.5-00:30", 951_784_200_500),
        ("1969-12-31T23:59:59.999Z", -1),
        ("9999-12-31T23:59:59Z", 253_402_300_799_000),
        ("0000-01-01T00:00:00Z", None),
        ("2030-13-01T00:00:00Z", None),
        ("2030-01-01T24:00:00Z", None),
        ("2030-01-01T00:00:00+25:00", None),
        ("2030-01-01T00:00Z", None),
        ("20300101T000000Z", None),
        ("", None),
    ],
)
def test_instants(text: str, at: int | None) -> None:
    assert read_instant(text) == at


def test_keys() -> None:
    assert read_key("a:B_9.-") == read_key('"a:B_9.-"') == "a:B_9.-"
    assert read_key("x" * 255) == "x" * 255
    assert read_key(None) is IDEMPOTENCY_MISSING
    for wrong in ("", '""', "x" * 256, "a b", '"a', 'a"', "é", "a\n", "a,b"):
        assert read_key(wrong) is IDEMPOTENCY_MALFORMED


def test_batches() -> None:
    batch = read_batch({"defaults": {"text": "hi", "ttl": 5}, "messages": [{"to": "+447700900123", "ttl": 6}, "x"]})
    assert isinstance(batch, BatchRequest)
    request, faults, place = batch.item(0)
    assert (request.text, request.ttl_ms, faults, place.inherited) == ("hi", 6_000, [], frozenset({"text"}))
    assert [fault.pointer for fault in batch.item(1)[1]] == ["/messages/1"]


def refusal(problems: list[Problem]) -> Problem:
    return all_refused(problems, [refused_item(problem) for problem in problems])


def test_what_a_batch_without_any_accepted_is_answered() -> None:
    invalid, rate = Problem("request.invalid"), Problem("quota.daily", retry_after_s=9)
    assert refusal([invalid, invalid]).status == 422
    assert refusal([invalid, Problem("route.none")]).code == "batch.refused"
    assert (refusal([rate, rate]).status, refusal([rate, rate]).retry_after_s) == (429, 9)
    mixed = refusal([invalid, STORAGE, rate])
    assert (mixed.status, mixed.retry_after_s, mixed.code) == (503, 9, "batch.refused")
    assert len(mixed.as_object()["results"]) == 3


def test_every_problem_has_a_status_and_a_title() -> None:
    for code, (status, title) in CODES.items():
        shown = Problem(code).as_object()
        assert shown["status"] == status >= 400
        assert shown["title"] == title


@pytest.mark.parametrize(
    ("name", "meant"),
    [("body", "text"), ("Sender", "from"), ("msisdn", "to"), ("send-at", "send_at"), ("txt", "text"), ("colour", None)],
)
def test_an_unknown_field_is_told_what_it_may_have_meant(name: str, meant: str | None) -> None:
    """Names that other gateways use and slips of the pen; a name like none of ours gets no guess."""
    _, faults = read_message({"to": "+447700900123", "text": "hi", name: "x"}, Place())
    told = [fault.message for fault in faults if fault.pointer == f"/{name}"]
    assert told == ["is not a field of a message" + (f"; did you mean {meant}?" if meant else "")]
