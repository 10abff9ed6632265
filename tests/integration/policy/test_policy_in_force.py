"""Policies in the database: applied by one, used by all within 2 s, refused where a live process cannot follow."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.ledger.connect import open_pool
from gateway.policy import entry, versions
from gateway.policy.applier import Applier, PolicyRefused
from gateway.policy.entry import apply_file, apply_quietly, read_file, watch_file
from gateway.policy.holder import PolicyHolder
from gateway.policy.rules.parse import PolicyInvalid
from gateway.policy.rules.snapshot import Policy
from gateway.runtime import Runtime, StartRefused
from gateway.supervisor.first_policy import from_file

USED_WITHIN_S = 2.0


def policy_text(window: int = 10, password: str = "pw", tenant: str = "acme") -> str:
    return (
        f"tenants: {{{tenant}: {{}}}}\n"
        f"providers: {{c: {{sessions: {{s: {{host: h, system_id: x, password: '{password}', window: {window}}}}}}}}}\n"
        "routes: {all: {provider: c}}\n"
    )


class WallClock:
    def now_at(self) -> int:
        return int(time.time() * 1000)


@dataclass
class Installation:
    """A database with processes that hold policies, and an applier beside them."""

    pool: Any
    clock: WallClock
    holders: list[PolicyHolder]

    @property
    def applier(self) -> Applier:
        return Applier(self, patience_s=1.5)

    async def process(self, role: str, age_ms: int = 0) -> int:
        now_at = self.clock.now_at()
        process_id: int = await self.pool.fetchval(
            "INSERT INTO processes (role, worker, pid, host, started_at, heartbeat_at)"
            " VALUES ($1, '0', $2, 'here', $3, $4) RETURNING id",
            role,
            os.getpid(),
            now_at,
            now_at - age_ms,
        )
        return process_id

    async def holder(self, role: str) -> PolicyHolder:
        holder = PolicyHolder(self.pool, self.clock, await self.process(role))
        await holder.start()
        self.holders.append(holder)
        return holder

    async def row(self, holder_index: int = 0) -> Any:
        return await self.pool.fetchrow("SELECT * FROM processes ORDER BY id OFFSET $1 LIMIT 1", holder_index)


@pytest.fixture
async def installation(database_url: str) -> AsyncIterator[Installation]:
    pool = await open_pool(database_url, min_size=1, max_size=12)
    made = Installation(pool, WallClock(), [])
    yield made
    for holder in made.holders:
        await holder.stop()
    await pool.close()


async def until(condition: Callable[[], bool | Awaitable[bool]], within_s: float = 10.0) -> float:
    """Seconds until the condition holds; fails when it does not in time."""
    started = time.monotonic()
    while True:
        holds = condition()
        if isinstance(holds, Awaitable):
            holds = await holds
        if holds:
            return time.monotonic() - started
        assert time.monotonic() - started < within_s, "the condition did not come true in time"
        await asyncio.sleep(0.01)


async def test_first_policy_without_any_process(installation: Installation) -> None:
    assert await installation.applier.apply(policy_text(), "tests") == 1
    async with installation.pool.acquire() as conn:
        assert await versions.active(conn) == (1, policy_text())
        assert await conn.fetchval("SELECT count(*) FROM tenants WHERE name = 'acme'") == 1
        assert await conn.fetchval("SELECT action FROM audit ORDER BY id DESC LIMIT 1") == "policy.applied"


async def test_a_holder_starts_before_any_policy(installation: Installation) -> None:
    holder = await installation.holder("api")
    assert (holder.current, holder.in_step) == (None, False)
    await installation.applier.apply(policy_text(), "tests")
    policy = await asyncio.wait_for(holder.ready(), USED_WITHIN_S)
    assert policy.version == 1
    await until(lambda: holder.in_step)


async def test_every_process_uses_a_new_version_within_two_seconds(installation: Installation) -> None:
    holders = [await installation.holder(role) for role in ("api", "api", "egress", "delivery")]
    seen: list[int] = []
    holders[0].on_change(lambda policy: seen.append(policy.version))
    await installation.applier.apply(policy_text(10), "tests")
    version = await installation.applier.apply(policy_text(20), "tests")
    took = await until(lambda: all(holder.current and holder.current.version == version for holder in holders))
    assert took < USED_WITHIN_S
    assert holders[2].current.providers["c"].sessions["s"].window == 20
    assert seen[-1] == version

    async def reported() -> bool:
        rows = await installation.pool.fetch("SELECT policy_version, policy_loaded, policy_error FROM processes")
        return all(
            (row["policy_version"], row["policy_loaded"], row["policy_error"]) == (version, version, None)
            for row in rows
        )

    await until(reported)


async def test_the_same_text_keeps_its_version(installation: Installation) -> None:
    first = await installation.applier.apply(policy_text(), "tests")
    results = await asyncio.gather(*(installation.applier.apply(policy_text(), "tests") for _ in range(4)))
    assert set(results) == {first}


async def test_several_at_once_take_turns(installation: Installation) -> None:
    await installation.holder("api")
    applied = await asyncio.gather(*(installation.applier.apply(policy_text(n), "tests") for n in range(1, 5)))
    assert sorted(applied) == [1, 2, 3, 4]
    async with installation.pool.acquire() as conn:
        active = await versions.active(conn)
    assert active is not None
    assert active[0] == 4


async def test_a_lagging_process_refuses_the_version_and_is_named(installation: Installation) -> None:
    holder = await installation.holder("api")
    await installation.applier.apply(policy_text(10), "tests")
    await installation.process("egress")  # alive, but never loads anything
    with pytest.raises(PolicyRefused, match=f"process egress 0 .pid {os.getpid()} on here. did not load it"):
        await installation.applier.apply(policy_text(20), "tests")
    await holder.look()
    assert holder.current.version == 1
    assert holder.in_step
    async with installation.pool.acquire() as conn:
        states = {version.version: version.state for version in await versions.history(conn)}
        assert await conn.fetchval("SELECT action FROM audit ORDER BY id DESC LIMIT 1") == "policy.refused"
    assert states == {1: "active", 2: "refused"}


async def test_a_dead_process_does_not_count(installation: Installation) -> None:
    await installation.process("egress", age_ms=10_000)
    assert await installation.applier.apply(policy_text(), "tests") == 1


async def test_a_missing_secret_refuses_the_version_at_once(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SG_TEST_PASSWORD", raising=False)
    egress = await installation.holder("egress")
    await installation.holder("api")
    await installation.applier.apply(policy_text(), "tests")
    with pytest.raises(PolicyRefused, match=r"egress.*env:SG_TEST_PASSWORD"):
        await installation.applier.apply(policy_text(password="env:SG_TEST_PASSWORD"), "tests")
    await egress.look()
    assert egress.current.version == 1
    monkeypatch.setenv("SG_TEST_PASSWORD", "there")
    assert await installation.applier.apply(policy_text(password="env:SG_TEST_PASSWORD"), "tests") == 3


async def test_a_restart_without_its_secret_uses_the_version_and_says_so(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SG_TEST_PASSWORD", raising=False)
    await installation.applier.apply(policy_text(password="env:SG_TEST_PASSWORD"), "tests")
    holder = await installation.holder("egress")
    assert holder.current.version == 1
    assert "env:SG_TEST_PASSWORD" in (await installation.row())["policy_error"]
    monkeypatch.setenv("SG_TEST_PASSWORD", "there")
    await holder.look()
    assert (await installation.row())["policy_error"] is None


async def test_up_refuses_a_new_policy_whose_secrets_it_lacks(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SG_TEST_PASSWORD", raising=False)
    file = tmp_path / "policy.yaml"
    file.write_text(policy_text(password="env:SG_TEST_PASSWORD"))
    told: list[str] = []
    first = from_file(file, tell=told.append)
    with pytest.raises(StartRefused, match="password: env:SG_TEST_PASSWORD: is not in this process's environment"):
        await first(cast(Runtime, installation))
    monkeypatch.setenv("SG_TEST_PASSWORD", "there")
    await first(cast(Runtime, installation))
    async with installation.pool.acquire() as conn:
        assert await versions.active(conn) == (1, file.read_text())
        monkeypatch.delenv("SG_TEST_PASSWORD")
        await first(cast(Runtime, installation))  # a restart: what works of it goes on
        file.write_text(policy_text(20, password="env:SG_TEST_PASSWORD"))
        await first(cast(Runtime, installation))
        in_force = await versions.active(conn)
    assert in_force is not None and in_force[0] == 1
    assert len(told) == 1 and "policy version 1 stays" in told[0] and "env:SG_TEST_PASSWORD" in told[0]


async def test_an_invalid_policy_changes_nothing(installation: Installation) -> None:
    await installation.applier.apply(policy_text(), "tests")
    with pytest.raises(PolicyInvalid) as caught:
        await installation.applier.apply(policy_text() + "recepts: {}\n", "tests")
    assert [(fault.line, fault.path) for fault in caught.value.faults] == [(4, "recepts")]
    async with installation.pool.acquire() as conn:
        assert len(await versions.history(conn)) == 1
        assert await conn.fetchval("SELECT action FROM audit ORDER BY id DESC LIMIT 1") == "policy.invalid"


async def told_invalid(installation: Installation) -> int:
    count: int = await installation.pool.fetchval("SELECT count(*) FROM audit WHERE action = 'policy.invalid'")
    return count


async def test_watchers_of_one_file_enter_its_faults_once(installation: Installation, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(policy_text() + "recepts: {}\n")
    await asyncio.gather(*(apply_quietly(installation, path, "file policy.yaml") for _ in range(4)))
    assert await told_invalid(installation) == 1
    path.write_text(policy_text() + "recipts: {}\n")
    await apply_quietly(installation, path, "file policy.yaml")
    assert await told_invalid(installation) == 2
    await apply_quietly(installation, path, "SIGHUP to api-1")
    assert await told_invalid(installation) == 3
    for _ in range(2):  # what operators send is always entered
        with pytest.raises(PolicyInvalid):
            await installation.applier.apply("recepts: {}\n", "tests")
    assert await told_invalid(installation) == 5


async def test_a_file_that_is_wrong_again_after_another_policy_is_told_again(
    installation: Installation, tmp_path: Path
) -> None:
    path = tmp_path / "policy.yaml"
    for window in (10, 20):
        path.write_text("recepts: {}\n")
        await apply_quietly(installation, path, "file policy.yaml")
        path.write_text(policy_text(window))
        assert await apply_quietly(installation, path, "file policy.yaml") is not None
    assert await told_invalid(installation) == 2


async def test_rollback_is_a_new_version(installation: Installation) -> None:
    holder = await installation.holder("api")
    await installation.applier.apply(policy_text(10), "tests")
    await installation.applier.apply(policy_text(20), "tests")
    assert await installation.applier.rollback(1, "tests") == 3
    await until(lambda: holder.current.version == 3, USED_WITHIN_S)
    assert holder.current.providers["c"].sessions["s"].window == 10
    with pytest.raises(LookupError):
        await installation.applier.rollback(99, "tests")


async def test_a_file_known_from_before_is_not_applied_at_start(installation: Installation, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(policy_text(10))
    assert await apply_file(installation, path, "start", at_start=True) == 1
    assert await apply_file(installation, path, "start", at_start=True) == 1
    await installation.applier.apply(policy_text(20), "tests")
    assert await apply_file(installation, path, "start", at_start=True) is None
    assert await apply_file(installation, path, "SIGHUP") == 3


async def test_a_refused_content_is_not_known(installation: Installation, tmp_path: Path) -> None:
    await installation.applier.apply(policy_text(10), "tests")
    lagging = await installation.process("egress")
    path = tmp_path / "policy.yaml"
    path.write_text(policy_text(20))
    assert await apply_quietly(installation, path, "SIGHUP") is None
    await installation.pool.execute("UPDATE processes SET ended_at = 1 WHERE id = $1", lagging)
    assert await apply_file(installation, path, "start", at_start=True) == 3


async def test_an_older_text_of_the_file_never_comes_after_a_newer(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SIGHUP has read the file when it changes, and the watcher of another process applies the new text."""
    path = tmp_path / "policy.yaml"
    path.write_text(policy_text(10))
    has_read, may_go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow_read(file: Path) -> str:
        text = read_file(file)
        if text == policy_text(10):
            loop.call_soon_threadsafe(has_read.set)
            assert may_go_on.wait(60)
        return text

    monkeypatch.setattr(entry, "read_file", slow_read)
    by_signal = asyncio.create_task(apply_file(installation, path, "SIGHUP"))
    await asyncio.wait_for(has_read.wait(), 60)
    path.write_text(policy_text(20))
    by_watch = asyncio.create_task(apply_file(installation, path, "file"))
    await asyncio.wait({by_watch}, timeout=1)  # as far as it gets while the other holds the older text
    may_go_on.set()
    await asyncio.gather(by_signal, by_watch)
    async with installation.pool.acquire() as conn:
        in_force = await versions.active(conn)
    assert in_force is not None
    assert in_force[1] == policy_text(20)


