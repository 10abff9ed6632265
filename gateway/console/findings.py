"""What is wrong now, worst first, each with what to do about it (pure).

Every finding is something a person can act on at night; what is merely unusual stands on the pages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway import figures
from gateway.console.words import share, span
from gateway.domain.coverage import GOOD_RATIO
from gateway.operators.door_words import turned_away

BAD: Final = "bad"
WARN: Final = "warn"
_INBOX_OLD_S: Final = 60.0
_CALLBACKS_OLD_S: Final = 300.0
_RETRY_SHARE_HIGH: Final = 0.5
_PARTITIONS_FEW: Final = 2
# A session that has just started says this for a moment.
_YOUNG_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: `tone` is bad or warn, `page` where to look further."""

    tone: str
    title: str
    advice: str
    page: str | None = None


def find(
    status: Mapping[str, Any],
    now: Mapping[str, float],
    pauses: Iterable[Any] = (),
    expiring: Collection[str] = (),
) -> list[Finding]:
    """Everything that `look`, the gauges of the processes and the pauses by hand say is wrong, the bad first.

    `expiring` are the classes of which accepted messages ended of late because their wait budget was over.
    """
    found = [
        *_processes(status),
        *_index(status),
        *_classes(status, expiring),
        *_sessions(status),
        *_receipts(now),
        *_house(now),
        *_paused(pauses),
    ]
    return sorted(found, key=lambda one: one.tone != BAD)


def _processes(status: Mapping[str, Any]) -> Iterator[Finding]:
    roles = {one["role"] for one in status["processes"] if one["healthy"]}
    for role, loss in (
        ("api", "No message can be handed in."),
        ("egress", "Nothing leaves to carriers."),
        ("delivery", "Receipts, callbacks and deadlines stand still."),
    ):
        if role not in roles:
            yield Finding(BAD, f"No healthy {role} process", f"{loss} Look at its log, and start it.")
    for one in status["processes"]:
        name = f"{one['role']} {one['worker']}"
        if one["healthy"]:
            continue
        if one["policy_error"]:
            yield Finding(BAD, f"{name} cannot use the policy", one["policy_error"], "/console/policy")
        elif one["silent_ms"] >= _YOUNG_MS:
            advice = f"Its last heartbeat is {span(one['silent_ms'])} old: it hangs, died, or cannot reach PostgreSQL."
            yield Finding(WARN, f"{name} is silent", advice)


def _index(status: Mapping[str, Any]) -> Iterator[Finding]:
    if not status["index_answers"]:
        advice = "It is away or being rebuilt: no message is accepted or sent until it is whole again."
        yield Finding(BAD, "The queue (Valkey) does not answer", advice)


def _classes(status: Mapping[str, Any], expiring: Collection[str]) -> Iterator[Finding]:
    for name, one in status["classes"].items():
        age_ms = one["queue_age_ms"]
        if age_ms is None:
            continue
        away = turned_away(name, one)
        stuck = _stuck(status, name)
        meanwhile = (
            f"What was accepted and waits for {stuck} does not go out either; past its own deadline it expires."
            if stuck is not None
            else "What was accepted still goes out in time."
        )
        if name in expiring:
            advice = (
                f"Accepted ones reach the end of their budget, {span(one['wait_budget_ms'])}, before they were ever "
                f"submitted.{_now_turned_away(one, away)} See what holds them below."
            )
            yield Finding(BAD, f"{name} expires unsent", advice)
        elif age_ms > one["wait_budget_ms"]:
            # What was never submitted ends at its budget.
            advice = (
                f"The oldest is {span(age_ms)} old, over {span(one['wait_budget_ms'])}: it was submitted before and is "
                f"sent again until its own deadline, or its application is paused.{_now_turned_away(one, away)} "
                "See what holds it below."
            )
            yield Finding(WARN, f"{name}: resends wait longer than its budget", advice)
        elif away is not None:
            yield Finding(WARN, away[0].upper() + away[1:], f"{_now_turned_away(one, away).strip()} {meanwhile}")
        elif age_ms > one["door_limit_ms"]:
            title = f"The door is closed for {name}"
            advice = (
                f"The oldest is {span(age_ms)} old, over {span(one['door_limit_ms'])}: new ones that need the same "
                f"scope are refused with Retry-After. {meanwhile}"
            )
            yield Finding(WARN, title, advice)


def _now_turned_away(one: Mapping[str, Any], away: str | None) -> str:
    if away is None:
        return ""
    refused = one["door"]["verdict"] == "refuse"
    return " New ones are refused with Retry-After." if refused else " New ones are taken in for a later time."


