"""Puts together, after a run, when each message reached each hop: client, ledger, carrier and callback sink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson

from loadtests.callback_sink import TakenCallback
from loadtests.hops import Course
from loadtests.traffic import ClientJournal
from loadtests.world import World

_MESSAGES: Final = """
SELECT m.id, m.client_ref, m.created_at, a.claimed_at, a.written_at, a.outcome_at, r.merged_at
  FROM messages m
  LEFT JOIN LATERAL (SELECT claimed_at, written_at, outcome_at FROM attempts
                      WHERE day = m.day AND id = m.id AND kind = 'submit' ORDER BY slot LIMIT 1) a ON true
  LEFT JOIN LATERAL (SELECT min(merged_at) AS merged_at FROM receipts WHERE message_id = m.id) r ON true
"""


async def courses(world: World, client: ClientJournal, taken: Sequence[TakenCallback]) -> list[Course]:
    """One course per message of the ledger: its first attempt, its first receipt, its first callback."""
    ledger = await world.ledger()
    try:
        rows = await ledger.fetch(_MESSAGES)
    finally:
        await ledger.close()
    submits, sent_at, taken_at = _carried(world)
    called_at: dict[str, int] = {}
    for one in taken:
        called_at.setdefault(one.message, one.at)
    found = []
    for row in rows:
        ref = row["client_ref"]
        submit_at, carrier_id = submits.get(ref, (None, ""))
        found.append(
            Course(
                asked_at=client.asked_at.get(ref),
                created_at=row["created_at"],
                answered_at=client.answered_at.get(ref),
                claimed_at=row["claimed_at"],
                written_at=row["written_at"],
                carrier_answered_at=None if submit_at is None else submit_at + world.shape.answer_delay_ms,
                outcome_at=row["outcome_at"],
                receipt_sent_at=sent_at.get(carrier_id),
                receipt_taken_at=taken_at.get(carrier_id),
                receipt_merged_at=row["merged_at"],
                called_at=called_at.get(f"msg_{row['id'].hex}"),
            )
        )
    return found


def _carried(world: World) -> tuple[dict[str, tuple[int, str]], dict[str, int], dict[str, int]]:
    """The carrier's part: (instant, its id) of the first submit by reference; receipts sent and taken by its id."""
    submits: dict[str, tuple[int, str]] = {}
    sent_at: dict[str, int] = {}
    taken_at: dict[str, int] = {}
    for entry in _entries(world):
        match entry["event"]:
            case "submit":
                submits.setdefault(entry["body_prefix"].split(" ", 1)[0], (entry["at"], entry["message_id"] or ""))
            case "receipt":
                sent_at.setdefault(entry["message_id"], entry["at"])
            case "receipt_taken":
                taken_at.setdefault(entry["message_id"], entry["at"])
    return submits, sent_at, taken_at


def _entries(world: World) -> Iterator[dict[str, Any]]:
    for line in world.journal_path.read_bytes().splitlines():
        if line.endswith(b"}"):
            yield orjson.loads(line)
