from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain import ids

INSTANTS = st.integers(min_value=0, max_value=4_102_444_800_000)


@given(INSTANTS, st.binary(min_size=10, max_size=16))
def test_an_id_keeps_its_instant_and_reads_back(at_ms: int, entropy: bytes) -> None:
    made = ids.uuid7(at_ms, entropy)
    assert made.version == 7
    assert ids.made_at(made) == at_ms
    assert ids.day_of(made) == datetime.fromtimestamp(at_ms // 1000, UTC).date()
    assert ids.read(ids.show(made)) == made


@given(INSTANTS)
def test_instants_are_shown_as_rfc3339(at_ms: int) -> None:
    shown = ids.rfc3339(at_ms)
    assert shown.endswith("Z")
    assert round(datetime.fromisoformat(shown).timestamp() * 1000) == at_ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "msg_",
        "0199",
        "msg_" + "0" * 32,  # not version 7
        "msg_" + "g" * 32,
        "msg_" + "f" * 12 + "7fff8" + "0" * 15,  # a year that no calendar has
        "MSG_01932c07000070008000000000000000",
        "msg_01932C07000070008000000000000000",
        "msg_01932c07-0000-7000-8000-000000000000",
        "msg_" + "\u0661" * 32,
    ],
)
def test_what_cannot_be_one_of_ours_is_none(text: str) -> None:
    assert ids.read(text) is None


def test_too_little_entropy_is_refused() -> None:
    with pytest.raises(ValueError, match="ten random octets"):
        ids.uuid7(0, b"short")
