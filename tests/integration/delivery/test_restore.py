"""A database restored from a backup: nothing that may have been sent is sent again unasked (reliability.md, I14)."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from gateway.domain import review
from gateway.embedded import dumps
from gateway.embedded.postgres import PostgresServer
from gateway.ledger import restores
from gateway.ledger.connect import connect
from gateway.ledger.outcomes import Bench
from tests.conftest import run_apart
from tests.integration.delivery.world import POLICY, World, world_of

PEPPER = b"p" * 32


async def in_force(world: World) -> None:
    source = POLICY.format(
        url="http://127.0.0.1:9/hooks", secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", events="[all]"
    )
    await world.pool.execute(
        "INSERT INTO policy_versions (version, source, digest, applied_at, applied_by) VALUES (1, $1, '', 0, 'test')",
        source,
    )
    await world.pool.execute("INSERT INTO policy_active (version) VALUES (1)")


async def due(world: World, message_id: object, due_at: int, kind: str) -> None:
    await world.pool.execute(
        "INSERT INTO due (day, id, due_at, kind) SELECT day, id, $2, $3 FROM messages WHERE id = $1",
        message_id,
        due_at,
        kind,
    )


async def noticed(world: World) -> bool:
    async with world.pool.acquire() as conn:
        return await restores.notice(conn, PEPPER, world.policy, world.clock.now_at())


async def test_what_may_have_been_sent_is_under_review_and_the_rest_stays(
    database_url: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    async with world_of(database_url) as world:
        assert not await noticed(world), "the first role only writes down where the database is"
        now_at = world.clock.now_at()
        ids = {
            "queued": await world.message(),
            "otp": await world.message(**{"class": "otp"}),
            "claimed": await world.message(**{"class": "otp"}),
            "sent": await world.sent(),
            "delivered": await world.message(status="delivered", sweep_at=None, final_at=now_at),
            "later": await world.message(status="scheduled", not_before=now_at + 1_800_000),
            "was due": await world.message(status="scheduled", not_before=now_at - 1_000),
            "retry later": await world.message(attempts_spent=1, submit_begun=True, next_slot=1),
            "long": await world.message(segments=3),
            "over": await world.message(expires_at=now_at - 1, submit_by=now_at - 1),
        }
        await world.attempt(ids["claimed"])
        await due(world, ids["later"], now_at + 1_800_000, "send_at")
        await due(world, ids["was due"], now_at - 1_000, "send_at")
        await due(world, ids["retry later"], now_at + 1_800_000, "retry")
        await in_force(world)
        assert not await noticed(world), "the same database is no restore"
        dumps.dump(database_url, tmp_path / "dump")
        assert (tmp_path / "dump").stat().st_mode & 0o777 == 0o600
    name = "restored_" + database_url.partition("?")[0].rpartition("/")[2]
    run_apart(_execute(postgres_server, f"CREATE DATABASE {name} OWNER sluicegate"))
    try:
        dumps.restore(postgres_server.url(name), tmp_path / "dump")
        async with world_of_restored(postgres_server.url(name)) as again:
            assert await noticed(again)
            assert not await noticed(again), "once"
            found = {what: await again.status(one) for what, one in ids.items()}
            assert found == {
                "queued": "unconfirmed", "otp": "unconfirmed", "claimed": "unconfirmed", "sent": "sent",
                "delivered": "delivered", "later": "scheduled", "was due": "unconfirmed", "retry later": "queued",
                "long": "unconfirmed", "over": "unconfirmed",
            }  # fmt: skip
            assert await again.pool.fetchval("SELECT count(*) FROM outbox") == 0
            assert await again.pool.fetchval("SELECT count(*) FROM attempts WHERE outcome IS NULL") == 0
            assert await again.pool.fetchval("SELECT count(*) FROM unnamed_submits") == 8, "their receipts find them"
            async with again.pool.acquire() as conn:
                seen = await restores.standing(conn)
            assert seen.messages == {"otp": 2, "transactional": 4}
            assert seen.paused == ["carrier-a"]
            await check_verdicts(again, ids)
    finally:
        run_apart(_execute(postgres_server, f"DROP DATABASE {name} WITH (FORCE)"))


async def check_verdicts(world: World, ids: dict[str, object]) -> None:
    """What the operator says about them."""
    async with world.pool.acquire() as conn:
        bench = Bench(world.policy, PEPPER, world.clock.now_at(), lambda: 0.0)
        assert await restores.settle(conn, bench, review.SEND_AGAIN, ["otp"]) == 2
        assert await restores.settle(conn, bench, review.SEND_AGAIN, ["otp"]) == 0
        row = await world.row(ids["claimed"])  # type: ignore[arg-type]
        assert (row["status"], row["possible_duplicate"]) == ("queued", True)
        assert await world.pool.fetchval("SELECT count(*) FROM outbox") == 1, "what goes again goes by the outbox"
        assert await restores.settle(conn, bench, review.NEVER_SENT, None) == 4
        row = await world.row(ids["queued"])  # type: ignore[arg-type]
        assert (row["status"], row["possible_duplicate"]) == ("queued", False)
        assert await world.status(ids["over"]) == "failed"  # type: ignore[arg-type]
        assert await world.pool.fetchval("SELECT count(*) FROM unnamed_submits") == 2, "the two codes that go again"
        assert await restores.resume(conn, "test", world.clock.now_at()) == ["carrier-a"]
        seen = await restores.standing(conn)
        assert (seen.messages, seen.paused) == ({}, [])


async def test_a_copy_of_the_files_is_reviewed_when_it_is_marked(database_url: str) -> None:
    async with world_of(database_url) as world:
        await noticed(world)
        await in_force(world)
        message_id = await world.message()
        now_at = world.clock.now_at()
        async with world.pool.acquire() as conn:
            owner = await conn.fetchval(
                "INSERT INTO processes (role, worker, pid, host, started_at, heartbeat_at)"
                " VALUES ('egress', 'e', 1, 'h', $1, $1) RETURNING id", now_at,
            )  # fmt: skip
            with pytest.raises(restores.StillRunning):
                await restores.mark(conn, PEPPER, world.policy, "test", now_at)
            await conn.execute("UPDATE processes SET heartbeat_at = $2 WHERE id = $1", owner, now_at - 60_000)
            await restores.mark(conn, PEPPER, world.policy, "test", now_at)
            assert await world.status(message_id) == "unconfirmed"
            assert (
                await restores.settle(conn, Bench(world.policy, PEPPER, now_at, lambda: 0.0), review.GIVE_UP, None) == 1
            )
        assert await world.status(message_id) == "failed"
        assert [one for one, _ in await world.events(message_id)] == ["message.failed"]


async def test_a_review_that_broke_off_is_finished_by_the_next_start(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world_of(database_url) as world:
        await in_force(world)
        message_id = await world.message(**{"class": "otp"})
        await world.pool.execute("UPDATE instance SET identity = 'elsewhere'")

        async def breaks(*_: object) -> bool:
            raise asyncpg.ConnectionDoesNotExistError

        with monkeypatch.context() as patched:
            patched.setattr("gateway.ledger.owners.close_claims", breaks)
            with pytest.raises(asyncpg.ConnectionDoesNotExistError):
                await noticed(world)
        assert await noticed(world)
        assert await world.status(message_id) == "unconfirmed"
        assert await world.pool.fetchval("SELECT count(*) FROM restores") == 1


def test_passwords_are_not_in_the_list_of_processes() -> None:
    url = "postgresql://sluicegate:p%40ss@/sluicegate?host=/run/x"
    assert dumps.without_password(url) == ("postgresql://sluicegate@/sluicegate?host=/run/x", "p@ss")
    assert dumps.without_password("postgresql://h:5432/db") == ("postgresql://h:5432/db", "")


def world_of_restored(url: str):  # type: ignore[no-untyped-def]
    from contextlib import asynccontextmanager

    from gateway.ledger.connect import open_pool

    @asynccontextmanager
    async def opened():  # type: ignore[no-untyped-def]
        pool = await open_pool(url, max_size=4)
        try:
            yield World(url, pool)
        finally:
            pool.terminate()

    return opened()


async def _execute(server: PostgresServer, statement: str) -> None:
    conn = await connect(server.url("postgres", "postgres"))
    try:
        await conn.execute(statement)
    finally:
        await conn.close()
