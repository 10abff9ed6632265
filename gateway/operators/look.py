"""One look at a running gateway: processes, classes, providers, sessions, policy (contract section 1, `status`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import asyncpg

from gateway.domain.ids import rfc3339
from gateway.ledger import pauses
from gateway.operators.doors import ask_doors
from gateway.policy.rules.snapshot import Policy
from scheduler.core.asks import Blocker, IndexReport, LineReport
from scheduler.core.blockers import blockers
from scheduler.store.scheduler import IndexUnavailable, Scheduler

STALE_MS = 6_000  # three heartbeats
_FORGOTTEN_MS = 60_000
_PROCESSES = """
SELECT id, role, worker, pid, host, started_at, heartbeat_at, policy_version, policy_error, report
  FROM processes WHERE ended_at IS NULL AND heartbeat_at > $1 ORDER BY role, worker, id
"""


async def look(pool: asyncpg.Pool[Any], scheduler: Scheduler, policy: Policy, now_at: int) -> dict[str, Any]:
    """The whole status as JSON-ready values; what cannot be asked now is null, never guessed.

    Raises what PostgreSQL's client raises when it is away.
    """
    async with pool.acquire() as conn:
        rows = await conn.fetch(_PROCESSES, now_at - _FORGOTTEN_MS)
        standing = await pauses.list_pauses(conn)
    index: IndexReport | None
    try:
        index = await scheduler.report()
    except IndexUnavailable:
        index = None
    doors = await ask_doors(scheduler, policy, index, now_at) if index is not None else {}
    return {
        "at": rfc3339(now_at),
        "policy_version": policy.version,
        "processes": [_process(row, policy.version, now_at) for row in rows],
        "classes": _classes(policy, index, doors),
        "providers": _providers(policy, index),
        "sessions": _sessions(policy, rows, index),
        "routes": {
            name: {"provider": route.provider, "prefixes": list(route.prefixes), "preference": route.preference}
            for name, route in policy.routes.items()
        },
        "scopes": _scopes(index),
        "index_answers": index is not None,
        "tenants": dict(sorted(index.tenants.items(), key=lambda one: -one[1])) if index else {},
        "blockers": shown_blockers(blockers(index)) if index else [],
        "paused": [
            {"kind": one.place.kind, "name": one.place.name, "tenant": one.place.tenant, "mode": one.mode}
            for one in standing
        ],
    }


def shown_blockers(found: list[Blocker]) -> list[dict[str, Any]]:
    """What holds work, as JSON."""
    return [
        {
            "class": one.class_name,
            "scope": {"kind": one.scope[0], "name": one.scope[1]},
            "waiting": one.waiting,
            "since_ms": one.since_ms,
        }
        for one in found
    ]


def _process(row: Mapping[str, Any], version: int, now_at: int) -> dict[str, Any]:
    silent_ms = max(0, now_at - row["heartbeat_at"])
    # What stands there of a version that was refused is no fault of a process that works with the one in force.
    works = row["policy_version"] == version or row["policy_version"] is None
    error = row["policy_error"]
    if row["policy_version"] == version and not (error or "").startswith(f"{version}: "):
        error = None  # of a version that was refused: what is in force works here
    return {
        "id": row["id"],
        "role": row["role"],
        "worker": row["worker"],
        "pid": row["pid"],
        "host": row["host"],
        "healthy": silent_ms < STALE_MS and error is None and works,
        "policy_version": row["policy_version"],
        "policy_error": error,
        "started_at": rfc3339(row["started_at"]),
        "silent_ms": silent_ms,
        "not_ready": row["report"].get("not_ready"),
    }


def _classes(policy: Policy, index: IndexReport | None, doors: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {
            "weight": rules.weight,
            "wait_budget_ms": rules.wait_budget_ms,
            "door_limit_ms": int(rules.wait_budget_ms * rules.door_share),
            "door": doors.get(name),
            **_sum([line for (_, cls), line in index.lines.items() if cls == name] if index else None),
        }
        for name, rules in policy.classes.items()
    }


def _providers(policy: Policy, index: IndexReport | None) -> dict[str, Any]:
    return {
        name: {
            "rate_per_s": provider.limits.rate_per_s if provider.limits else None,
            "sessions": sorted(provider.sessions),
            "state": index.providers[name].state if index and name in index.providers else None,
            **_sum([line for (carrier, _), line in index.lines.items() if carrier == name] if index else None),
        }
        for name, provider in policy.providers.items()
    }


def _sum(lines: list[LineReport] | None) -> dict[str, Any]:
    if lines is None:
        return {"queue_depth": None, "queue_age_ms": None, "drain_per_s": None}
    return {
        "queue_depth": sum(line.depth for line in lines),
        "queue_age_ms": max((line.oldest_ms for line in lines), default=0),
        "drain_per_s": round(sum(line.drain_per_s for line in lines), 2),
    }


def _sessions(policy: Policy, rows: list[Any], index: IndexReport | None) -> dict[str, Any]:
    told: dict[str, dict[str, Any]] = {}
    for row in rows:
        for name, report in dict(row["report"].get("sessions") or {}).items():
            told[name] = {"worker": row["worker"], **(report if isinstance(report, dict) else {"state": report})}
    return {
        session.name: {
            "provider": provider.name,
            "address": f"{session.host}:{session.port}",
            "bind": session.bind,
            "window": session.window,
            "rate_per_s": session.limits.rate_per_s if session.limits else None,
            "worker": None,
            "state": "closed",
            **told.get(session.name, {}),
            "link": _link(index, session.name),
        }
        for provider in policy.providers.values()
        for session in provider.sessions.values()
    }


def _link(index: IndexReport | None, session: str) -> dict[str, Any] | None:
    """What the index makes of a session: `state` as in `LinkReport`, the share of its rate in force, since when."""
    link = index.sessions.get(session) if index is not None else None
    if link is None:
        return None
    return {
        "state": link.state,
        "rate_share": link.rate_share,
        "since_ms": link.since_ms,
        "probe_in_ms": link.probe_in_ms,
    }


def _scopes(index: IndexReport | None) -> list[dict[str, Any]]:
    if index is None:
        return []
    held = sorted(index.scopes.items(), key=lambda item: -item[1].held_ms)[:20]
    return [
        {
            "kind": kind,
            "name": name,
            "waiting": scope.waiting,
            "tokens": round(scope.tokens, 2),
            "held_ms": scope.held_ms,
            "paused": scope.paused,
        }
        for (kind, name), scope in held
    ]
