"""A batch with messages of two days: the statements of the hot road name one day each, and miss nothing."""

from __future__ import annotations

import os
from datetime import date

from gateway.domain import outcomes
from gateway.domain.ids import DAY_MS, day_of, uuid7
from gateway.ledger.claims import Wanted, claim
from gateway.ledger.merges import merge_batch
from gateway.ledger.message_rows import day_spans
from gateway.ledger.outcomes import Bench, Closing, store_accepted
from tests.integration.delivery.world import World


async def test_a_batch_around_midnight(world: World) -> None:
    now_at = world.clock.now_at()
    made = [uuid7(now_at - days * DAY_MS, os.urandom(10)) for days in (0, 1, 0, 1)]
    for one in made:
        await world.message(id=one)
    async with world.pool.acquire() as conn:
        wanted = [Wanted(one.bytes, 0, "carrier-a", "a1") for one in made]
        rows = await claim(conn, wanted, 1, now_at)
        assert [row["id"] for row in rows] == sorted(made)
        closings = [
            Closing(row["day"], row["id"], 0, outcomes.ACCEPTED, "carrier-a", row["recipient"], 1, now_at, now_at)
            for row in rows
        ]
        for n, closing in enumerate(closings):
            closing.carrier_ids = [(1, f"C{n}")]
        bench = Bench(world.policy, b"p" * 32, now_at, lambda: 0.5)
        assert await store_accepted(conn, closings, bench) == 4
        assert await store_accepted(conn, closings, bench) == 0
        for n in range(4):
            await world.receipt("delivered", f"C{n}")
        merged = await merge_batch(conn, world.policy, world.clock.now_at())
    assert merged.merged == 4
    found = await world.pool.fetch("SELECT day, id, status, version FROM messages ORDER BY day, id")
    assert [(row["day"], row["id"], row["status"], row["version"]) for row in found] == [
        (day_of(one), one, "delivered", 3) for one in sorted(made)
    ]


def test_runs_of_a_day() -> None:
    first, second = date(2030, 1, 30), date(2030, 1, 31)
    assert list(day_spans([])) == []
    assert list(day_spans([first])) == [(first, slice(0, 1))]
    assert list(day_spans([first, first, second, first])) == [
        (first, slice(0, 2)), (second, slice(2, 3)), (first, slice(3, 4))
    ]  # fmt: skip
