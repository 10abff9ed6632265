"""The epoch of the index and its rebuild from the ledger (design section 2)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from redis.asyncio import Redis
from redis.exceptions import RedisError

from scheduler.core.names import escape
from scheduler.core.records import Entry
from scheduler.store.scripts import IndexUnavailable, ScriptRunner
from scheduler.store.wire import entries_out

LOAD_MAX = 2_000
# What a rebuild empties; sessions, batch markers, tombstones, limits and number buckets outlive it.
# And these, where another version of the scripts wrote them or the server's clock was put back since.
_RECORDS = ("P:", "n:", "tail:")
_EMPTIED = ("q:", "act:", "park:", "held:", "lease:", "T:", "L:", "w:", "lines")


class Rebuilding:
    """The rebuilder's half of the scheduler."""

    def __init__(self, redis: Redis, runner: ScriptRunner, now: Callable[[], str]) -> None:
        self._redis = redis
        self._runner = runner
        self._now = now

    async def state(self) -> str:
        """`ready`, `loading` (a live rebuilder is at it) or `lost`."""
        return str((await self._runner.run("rebuild", self._now(), "state", await self._runner.run_id())).decode())

    async def begin(self) -> str | None:
        """Sets the epoch to loading, then empties the index; None while another rebuilder is at it."""
        token = secrets.token_hex(8)
        run_id = await self._runner.run_id()
        begun = await self._runner.run("rebuild", self._now(), "begin", token, run_id)
        if not begun:
            return None
        try:
            for part in _EMPTIED if begun == 1 else (*_EMPTIED, *_RECORDS):
                await self._empty(part)
        except (RedisError, OSError, TimeoutError) as fault:
            raise IndexUnavailable("down") from fault
        return token

    async def _empty(self, part: str) -> None:
        pattern = self._runner.prefix.replace("[", r"\[") + part + "*"
        chunk = []
        async for key in self._redis.scan_iter(match=pattern, count=1_000):
            chunk.append(key)
            if len(chunk) >= 1_000:
                await self._redis.unlink(*chunk)
                chunk = []
        if chunk:
            await self._redis.unlink(*chunk)

    async def load(self, epoch: str, entries: Sequence[Entry]) -> None:
        """Queues entries of a class that is not open yet, in their order."""
        for at in range(0, len(entries), LOAD_MAX):
            args = entries_out(entries[at : at + LOAD_MAX])
            await self._runner.run("enqueue", self._now(), "load", epoch, *args)

    async def open_class(self, epoch: str, class_name: str) -> None:
        """Serves a class from now on."""
        await self._runner.run("rebuild", self._now(), "open", epoch, escape(class_name))

    async def finish(self, epoch: str) -> None:
        """All classes are served from now on."""
        await self._runner.run("rebuild", self._now(), "finish", epoch)

    async def drop_line(self, provider: str, class_name: str) -> None:
        """Empties one line in bounded steps, so that it can be loaded again."""
        while await self._runner.run("rebuild", self._now(), "drop", escape(provider), escape(class_name)):
            pass

    async def arrangement(self) -> str | None:
        """The mark of what decided the scopes of the flows that wait."""
        try:
            mark = await self._redis.get(self._runner.prefix + "arrangement")
        except (RedisError, OSError, TimeoutError) as fault:
            raise IndexUnavailable("down") from fault
        return mark.decode() if isinstance(mark, bytes) else mark

    async def set_arrangement(self, mark: str) -> None:
        """Keeps that mark; whoever empties the server takes it away."""
        try:
            await self._redis.set(self._runner.prefix + "arrangement", mark)
        except (RedisError, OSError, TimeoutError) as fault:
            raise IndexUnavailable("down") from fault
