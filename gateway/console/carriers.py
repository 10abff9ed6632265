"""Providers, sessions and routes: how each fares, and the buttons that hold or let go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response
from starlette.routing import Route

from gateway import figures
from gateway.console.findings import find
from gateway.console.history import STEP_MS, STEPS, History, out_per_s
from gateway.console.visit import Handler, Site, Visit, act, page, refused
from gateway.ledger import pauses
from gateway.ledger.pauses import DRAIN, PAUSE, PROVIDER, ROUTE, SESSION, Pause, Place
from gateway.operators import holding
from gateway.operators.look import look

_ERRORS_SHOWN: Final = 3
_SECTIONS: Final = {SESSION: "sessions", PROVIDER: "providers", ROUTE: "routes"}
_THROTTLE: Final = "throttle"
_GOOD: Final = "accepted"
_DID: Final = {
    PAUSE: "{kind} {name} is paused: nothing more leaves over it until it is resumed.",
    DRAIN: "{kind} {name} is draining: what it awaits an answer for comes in first, then it unbinds.",
    holding.RESUME: "{kind} {name} goes on.",
}


def routes(site: Site) -> list[Route]:
    """The page and its buttons."""
    forms = [
        act(site, f"/console/{section}/{{name}}/{mode}", _acted(kind, mode))
        for kind, section in _SECTIONS.items()
        for mode in (*holding.modes(kind), holding.RESUME)
    ]
    return [page(site, "/console/carriers", _carriers), *forms]


async def _carriers(visit: Visit) -> Response:
    rt, history = visit.desk.rt, visit.desk.history
    status = await look(rt.pool, rt.scheduler, rt.policies.current, rt.clock.now_at())
    async with rt.pool.acquire() as conn:
        standing = await pauses.list_pauses(conn)
    held = {(one.place.kind, one.place.name): one for one in standing if one.place.tenant is None}
    providers = {
        name: one
        | {
            "pause": held.get((PROVIDER, name)),
            "out_per_s": out_per_s(history, one["sessions"]),
            "round_trip": _round_trip(history, name),
            "errors": _errors(history, name),
            "retry_share": history.now.get(f"{figures.RETRY_SHARE}/{name}"),
            "shown_sessions": {
                session: shown_session(session, status["sessions"][session], history, held.get((SESSION, session)))
                for session in one["sessions"]
            },
        }
        for name, one in status["providers"].items()
    }
    ways = {name: one | {"pause": held.get((ROUTE, name))} for name, one in status["routes"].items()}
    found = [one for one in find(status, history.now, standing) if one.page == "/console/carriers"]
    return visit.show("carriers.html", status=status, providers=providers, ways=ways, findings=found)


def shown_session(name: str, one: Mapping[str, Any], history: History, pause: Pause | None) -> dict[str, Any]:
    """A session with what its last minutes were like; `tone` says whether somebody should look."""
    link = one["link"] or {}
    state, tone = one["state"], "good" if one["state"] == "bound" else "bad"
    if pause is not None or state in ("paused", "leaving", "connecting"):
        tone = "warn"
    if link.get("state") in ("open", "half_open"):
        state, tone = "breaker open", "bad"
    answers = history.total(f"{figures.ANSWERS}/{name}")
    return {
        **one,
        "shown_state": state,
        "tone": tone,
        "pause": pause,
        "used": one.get("used"),
        "rate": one.get("rate"),
        "limit_now": one.get("limit"),
        "rate_share": link.get("rate_share"),
        "throttled": answers.get(_THROTTLE, 0.0),
        "answered": sum(answers.values()),
        "reconnects": history.total(f"{figures.RECONNECTS}").get(name, 0.0),
        "round_trip_ms": one.get("round_trip_ms"),
        "last_error": one.get("last_error"),
    }


def _round_trip(history: History, provider: str) -> tuple[float, int] | None:
    """The mean (ms) over the last minute, or where that had no answer over the ring, and the minutes of either."""
    for over_s, minutes in ((60, 1), (STEPS * STEP_MS // 1000, STEPS * STEP_MS // 60_000)):
        trips = history.rate_per_s(f"{figures.ROUND_TRIPS}/{provider}", over_s)
        spent_s = history.rate_per_s(f"{figures.ROUND_TRIP_S}/{provider}", over_s)
        if trips and spent_s is not None:
            return spent_s / trips * 1000, minutes
    return None


def _errors(history: History, provider: str) -> list[tuple[str, float]]:
    found = history.total(f"{figures.CARRIER_ERRORS}/{provider}")
    return sorted(found.items(), key=lambda item: -item[1])[:_ERRORS_SHOWN]


def _acted(kind: str, mode: str) -> Handler:
    async def answer(visit: Visit) -> Response:
        place = Place(kind, visit.request.path_params["name"])
        rt = visit.desk.rt
        if mode == holding.RESUME:
            done = await holding.let_go(rt, place, visit.actor)
        else:
            done = await holding.hold(rt, place, mode, visit.actor)
        if not done:
            advice = "The policy may have changed meanwhile. Nothing was done."
            return refused(visit.site, visit.request, 404, f"There is no {kind} of this name", advice)
        return visit.done("/console/carriers", _DID[mode].format(kind=kind.capitalize(), name=place.name))

    return answer
