"""P8 on PostgreSQL, sampled: orders of up to five receipts around the answer and the cut-off end the same."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any
from uuid import UUID

from gateway.domain import outcomes
from gateway.domain.ids import day_of
from gateway.ledger.merges import merge_batch
from gateway.ledger.outcomes import Bench, Closing, store_accepted
from gateway.ledger.sweeps import cut_receipts_off
from tests.integration.delivery.world import World

KINDS = (
    ("enroute", 1_000),
    ("accepted", 2_000),
    ("undeliverable", 3_000),
    ("delivered", 5_000),
    ("delivered", 4_000),
    ("expired", 3_000),
    ("unknown", 6_000),
)
ANSWER, CUT_OFF = "answer", "cut-off"
SETS, ORDERS = 12, 10


def _sequences(dice: random.Random) -> list[tuple[frozenset[int], list[Any]]]:
    """Some sets of receipts, each in several orders with repeats; answer anywhere, cut-off perhaps, after it."""
    found: list[tuple[frozenset[int], list[Any]]] = []
    for _ in range(SETS):
        words = dice.sample(range(len(KINDS)), dice.randint(1, 5))
        for _ in range(ORDERS):
            sequence: list[Any] = [*words, *dice.choices(words, k=5 - len(words))]
            dice.shuffle(sequence)
            answered = dice.randint(0, len(sequence))
            sequence.insert(answered, ANSWER)
            if dice.random() < 0.5:
                sequence.insert(dice.randint(answered + 1, len(sequence)), CUT_OFF)
            found.append((frozenset(words), sequence))
    return found


async def _answer(world: World, named: list[tuple[UUID, str]]) -> None:
    now_at = world.clock.now_at()
    closings = [
        Closing(
            day_of(message), message, 0, outcomes.ACCEPTED, "carrier-a", "+447700900123", 1, now_at,
            written_at=now_at, accepted_parts=1, carrier_ids=[(1, carrier_id)],
        )
        for message, carrier_id in named
    ]  # fmt: skip
    async with world.pool.acquire() as conn, conn.transaction():
        await store_accepted(conn, closings, Bench(world.policy, b"p" * 32, now_at, lambda: 0.5))


async def _cut_off(world: World, messages: list[UUID]) -> None:
    await world.pool.execute(
        "UPDATE messages SET sweep_at = 1 WHERE id = ANY ($1::uuid[]) AND sweep_at IS NOT NULL", messages
    )
    async with world.pool.acquire() as conn:
        await cut_receipts_off(conn, world.policy, world.clock.now_at())


async def test_a_sample_of_orders_has_one_outcome_per_set(world: World) -> None:
    lives = []
    for n, (words, sequence) in enumerate(_sequences(random.Random(7))):
        message = await world.message()
        await world.attempt(message)
        lives.append((f"S{n}", message, words, sequence))
    received_at = world.clock.now_at()
    for step in range(7):
        due = [(life, life[3][step]) for life in lives if step < len(life[3])]
        await _answer(world, [(life[1], life[0]) for life, what in due if what == ANSWER])
        for life, what in due:
            if isinstance(what, int):
                word, done_at = KINDS[what]
                await world.receipt(word, life[0], done_at=done_at, received_at=received_at)
        async with world.pool.acquire() as conn:
            await merge_batch(conn, world.policy, world.clock.now_at() + 1_000 * (step + 1), limit=2_000)
        await _cut_off(world, [life[1] for life, what in due if what == CUT_OFF])
    ends: dict[frozenset[int], set[Any]] = defaultdict(set)
    for _, message, words, _ in lives:
        row = await world.row(message)
        told = {name: row["delivery"][name] for name in ("state", "done_at", "conflict", "error_code")}
        final = "final" if row["status"] in ("delivered", "undelivered") else "waits"  # the cut-off alone says unknown
        ends[words].add((final, row["network_state"], *told.values()))
        assert row["status"] in ("sent", "unknown", "delivered", "undelivered")
    assert {len(found) for found in ends.values()} == {1}, ends
    assert await world.pool.fetchval("SELECT count(*) FROM receipts WHERE message_id IS NULL") == 0
