"""The oracle of receipt storms can fail: every promise broken by hand is named, and only that one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loadtests.callback_sink import TakenCallback
from loadtests.receipt_oracle import EndedMessage, KeptReceipt, StormEvidence, TakenReceipt, judge_storm

GOOD = StormEvidence(
    taken=(TakenReceipt("c1", "ENROUTE"), TakenReceipt("c1", "DELIVRD"), TakenReceipt("c2", "UNDELIV")),
    kept=(
        KeptReceipt("c1", "enroute", "m1"),
        KeptReceipt("c1", "delivered", "m1"),
        KeptReceipt("c2", "undeliverable", "m2"),
    ),
    messages=(
        EndedMessage("m1", "delivered", 3, "delivered"),
        EndedMessage("m2", "undelivered", 3, "undeliverable"),
        EndedMessage("m3", "sent", 2, None),
    ),
    callbacks=(
        TakenCallback("w1", "message.delivered", "m1", 3, "delivered"),
        TakenCallback("w1", "message.delivered", "m1", 3, "delivered"),
        TakenCallback("w2", "message.undelivered", "m2", 3, "undelivered"),
    ),
    named={"c1": "m1", "c2": "m2", "c3": "m3"},
)


def test_a_good_run_has_no_violations() -> None:
    found = judge_storm(GOOD)
    assert found.violations == []
    assert (found.receipts, found.kept, found.decided, found.doubled_callbacks) == (3, 3, 2, 1)


BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("answered receipts lost", {"taken": (*GOOD.taken, TakenReceipt("c3", "ACCEPTD"))}),
    ("bound to none", {"kept": (*GOOD.kept, KeptReceipt("c3", "enroute", None))}),
    ("bound to another message", {"kept": (*GOOD.kept, KeptReceipt("c3", "enroute", "m1"))}),
    ("are not decided", {"kept": (*GOOD.kept, KeptReceipt("c3", "expired", "m3"))}),
    (
        "that no receipt says so",
        {"messages": (*GOOD.messages[:1], replace(GOOD.messages[1], status="delivered")), "callbacks": (
            *GOOD.callbacks[:2], TakenCallback("w2", "message.delivered", "m2", 3, "delivered"))},
    ),
    (
        "that are called otherwise",
        {"messages": (replace(GOOD.messages[0], status="undelivered"), *GOOD.messages[1:]), "callbacks": (
            TakenCallback("w1", "message.undelivered", "m1", 3, "undelivered"), GOOD.callbacks[2])},
    ),
    ("without a callback", {"callbacks": GOOD.callbacks[:2]}),
    ("does not tell their end", {"messages": (replace(GOOD.messages[0], version=4), *GOOD.messages[1:])}),
    ("repeated with another id", {"callbacks": (*GOOD.callbacks, replace(GOOD.callbacks[0], webhook_id="w9"))}),
    ("used for two notices", {"callbacks": (
        replace(GOOD.callbacks[0], seq=2, webhook_id="w1"), GOOD.callbacks[0], GOOD.callbacks[2])}),
]  # fmt: skip


@pytest.mark.parametrize(("words", "change"), BROKEN, ids=[words for words, _ in BROKEN])
def test_each_broken_promise_is_named(words: str, change: dict[str, Any]) -> None:
    violations = judge_storm(replace(GOOD, **change)).violations
    assert len(violations) == 1 and words in violations[0], violations
