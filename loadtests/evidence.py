"""Collects what every side of a run wrote down, for the oracle."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import orjson

from loadtests.callback_sink import CallbackSink
from loadtests.oracle import FINAL, CarrierSubmit, Evidence, Kill, LedgerAttempt, LedgerMessage
from loadtests.traffic import ClientJournal
from loadtests.world import World

CALLED_WITHIN_S = 60.0  # after the last end; a callback is tried again after one second at first

_OPEN = """
SELECT (SELECT count(*) FROM messages WHERE status <> ALL ($1::text[]))
     + (SELECT count(*) FROM attempts WHERE outcome IS NULL)
"""
_OUTBOX = "SELECT count(*) FROM outbox"
_CLAIMED = "SELECT count(*) FROM attempts WHERE outcome IS NULL"
_IN_DOUBT = "SELECT client_ref FROM messages WHERE status = 'unconfirmed' OR error ->> 'code' = 'outcome_unknown'"
_TAIL_OCTETS = 1 << 18  # about two seconds of a busy journal
_ENDED = "SELECT id FROM messages WHERE status = ANY ($1::text[])"
_MESSAGES = """
SELECT id, client_ref, status, error, possible_duplicate, expires_at, sweep_at, class, created_at FROM messages
"""
_ATTEMPTS = """
SELECT a.id, a.claimed_at, a.outcome, a.outcome_at, p.pid
  FROM attempts a LEFT JOIN processes p ON p.id = a.owner_id WHERE a.kind = 'submit' ORDER BY a.id, a.slot
"""


async def settle(world: World, timeout_s: float) -> bool:
    """Wait until every message has its end, no claim is open and receipts have resolved the doubts that they can."""
    end_mono = time.monotonic() + timeout_s
    ledger = await world.ledger()
    try:
        done = sorted(FINAL | {"unconfirmed"})
        while await ledger.fetchval(_OPEN, done) > 0 or await _resolvable(world, ledger):
            if time.monotonic() > end_mono:
                return False
            await asyncio.sleep(0.25)
    finally:
        await ledger.close()
    return True


async def _resolvable(world: World, ledger: asyncpg.Connection) -> bool:
    """Whether the carrier has a message of whose fate we are in doubt: it has sent a receipt for it."""
    doubtful = {row["client_ref"] for row in await ledger.fetch(_IN_DOUBT)}
    return bool(doubtful) and any(submit.client_ref in doubtful for submit in read_journal(world.journal_path))


async def claimed(world: World) -> int:
    """Claims without an outcome at this moment."""
    ledger = await world.ledger()
    try:
        return int(await ledger.fetchval(_CLAIMED))
    finally:
        await ledger.close()


async def outbox_rows(world: World) -> int:
    """Batches that are committed and not yet in the index, at this moment."""
    ledger = await world.ledger()
    try:
        return int(await ledger.fetchval(_OUTBOX))
    finally:
        await ledger.close()


async def told(world: World, sink: CallbackSink, timeout_s: float) -> frozenset[str]:
    """Waits until the endpoint was told of every end, or no longer; the ids it was told."""
    end_mono = time.monotonic() + timeout_s
    ledger = await world.ledger()
    try:
        ended = {f"msg_{row['id'].hex}" for row in await ledger.fetch(_ENDED, sorted(FINAL))}
    finally:
        await ledger.close()
    while not ended <= (called := {one.message for one in sink.taken}) and time.monotonic() < end_mono:
        await asyncio.sleep(0.25)
    return frozenset(called)


async def collect(
    world: World, client: ClientJournal, kills: Sequence[Kill], called: frozenset[str] | None = None
) -> Evidence:
    """Everything that is known of a run; `called`: what the endpoint was told."""
    ledger = await world.ledger()
    try:
        messages = [
            LedgerMessage(
                id=f"msg_{r['id'].hex}",
                client_ref=r["client_ref"],
                status=r["status"],
                error_code=json.loads(r["error"])["code"] if r["error"] else None,
                possible_duplicate=r["possible_duplicate"],
                expires_at=r["expires_at"],
                sweep_at=r["sweep_at"],
                traffic_class=r["class"],
                created_at=r["created_at"],
            )
            for r in await ledger.fetch(_MESSAGES)
        ]
        attempts = [
            LedgerAttempt(f"msg_{r['id'].hex}", r["claimed_at"], r["outcome"], r["outcome_at"], r["pid"] or 0)
            for r in await ledger.fetch(_ATTEMPTS)
        ]
    finally:
        await ledger.close()
    await asyncio.sleep(0.2)  # the carrier writes its journal in small batches
    return Evidence(
        accepted=client.accepted,
        messages=messages,
        attempts=attempts,
        submits=read_journal(world.journal_path),
        kills=kills,
        refused=frozenset(client.refused),
        contradicted=client.contradicted,
        called=called,
        hurried=frozenset(client.hurried),
        window_guarded=any(name == "window_max" for name, _ in world.shape.carrier),
        has_heirs=world.shape.egress + world.shape.strays > 1,
    )


def read_journal(path: Path) -> list[CarrierSubmit]:
    """The carrier's journal: every submit_sm it saw."""
    found = []
    for line in path.read_text().splitlines():
        entry: dict[str, Any] = orjson.loads(line)
        if entry.get("event") == "submit":
            found.append(CarrierSubmit(entry["body_prefix"].split(" ", 1)[0], entry["at"], entry["status"]))
    return found


def submits_per_s(path: Path, within_s: float = 1.0) -> float:
    """How many submit_sm the carrier saw per second during the last `within_s`, from the end of its journal."""
    with path.open("rb") as journal:
        journal.seek(max(0, path.stat().st_size - _TAIL_OCTETS))
        lines = journal.read().split(b"\n")[1:-1]  # the first may be cut, the last may not be whole yet
    since_at = time.time() * 1000 - within_s * 1000
    found = 0
    for line in reversed(lines):
        if b'"event":"submit"' in line:
            if orjson.loads(line)["at"] < since_at:
                break
            found += 1
    return found / within_s


def longest_gap_s(submits: Sequence[CarrierSubmit]) -> float:
    """The longest time in which the carrier saw no submit_sm."""
    return max((later.at - one.at for one, later in itertools.pairwise(submits)), default=0) / 1000


def binds_since(path: Path, since_at: int) -> int:
    """How many binds the carrier accepted after a moment (UTC ms)."""
    entries = [json.loads(line) for line in path.read_text().splitlines() if '"event":"bind"' in line]
    return sum(1 for entry in entries if entry["status"] == 0 and entry["at"] >= since_at)