def stands_still(status: Mapping[str, Any], scope: Mapping[str, str]) -> bool:
    """Whether nothing at all passes a blocker: a pause, or a carrier that is away or broken. A limit lets some pass."""
    if scope["kind"] == "provider":
        carrier = status.get("providers", {}).get(scope["name"], {})
        return carrier.get("state") not in ("up", None)
    return scope["kind"] == "paused"


def _stuck(status: Mapping[str, Any], class_name: str) -> str | None:
    """What stands still and holds messages of a class."""
    scopes = [one["scope"] for one in status.get("blockers", ()) if one["class"] == class_name]
    door = status["classes"][class_name].get("door")
    if door is not None and door["cause"] in ("paused", "age") and door["scope"] is not None:
        scopes.append(door["scope"])
    return next((f"provider {scope['name']}" for scope in scopes if stands_still(status, scope)), None)


def _sessions(status: Mapping[str, Any]) -> Iterator[Finding]:
    for name, one in status["sessions"].items():
        link = one["link"] or {}
        error = one.get("last_error")
        said = f" It says: {error}." if error else ""
        if one["state"] in ("bound", "paused", "resting", "leaving"):
            if link.get("state") in ("open", "half_open"):
                advice = f"Too many of its answers were errors; the next try is in {span(link['probe_in_ms'])}.{said}"
                yield Finding(BAD, f"The breaker of session {name} is open", advice, "/console/carriers")
            elif one["state"] == "bound" and link.get("rate_share", 1.0) < 0.5:
                advice = (
                    f"It runs at {share(link['rate_share'])} of its rate: the carrier asks for less, or it ramps up."
                )
                yield Finding(WARN, f"Session {name} is slowed down", advice, "/console/carriers")
        elif one["state"] == "refused":
            advice = f"It is not tried again by itself.{said} Put its account right, then resume it."
            yield Finding(BAD, f"The carrier refuses session {name}", advice, "/console/carriers")
        elif one["worker"] is None:
            advice = "No egress process holds it. Is one running and healthy?"
            yield Finding(BAD, f"Session {name} is held by nobody", advice, "/console/carriers")
        else:
            advice = f"{one['address']} is tried again by itself.{said}"
            yield Finding(BAD, f"Session {name} is not bound", advice, "/console/carriers")


def _receipts(now: Mapping[str, float]) -> Iterator[Finding]:
    for key, ratio in now.items():
        what, _, provider = key.partition("/")
        if what == figures.COVERAGE and ratio < GOOD_RATIO:
            advice = "Of those sent 6 to 48 hours ago. `sluicegate coverage` says by hour: missing, or unmatched?"
            yield Finding(WARN, f"Only {share(ratio)} of {provider}'s messages have a final receipt", advice)
        elif what == figures.RETRY_SHARE and ratio > _RETRY_SHARE_HIGH:
            advice = "The carrier refuses much of what it gets: see its errors."
            yield Finding(
                WARN, f"{provider}: {share(ratio)} as many retries as first tries", advice, "/console/carriers"
            )
    if now.get(figures.INBOX_AGE_S, 0.0) > _INBOX_OLD_S:
        advice = "They are kept. The delivery role is behind, or their messages are not known (coverage: unmatched)."
        yield Finding(WARN, f"Receipts wait unmerged for {span(now[figures.INBOX_AGE_S] * 1000)}", advice)
    if now.get(figures.CALLBACKS_AGE_S, 0.0) > _CALLBACKS_OLD_S:
        advice = "An endpoint of a tenant does not take its callbacks; they are tried again for days, others go on."
        yield Finding(WARN, f"A callback waits for {span(now[figures.CALLBACKS_AGE_S] * 1000)}", advice)


def _house(now: Mapping[str, float]) -> Iterator[Finding]:
    if now.get(figures.CLOCK_DOUBTFUL):
        advice = "Deadlines cannot be judged, so one-time passwords are not sent: look at NTP on the machines."
        yield Finding(BAD, "Clocks disagree", advice)
    if now.get(figures.PARTITIONS, 99.0) < _PARTITIONS_FEW:
        advice = "The delivery role makes them ahead: look at its log before midnight UTC."
        yield Finding(BAD, "There are no partitions for tomorrow", advice)


def _paused(pauses: Iterable[Any]) -> Iterator[Finding]:
    for one in pauses:
        verb = "is draining" if one.mode == "drain" else "is paused"
        name = one.place.name if one.place.tenant is None else f"{one.place.tenant}/{one.place.name}"
        page = "/console/tenants" if one.place.tenant is not None else "/console/carriers"
        yield Finding(WARN, f"{one.place.kind.capitalize()} {name} {verb} by hand", f"By {one.paused_by}.", page)
