"""The give-up list from the operators' side: the verb, and what the admin port shows."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg

from gateway.ledger import give_up_list
from gateway.ledger.callback_lines import TenantNotice, add_events, add_notices
from tests.integration.delivery.world import World, policy_of

ROOT = Path(__file__).resolve().parents[3]


async def give_up(world: World, *, ago_ms: int) -> None:
    """One callback that gave up so long ago."""
    async with world.pool.acquire() as conn:
        notice = TenantNotice(world.tenants["acme"], "optout.created", uuid4(), {"number": "+447700900123", "seq": 1})
        await add_notices(conn, policy_of("https://cb.example/hooks?token=secret"), [notice], 1)
        await conn.execute(
            "UPDATE callbacks SET gave_up_at = $1, last_status = '500', tries = 9 WHERE gave_up_at IS NULL",
            world.clock.now_at() - ago_ms,
        )


def verb(world: World, *words: str) -> subprocess.CompletedProcess[str]:
    settings = {"SLUICEGATE_DATABASE_URL": world.url, "SLUICEGATE_REDIS_URL": "redis://127.0.0.1:1/0"}
    return subprocess.run(
        [sys.executable, "-m", "gateway.cli", "replay-callbacks", *words],
        cwd=ROOT, env=dict(os.environ) | settings, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


async def test_replay_callbacks_sends_again_what_gave_up_since(world: World) -> None:
    await give_up(world, ago_ms=7_200_000)
    await give_up(world, ago_ms=3 * 86_400_000)
    await world.pool.execute("UPDATE endpoints SET gone_version = 1")
    done = verb(world, "acme", "--since", "1d", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"tenant": "acme", "replayed": 1})
    rows = await world.pool.fetch("SELECT tries, gave_up_at IS NULL AS owed FROM callbacks ORDER BY id")
    assert [tuple(row) for row in rows] == [(0, True), (9, False)]
    assert await world.pool.fetchval("SELECT gone_version FROM endpoints") is None
    audit = await world.pool.fetchrow("SELECT actor, detail FROM audit WHERE action = 'callbacks.replay'")
    assert (audit["actor"], audit["detail"]["callbacks"]) == ("command line", 1)


async def test_replay_callbacks_says_what_is_wrong(world: World) -> None:
    assert verb(world, "nobody", "--since", "1d").returncode == 1
    wrong = verb(world, "acme", "--since", "soon")
    assert wrong.returncode == 2 and "--since" in wrong.stderr


async def test_the_summary_tells_endpoints_apart(world: World) -> None:
    await give_up(world, ago_ms=1)
    async with world.pool.acquire() as conn:
        (row,) = await give_up_list.summary(conn, 10)
    assert (row["tenant"], row["owed"], row["gave_up"], row["last_status"]) == ("acme", 0, 1, "500")


async def test_endpoints_that_are_owed_nothing_go_and_one_in_use_never(world: World) -> None:
    """A URL per message leaves no row per message; a callback that is being written finds or makes its endpoint."""

    async def tell(n: int, conn: asyncpg.Connection[Any]) -> None:
        row = dict(await world.row(messages[n])) | {"extras": {"callback_url": f"http://127.0.0.1:9/{n}"}}
        await add_events(conn, world.policy, [(row, "message.delivered")], world.clock.now_at())

    async def tidy(after_ms: int) -> int:
        async with world.pool.acquire() as conn:
            return await give_up_list.forget_endpoints(conn, 1, world.clock.now_at() + after_ms)

    messages = [await world.message(status="delivered", final_at=1, sweep_at=None) for _ in range(4)]
    async with world.pool.acquire() as conn:
        for n in range(4):
            await tell(n, conn)
        await conn.execute("DELETE FROM callbacks WHERE endpoint_id <> (SELECT min(endpoint_id) FROM callbacks)")
        await conn.execute("UPDATE endpoints SET gone_version = 1 WHERE url LIKE '%/1'")
        assert await tidy(0) == 0  # marked: 2 and 3
        async with conn.transaction():
            await tell(2, conn)  # in use again, not committed yet
            deleting = asyncio.create_task(tidy(give_up_list.IDLE_MS + 1))
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            while not deleting.done() and not await world.pool.fetchval(waiting):
                await asyncio.sleep(0.01)
        assert await deleting == 1
        left = [row["url"] for row in await conn.fetch("SELECT url FROM endpoints ORDER BY url")]
        assert left == [f"http://127.0.0.1:9/{n}" for n in (0, 1, 2)]
        await tell(3, conn)  # made anew
        lost = "SELECT count(*) FROM callbacks c WHERE NOT EXISTS (SELECT FROM endpoints e WHERE e.id = c.endpoint_id)"
        assert await conn.fetchval(lost) == 0 and await conn.fetchval("SELECT count(*) FROM callbacks") == 3
        assert await give_up_list.forget_endpoints(conn, 2, world.clock.now_at()) == 0
        # Another policy version is in use: what said 410 under the former one is marked and goes too.
        assert await give_up_list.forget_endpoints(conn, 2, world.clock.now_at() + give_up_list.IDLE_MS) == 1