async def test_the_file_is_watched(installation: Installation, tmp_path: Path) -> None:
    holder = await installation.holder("api")
    path = tmp_path / "policy.yaml"
    path.write_text(policy_text(10))
    await apply_file(installation, path, "start", at_start=True)
    watcher = asyncio.create_task(watch_file(installation, path))
    try:
        await asyncio.sleep(0)  # the watcher takes its first look before the file changes
        await until(lambda: holder.current is not None)
        changed = tmp_path / "new.yaml"
        for window in (20, 30):
            changed.write_text(policy_text(window))
            changed.replace(path)
            await until(lambda window=window: holder.current.providers["c"].sessions["s"].window == window)  # type: ignore[misc]
        path.write_text("nonsense: [")
        path.unlink()
        path.write_text(policy_text(40))
        await until(lambda: holder.current.providers["c"].sessions["s"].window == 40)
    finally:
        watcher.cancel()


async def test_a_lost_connection_is_made_again(installation: Installation) -> None:
    holder = await installation.holder("api")
    await installation.applier.apply(policy_text(10), "tests")
    await until(lambda: holder.current is not None)
    await installation.pool.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    version = None
    for _ in range(20):
        try:
            version = await installation.applier.apply(policy_text(20), "tests")
            break
        except (OSError, PolicyRefused):
            await asyncio.sleep(0.2)
        except Exception as error:
            assert "connection" in str(error).lower()
    assert version is not None
    await until(lambda: holder.current.version == version)


async def test_a_notice_that_nobody_heard_is_made_up_for_by_the_next_look(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL keeps no notices for those who do not listen; processes look once a second all the same."""
    holders = [await installation.holder("api"), await installation.holder("egress")]
    await installation.applier.apply(policy_text(10), "tests")
    await until(lambda: all(one.current is not None for one in holders))
    monkeypatch.setattr(versions, "CHANNEL", "nobody_listens_here")
    version = await Applier(installation, patience_s=30).apply(policy_text(20), "tests")
    await until(lambda: all(one.current.version == version for one in holders), 30)


async def test_callbacks_see_whole_policies(installation: Installation) -> None:
    holder = await installation.holder("api")
    seen: list[Policy] = []
    holder.on_change(seen.append)
    for window in range(1, 6):
        await installation.applier.apply(policy_text(window), "tests")
    await until(lambda: bool(seen) and seen[-1].version == 5)
    assert all(policy.providers["c"].sessions["s"].window == policy.version for policy in seen)
