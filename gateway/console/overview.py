"""The first page: is every class in time, what comes and goes, what is wrong now."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
from starlette.responses import Response
from starlette.routing import Route

from gateway import figures
from gateway.console.findings import find, stands_still
from gateway.console.history import History, out_per_s
from gateway.console.visit import GUARDS, Site, Visit, page
from gateway.ledger import pauses
from gateway.operators.look import look

RATES = (
    ("admitted", figures.ADMITTED),
    ("sent", figures.SENT),
    ("refused", figures.REFUSED),
    ("expired", figures.EXPIRED),
)
_BLOCKERS_SHOWN = 12
_EXPIRING_S = 60
_AWAY = {"refuse": "door refuses", "defer": "door defers"}


def routes(site: Site) -> list[Route]:
    """The overview and what its charts are drawn from."""
    return [
        page(site, "/console", _overview),
        page(site, "/console/series", _series),
    ]


async def _overview(visit: Visit) -> Response:
    rt = visit.desk.rt
    status = await look(rt.pool, rt.scheduler, rt.policies.current, rt.clock.now_at())
    async with rt.pool.acquire() as conn:
        standing = await pauses.list_pauses(conn)
    history = visit.desk.history
    return visit.show(
        "overview.html",
        status=status,
        findings=find(status, history.now, standing, expiring(status["classes"], history)),
        classes={name: shown_class(name, one, history) for name, one in status["classes"].items()},
        providers={name: _provider(name, one, status, history) for name, one in status["providers"].items()},
        blockers=_blockers(status),
        since_at=history.since_at,
    )


async def _series(visit: Visit) -> Response:
    policy = visit.desk.rt.policies.current
    drawn = visit.desk.history.series(policy.classes)
    drawn["budgets"] = {
        name: {"budget_s": rules.wait_budget_ms / 1000, "door_share": rules.door_share}
        for name, rules in policy.classes.items()
    }
    return Response(orjson.dumps(drawn), media_type="application/json", headers=GUARDS)


def shown_class(name: str, one: dict[str, Any], history: History) -> dict[str, Any]:
    """A class with its rates of the last quarter of a minute and how much of its budget is used.

    That is the oldest's age or the wait of the next one, whichever is longer: the door looks at both.
    """
    age_ms = one["queue_age_ms"]
    door = one["door"]
    predicted_ms = None if door is None else door["predicted_wait_ms"]
    used = None if age_ms is None else max(age_ms, predicted_ms or 0) / one["wait_budget_ms"]
    verdict, tone = "in time", "good"
    if used is None:
        verdict, tone = "not known", "warn"
    elif name in expiring((name,), history):
        verdict, tone = "expires unsent", "bad"
    elif age_ms > one["wait_budget_ms"]:
        verdict, tone = "resends wait", "warn"
    elif door is not None and door["verdict"] in _AWAY:
        verdict, tone = _AWAY[door["verdict"]], "warn"
    elif age_ms > one["door_limit_ms"]:
        verdict, tone = "door closed", "warn"
    rates = {label: history.rate_per_s(f"{key}/{name}") for label, key in RATES}
    reasons = sorted(history.total(f"{figures.REFUSED}/{name}").items(), key=lambda item: -item[1])[:3]
    return one | {
        "predicted_ms": predicted_ms,
        "used": used,
        "verdict": verdict,
        "tone": tone,
        "rates": rates,
        "reasons": reasons,
    }


def expiring(classes: Iterable[str], history: History) -> set[str]:
    """Classes of which accepted messages ended within the last minute because their wait budget was over."""
    return {name for name in classes if history.rate_per_s(f"{figures.EXPIRED}/{name}/wait_budget", _EXPIRING_S)}


def _blockers(status: dict[str, Any]) -> list[dict[str, Any]] | None:
    """What holds most, by class; None where the index does not answer."""
    if not status["index_answers"]:
        return None
    return [one | {"still": stands_still(status, one["scope"])} for one in status["blockers"][:_BLOCKERS_SHOWN]]


def _provider(name: str, one: dict[str, Any], status: dict[str, Any], history: History) -> dict[str, Any]:
    states = [status["sessions"][session]["state"] for session in one["sessions"]]
    return one | {
        "bound": states.count("bound"),
        "out_per_s": out_per_s(history, one["sessions"]),
        "coverage": history.now.get(f"{figures.COVERAGE}/{name}"),
        "delivered": history.now.get(f"{figures.DELIVERED}/{name}"),
    }
