"""The embedded stores and the migration runner."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
import redis.asyncio

from gateway.embedded.home import DataDirectoryRefused, Home
from gateway.ledger.connect import connect
from gateway.ledger.migrate import MigrationRefused, migrate, missing


async def test_fresh_database_is_migrated_and_has_partitions(database_url: str) -> None:
    connection = await connect(database_url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM pg_inherits WHERE inhparent = 'messages'::regclass") >= 9
        assert len(await connection.fetchval("SELECT pepper FROM instance")) == 32
        assert await connection.fetchval("SELECT $1::jsonb", {"a": [1, None]}) == {"a": [1, None]}
    finally:
        await connection.close()


async def test_migrating_is_safe_by_several_at_once(empty_database_url: str) -> None:
    made = await asyncio.gather(*(migrate(empty_database_url) for _ in range(4)))
    assert sorted(map(len, made))[:3] == [0, 0, 0]
    assert max(map(len, made)) >= 1
    assert await missing(empty_database_url) == []


async def test_an_edited_migration_is_refused(database_url: str) -> None:
    connection = await connect(database_url)
    await connection.execute("UPDATE schema_migrations SET sha256 = 'other' WHERE version = 1")
    await connection.close()
    with pytest.raises(MigrationRefused, match="was changed"):
        await migrate(database_url)


async def test_a_newer_database_is_refused(database_url: str) -> None:
    connection = await connect(database_url)
    await connection.execute("INSERT INTO schema_migrations VALUES (9999, 'later', '', 0)")
    await connection.execute("UPDATE instance SET works_from = 9998")
    await connection.close()
    with pytest.raises(MigrationRefused, match="newer release"):
        await migrate(database_url)


async def test_stores_need_a_password(database_url: str, redis_url: str) -> None:
    with pytest.raises(asyncpg.PostgresError):
        await asyncpg.connect(database_url.replace("sluicegate:", "sluicegate:x", 1))
    client = redis.asyncio.Redis.from_url("unix://" + redis_url.partition("@")[2])
    with pytest.raises(redis.exceptions.RedisError):
        await client.ping()
    await client.aclose()


def test_a_second_run_on_the_same_directory_is_refused(home: Home) -> None:
    with pytest.raises(DataDirectoryRefused, match="in use by another run"):
        Home(home.directory).hold()
