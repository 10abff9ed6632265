"""Policies of the scenarios, as an operator writes them."""

from __future__ import annotations

import json
from typing import Any

SESSION: dict[str, Any] = {"host": "smsc.example", "system_id": "sim", "password": "env:SIM_PASSWORD", "window": 200}


def limit(rate_per_s: float, burst: int) -> dict[str, Any]:
    """A limit."""
    return {"rate_per_s": rate_per_s, "burst": burst}


def policy(**sections: Any) -> str:
    """A policy file (JSON is YAML): one carrier `p` with session `s1` behind route `main`, unless said otherwise."""
    whole: dict[str, Any] = {
        "tenant_defaults": {"limits": None, "requests": limit(1_000_000, 1_000_000)},
        "providers": {"p": {"sessions": {"s1": dict(SESSION)}}},
        "routes": {"main": {"match": {}, "provider": "p"}},
    }
    whole.update(sections)
    return json.dumps(whole)


def provider(rate_per_s: float | None, burst: int = 50, sessions: int = 1, **session: Any) -> dict[str, Any]:
    """A carrier with a limit of its own and sessions `s1`, `s2` ..."""
    found: dict[str, Any] = {"sessions": {f"s{n}": {**SESSION, **session} for n in range(1, sessions + 1)}}
    if rate_per_s is not None:
        found["limits"] = limit(rate_per_s, burst)
    return found
