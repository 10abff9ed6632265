"""The strip and the sentences of a message's life."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.console.story import WIDTH, draw, tell

AT = 1_900_000_000_000


def event(at: str, kind: str, cause: str | None = None) -> dict[str, Any]:
    return {"at": f"2030-03-17T17:46:{at}Z", "type": kind, "cause": cause}


def message(*events: dict[str, Any], final: bool = True) -> dict[str, Any]:
    return {
        "status": "delivered",
        "final": final,
        "events": list(events),
        "submit_by": "2030-03-17T17:46:50.000Z",
        "expires_at": "2030-03-17T18:46:40.000Z",
    }


LIFE = message(
    event("40.000", "accepted"),
    event("40.120", "claimed", "a1"),
    event("40.122", "submitted", "carrier-a"),
    event("40.300", "refused", "0x00000058"),
    event("52.300", "claimed", "a1"),
    event("52.301", "submitted", "carrier-a"),
    event("55.000", "receipt", "delivered"),
)


def test_the_strip_is_full_ordered_and_log_scaled() -> None:
    picture = draw(LIFE, AT)
    assert [phase.kind for phase in picture.phases] == ["waiting", "sending", "network", "held", "sending", "network"]
    assert picture.phases[-1].x + picture.phases[-1].width == pytest.approx(WIDTH, abs=0.1)
    assert all(a.x < b.x for a, b in zip(picture.phases, picture.phases[1:], strict=False))
    held = picture.phases[3]
    assert (held.ms, held.width > picture.phases[1].width) == (12_000, True)
    (pin,) = picture.pins
    assert pin.words == "submit by"
    assert held.x < pin.x < held.x + held.width


def test_an_open_message_goes_on_until_now() -> None:
    waiting = message(event("40.000", "accepted"), final=False)
    (phase,) = draw(waiting, AT + 9_000).phases
    assert (phase.ms, phase.width) == (9_000, WIDTH)


def test_events_become_sentences_with_the_time_between() -> None:
    told = tell(LIFE, {"ended": {"reason": "The handset has it.", "code": "delivered"}})
    assert told["headline"] == "The handset has it."
    assert [one["gap_ms"] for one in told["events"]] == [None, 120, 2, 178, 12_000, 1, 2_699]
    assert told["events"][3]["words"] == "The carrier refused this try: ESME_RTHROTTLED 0x58: too many requests."
    assert told["events"][1]["words"] == "Claimed for session a1."
    assert [one["tone"] for one in told["events"]][-1] == "good"


@pytest.mark.parametrize(
    ("waits", "words"),
    [
        ({"scope": "route", "name": "it-main", "tokens_missing": 1.5}, "limit of route it-main; 1.5 segments"),
        ({"scope": "paused", "name": "spring-sale", "tokens_missing": None}, "pause by hand: spring-sale"),
        ({"scope": "retry", "name": "0x00000014", "tokens_missing": None}, "ESME_RMSGQFUL"),
        ({"scope": "answer", "name": None, "tokens_missing": None}, "has not answered yet"),
        (None, "on its way"),
    ],
)
def test_what_it_waits_for_in_words(waits: dict[str, Any] | None, words: str) -> None:
    assert words in tell(LIFE, {"ended": None, "waiting_for": waits})["headline"]
