"""What an answer says about the session: throttling, a full queue, the carrier's fault, or the message's own."""

from __future__ import annotations

import pytest

from gateway.egress.tallies import DESTINATIONS_MAX, Tally
from smpp.protocol.status import consequence

NUMBER = "+393331234567"


@pytest.mark.parametrize(
    ("status", "good", "errors", "throttled", "full"),
    [
        (0x58, 0, 0, 1, 0),
        (0x14, 0, 0, 0, 1),
        (0x08, 0, 1, 0, 0),
        (0x64, 0, 1, 0, 0),
        (0x04, 0, 1, 0, 0),
        (0x0B, 1, 0, 0, 0),
        (0x101, 1, 0, 0, 0),
    ],
)
def test_a_refusal_counts_as_what_it_says(status: int, good: int, errors: int, throttled: int, full: int) -> None:
    tally = Tally(b"key")
    tally.refused(consequence(status), status, NUMBER)
    counts = tally.take()
    assert (counts.good, counts.errors, counts.throttled, len(counts.queue_full)) == (good, errors, throttled, full)
    assert tally.is_empty


def test_a_number_is_told_as_a_token_and_once() -> None:
    tally, other = Tally(b"key"), Tally(b"another key")
    for _ in range(3):
        tally.refused(consequence(0x14), 0x14, NUMBER)
    other.refused(consequence(0x14), 0x14, NUMBER)
    (token,) = tally.take().queue_full
    assert NUMBER.encode() not in token and len(token) == 8
    assert other.take().queue_full != {token}


def test_a_storm_of_full_queues_is_bounded_and_a_lost_report_is_told_again() -> None:
    tally = Tally(b"key")
    for n in range(10 * DESTINATIONS_MAX):
        tally.refused(consequence(0x14), 0x14, f"+3933{n:08d}")
    tally.accepted()
    tally.silent()
    counts = tally.take()
    assert len(counts.queue_full) == DESTINATIONS_MAX
    tally.put_back(counts)
    assert tally.take() == counts
