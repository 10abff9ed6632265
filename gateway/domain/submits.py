"""The submits of a message as operators see them: over which session, what the carrier answered, and its own ids.

Tenants see none of it: names of sessions and a carrier's ids are between the operators and the carrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.domain.ids import rfc3339
from gateway.domain.message import History


def submits(history: History, carrier_ids: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every claim for a submit in order; `carrier_ids` are rows with slot, part and carrier_id.

    `written_at` null: no octet of it left. `outcome` null: the answer is still to come.
    """
    named: dict[int, list[dict[str, Any]]] = {}
    for row in carrier_ids:
        named.setdefault(row["slot"], []).append({"part": row["part"], "carrier_id": row["carrier_id"]})
    return [
        {
            "slot": attempt["slot"],
            "provider": attempt["provider"],
            "session": attempt["session"],
            "claimed_at": rfc3339(attempt["claimed_at"]),
            "written_at": _instant(attempt["written_at"]),
            "outcome": attempt["outcome"],
            "outcome_at": _instant(attempt["outcome_at"]),
            "carrier_status": _status(attempt["command_status"]),
            "parts": named.get(attempt["slot"], []),
        }
        for attempt in history.attempts
        if attempt["kind"] == "submit"
    ]


def _instant(at: int | None) -> str | None:
    return None if at is None else rfc3339(at)


def _status(command_status: int | None) -> str | None:
    return None if command_status is None else f"0x{command_status & 0xFFFFFFFF:08x}"
