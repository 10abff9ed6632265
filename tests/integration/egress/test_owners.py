"""Several owners: even shares, takeover after a kill, and what the dead left open (design section 4, Owners)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import pytest

from smpp.simulator import SimulatorSettings
from tests.integration.egress.world import PolicyText, Process, World, open_world, until

TAKEOVER_S = 15.0


def _carrier(**settings: object) -> SimulatorSettings:
    return SimulatorSettings(port=0, receipts=False, keep_submits=5_000, seed=7, **settings)  # type: ignore[arg-type]


def _four(port: int) -> PolicyText:
    return PolicyText(port, sessions=4)


async def _holds(world: World) -> dict[int, list[str]]:
    rows = await world.conn.fetch("SELECT id, report FROM processes WHERE role = 'egress' AND ended_at IS NULL")
    return {row["id"]: row["report"].get("holds", []) for row in rows}


@pytest.mark.timing
async def test_two_processes_share_four_sessions_and_a_kill_moves_them(database_url: str, redis_url: str) -> None:
    async with open_world(database_url, redis_url, _carrier(answer_delay_ms=50), _four) as world:
        victim = await Process(world, "victim").start()
        try:

            async def all_bound() -> bool:
                return world.carrier.bound == 4

            await until(all_bound)  # a process starts meanwhile, perhaps on a busy machine
            async with world.egress("heir") as rt:

                async def shared() -> bool:
                    holds = await _holds(world)
                    return sorted(map(len, holds.values())) == [2, 2] and world.carrier.bound == 4

                await until(shared, 60, lambda: "sessions are not shared evenly")
                ids = await world.put([f"kill {n}" for n in range(200)])

                async def flowing() -> bool:
                    return world.carrier.counters["submits"] >= 40

                await until(flowing)
                await victim.kill()
                killed_mono = time.monotonic()

                async def moved() -> bool:
                    return len(rt.report["holds"]) == 4 and world.carrier.bound == 4

                await until(moved, TAKEOVER_S, lambda: "takeover took too long")
                assert time.monotonic() - killed_mono <= TAKEOVER_S

                async def settled() -> bool:
                    return await world.statuses(ids) <= {"sent", "unconfirmed"}

                await until(settled)
                await _nothing_lost_nor_doubled(world, ids)
        finally:
            await victim.kill()


@pytest.mark.timing
async def test_an_end_told_by_the_supervisor_moves_sessions_at_once(database_url: str, redis_url: str) -> None:
    async with open_world(database_url, redis_url, _carrier(drop_ratio=1.0), _four) as world:
        victim = await Process(world, "victim").start()
        try:

            async def all_bound() -> bool:
                return world.carrier.bound == 4

            await until(all_bound)
            ids = await world.put(["1111"], class_name="otp", ttl_ms=60_000)

            async def written() -> bool:
                return world.carrier.counters["submits"] == 1

            await until(written)
            await victim.kill()
            world.carrier.change(drop_ratio=0.0)
            await world.conn.execute("UPDATE processes SET ended_at = $1 WHERE ended_at IS NULL", world.clock.now_at())
            async with world.egress("heir"):
                # The OTP of the dead owner goes once more, flagged, within five seconds.
                await world.until_status(ids, "sent", 5)
            (row,) = await world.rows(ids)
            assert row["possible_duplicate"] is True
            assert world.carrier.counters["submits"] == 2
        finally:
            await victim.kill()


async def test_claims_of_this_process_that_it_does_not_hold_go_back(database_url: str, redis_url: str) -> None:
    """A claim whose answer was lost was never written: it is given back, unspent and unflagged."""
    async with open_world(database_url, redis_url, _carrier(), PolicyText) as world, world.egress() as rt:
        ids = await world.put(["lost claim"])
        await world.until_status(ids, "sent")
        (second,) = await _waiting(world)
        await world.conn.execute(
            "INSERT INTO attempts (day, id, slot, kind, owner_id, provider, session, claimed_at) "
            "SELECT day, id, 0, 'submit', $2, 'carrier', 's1', $3 FROM messages WHERE id = $1",
            second,
            rt.process_id,
            world.clock.now_at(),
        )
        await world.enqueue([second])
        await world.until_status([second], "sent")
        assert [a["outcome"] for a in await world.attempts(second)] == ["given_back", "accepted"]
        (row,) = await world.rows([second])
        assert (row["attempts_spent"], row["possible_duplicate"]) == (1, False)


async def test_a_broken_owner_connection_is_taken_again_without_unbinding(database_url: str, redis_url: str) -> None:
    async with open_world(database_url, redis_url, _carrier(), _four) as world, world.egress() as rt:

        async def all_bound() -> bool:
            return world.carrier.bound == 4 and len(rt.report.get("holds", ())) == 4

        await until(all_bound)
        cut = await world.conn.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'sluicegate owner'"
        )
        assert cut == 1
        ids = await world.put([f"again {n}" for n in range(20)])
        await world.until_status(ids, "sent")
        assert world.carrier.counters["binds"] == 4

        async def locked() -> bool:
            return await world.conn.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 5

        await until(locked)


async def _waiting(world: World) -> list[object]:
    """A message that waits in the ledger alone, its reference not yet in the index."""
    await world.conn.execute(
        "INSERT INTO messages (day, id, tenant_id, class, status, recipient, sender, body, encoding, segments, route, "
        "provider, created_at, submit_by, expires_at, predicted_wait_ms, policy_version) "
        "SELECT day, overlay(id::text placing CASE right(id::text, 1) WHEN 'f' THEN 'e' ELSE 'f' END from 36)::uuid, "
        "tenant_id, class, 'queued', recipient, sender, body, "
        "encoding, segments, route, provider, created_at, submit_by, expires_at, 0, 1 FROM messages"
    )
    return [row["id"] for row in await world.conn.fetch("SELECT id FROM messages WHERE status = 'queued'")]


async def _nothing_lost_nor_doubled(world: World, ids: Sequence[UUID]) -> None:
    """Class policy `hold`: no text twice at the carrier; what never got there is held in doubt, not called sent."""
    seen = Counter(pdu.short_message for _, pdu in world.carrier.submits)
    assert max(seen.values()) == 1
    rows = await world.rows(ids)
    assert {bytes(row["body"]) for row in rows if row["status"] == "sent"} <= set(seen)
    # Two sessions of the dead owner: at most their windows and the stock that was claimed for them.
    assert sum(row["status"] == "unconfirmed" for row in rows) <= 2 * (10 + 20)
