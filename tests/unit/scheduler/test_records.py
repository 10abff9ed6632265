"""References, flows and batches."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.names import escape, join, scope_pair, split, unescape
from scheduler.core.records import (
    REFERENCE_SIZE,
    BatchMalformed,
    Entry,
    Flow,
    Reference,
    pack_batch,
    retry_key,
    unpack_batch,
)

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
references = st.builds(
    Reference,
    id=st.binary(min_size=16, max_size=16),
    slot=st.integers(0, 2**32 - 1),
    segments=st.integers(1, 255),
    deadline_at=st.integers(0, 2**48 - 1),
    queued_at=st.integers(0, 2**48 - 1),
    number=st.binary(min_size=8, max_size=8),
)
kinds = st.sampled_from(["tenant", "application", "sender", "destination", "number", "route", "provider"])
flows = st.builds(
    Flow,
    provider=names,
    class_name=names,
    tenant=names,
    scopes=st.lists(st.builds("{}:{}".format, kinds, names), max_size=5, unique=True).map(tuple),
    ttl_band=st.integers(0, 30),
)
entries = st.builds(Entry, flow=flows, reference=references, front=st.booleans(), retry=st.booleans())


@given(references)
def test_a_reference_is_42_octets_and_comes_back(reference: Reference) -> None:
    packed = reference.pack()
    assert len(packed) == REFERENCE_SIZE == 42
    assert Reference.unpack(packed) == reference


@given(st.lists(entries, max_size=12))
def test_a_batch_comes_back_in_order(batch: list[Entry]) -> None:
    assert unpack_batch(pack_batch(batch)) == batch


@given(st.binary(max_size=200))
def test_octets_that_are_no_batch_are_told(octets: bytes) -> None:
    try:
        found = unpack_batch(octets)
    except BatchMalformed:
        return
    assert unpack_batch(pack_batch(found)) == found


@given(st.lists(entries, min_size=1, max_size=3), st.data())
def test_a_cut_batch_is_told(batch: list[Entry], data: st.DataObject) -> None:
    packed = pack_batch(batch)
    with pytest.raises(BatchMalformed):
        unpack_batch(packed[: data.draw(st.integers(0, len(packed) - 1))])


@given(names, names)
def test_escaped_names_are_distinct_and_hold_no_separator(one: str, other: str) -> None:
    assert unescape(escape(one)) == one
    assert (escape(one) == escape(other)) == (one == other)
    assert not set("| \n\0").intersection(escape(one))
    assert split(join(one, other)) == [one, other]


@given(flows)
def test_a_flow_key_comes_back_and_retries_wait_apart(one: Flow) -> None:
    assert Flow.parse(one.key) == one
    assert Flow.parse(retry_key(one)) == one
    assert retry_key(one) != one.key


def test_scopes_stand_in_the_order_of_kinds() -> None:
    one = Flow("p", "otp", "a", ("provider:p", "route:r", "tenant:a"), 5)
    other = Flow("p", "otp", "a", ("tenant:a", "provider:p", "route:r"), 5)
    assert one == other and one.key == other.key == "p|otp|5|a|tenant:a|route:r|provider:p"
    assert scope_pair("sender:a/b:c") == ("sender", "a/b:c")


@pytest.mark.parametrize(
    "fields",
    [
        {"id": b"short"},
        {"number": b"short"},
        {"segments": 0},
        {"segments": 256},
        {"deadline_at": 2**48},
        {"queued_at": -1},
    ],
)
def test_impossible_references_do_not_exist(fields: dict[str, object]) -> None:
    whole: dict[str, object] = {"id": bytes(16), "slot": 0, "segments": 1, "deadline_at": 1, "queued_at": 1}
    with pytest.raises(ValueError):
        Reference(**{**whole, **fields})  # type: ignore[arg-type]


def test_an_empty_name_and_another_version_are_told() -> None:
    with pytest.raises(ValueError, match="empty"):
        escape("")
    with pytest.raises(BatchMalformed):
        unpack_batch(struct.pack(">BI", 9, 0))
