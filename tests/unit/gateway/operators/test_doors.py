"""What the door would say now: who is asked about, and how a headline puts it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.operators.door_words import all_turned_away, turned_away
from gateway.operators.doors import ask_doors
from gateway.policy.demo import demo_policy
from gateway.policy.rules.parse import read_policy
from scheduler.core.asks import Ask, IndexReport, Verdict
from scheduler.store.scheduler import IndexUnavailable

POLICY = read_policy(demo_policy(2775), 1)
NOW_AT = 1_900_000_000_000


class Answers:
    """Stands for the scheduler: refuses what stands in `refused`: tenant (and application) and class."""

    def __init__(self, *refused: tuple[str, str], away: bool = False) -> None:
        self.refused, self.away = refused, away
        self.asked: list[Ask] = []

    async def admit(self, asks: list[Ask]) -> list[Verdict]:
        if self.away:
            raise IndexUnavailable("down")
        self.asked += asks
        return [
            Verdict(False, 0, 71_000, 5, ("route", "everywhere"), "wait", 3)
            if (whose(ask), ask.flows[0].class_name) in self.refused
            else Verdict(True, 0, 20, 5, None, None, 0)
            for ask in asks
        ]


def whose(ask: Ask) -> str:
    """`tenant` or `tenant/application`."""
    flow = ask.flows[0]
    return next(
        (one.removeprefix("application:") for one in flow.scopes if one.startswith("application:")), flow.tenant
    )


def a_report(**tenants: int) -> IndexReport:
    return IndexReport(lines={}, tenants=tenants, scopes={})


async def test_the_worst_of_the_busiest_counts_and_nothing_is_left_behind() -> None:
    answers = Answers(("busy", "transactional"))
    found = await ask_doors(answers, POLICY, a_report(busy=900, quiet=1), NOW_AT)  # type: ignore[arg-type]
    assert all(ask.probe for ask in answers.asked)
    assert set(found) == set(POLICY.classes)
    assert found["otp"]["verdict"] == "accept"
    told = found["transactional"]
    assert (told["verdict"], told["tenant"], told["scope"]["name"]) == ("refuse", "busy", "everywhere")


async def test_applications_of_the_busiest_are_asked_about_too() -> None:
    """Each has a backlog of its own: where the tenant's other messages go at once, those of one may wait for hours."""
    policy = POLICY
    tenant = next(iter(policy.tenants))
    wide = replace(policy.tenants[tenant], applications={f"app{n}": None for n in range(9)})
    policy = replace(policy, tenants={**policy.tenants, tenant: wide})
    answers = Answers((f"{tenant}/app3", "marketing"))
    told = (await ask_doors(answers, policy, a_report(**{tenant: 9}), NOW_AT))["marketing"]  # type: ignore[arg-type]
    assert (told["verdict"], told["tenant"], told["application"]) == ("refuse", tenant, "app3")
    quiet = Answers((f"{tenant}/app3", "marketing"))
    assert (await ask_doors(quiet, policy, a_report(), NOW_AT))["marketing"]["verdict"] == "accept"  # type: ignore[arg-type]


async def test_without_anybody_waiting_every_class_is_asked_about_once() -> None:
    answers = Answers()
    assert set(await ask_doors(answers, POLICY, a_report(), NOW_AT)) == set(POLICY.classes)  # type: ignore[arg-type]
    assert len(answers.asked) == len(POLICY.classes) * len(POLICY.routes)
    assert await ask_doors(Answers(away=True), POLICY, a_report(), NOW_AT) == {}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "the door refuses otp: predicted wait 71 s, door limit 60 s, held by route everywhere"),
        ({"verdict": "defer", "predicted_wait_ms": 9_000_000}, "the door defers otp: predicted wait 2.5 h, door limit"),
        ({"cause": "age"}, "nothing goes out, or too little, held by route everywhere"),
        ({"cause": "storage", "scope": None}, "the queue is being rebuilt"),
        ({"verdict": "slow_down"}, None),
        ({"verdict": "accept"}, None),
    ],
)
def test_a_headline(change: dict[str, Any], words: str | None) -> None:
    door = {
        "verdict": "refuse", "predicted_wait_ms": 71_000, "cause": "wait", "tenant": "a", "route": "everywhere",
        "scope": {"kind": "route", "name": "everywhere"},
    }  # fmt: skip
    told = turned_away("otp", {"door_limit_ms": 60_000, "wait_budget_ms": 120_000, "door": door | change})
    assert told is None if words is None else words in str(told)
    assert turned_away("otp", {"door": None}) is None


def test_a_headline_names_every_class_that_has_the_same_reason() -> None:
    def of(cause: str, verdict: str = "refuse") -> dict[str, Any]:
        door = {"verdict": verdict, "cause": cause, "scope": {"kind": "provider", "name": "a"}, "predicted_wait_ms": 1}
        return {"door_limit_ms": 60_000, "door": door}

    away = of("paused")
    assert all_turned_away({"otp": away, "transactional": away, "marketing": of("x", "accept")}) == (
        "the door refuses otp and transactional: provider a is paused or away"
    )
    assert str(all_turned_away({"otp": away, "marketing": of("wait", "defer")})).endswith("away (1 more)")
    assert all_turned_away({"otp": {"door": None}}) is None
