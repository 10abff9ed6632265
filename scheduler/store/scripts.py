"""The Lua scripts: parts in `scheduler/lua`, joined into one text per script and run by EVALSHA.

A server that does not know a script has restarted, failed over, or was never used. Before any script is loaded there
the epoch is compared with the server's run id, so no script ever runs on data that outlived its epoch (design
section 2); that is why NOSCRIPT is the moment of the check, and no call has to pay for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

LUA = Path(__file__).resolve().parent.parent / "lua"
PARTS = {
    "admit": ("records", "flows", "numbers", "faults", "estimate", "admit"),
    "enqueue": ("records", "flows", "enqueue"),
    "lease": ("records", "flows", "leases", "numbers", "faults", "lease"),
    "ack": ("records", "flows", "leases", "numbers", "ack"),
    "tune": ("records", "tune"),
    "steer": ("records", "flows", "faults", "steer"),
    "health": ("records", "flows", "faults", "health"),
    "explain": ("records", "flows", "numbers", "faults", "estimate", "explain"),
    "rebuild": ("records", "flows", "rebuild"),
    "report": ("records", "flows", "faults", "report"),
}


class IndexUnavailable(Exception):
    """The index cannot answer now; `reason` is down, lost, loading, untuned, epoch or class."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the queue index is unavailable: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Script:
    """One script's text and the name that Redis gives it."""

    text: str
    sha: str


@cache
def script(name: str) -> Script:
    """The script of a name, read once."""
    text = "\n".join((LUA / f"{part}.lua").read_text(encoding="utf-8") for part in PARTS[name])
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


class ScriptRunner:
    """Runs scripts on one cell; translates every fault of the store into IndexUnavailable."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self.prefix = prefix
        self._loading = asyncio.Lock()

    async def run(self, name: str, now: str, *args: Any) -> Any:
        """The reply of a script; `now` in ms as text, '' for the server's clock."""
        wanted = script(name)
        try:
            try:
                reply = await self._redis.evalsha(wanted.sha, 1, self.prefix, now, *args)
            except NoScriptError:
                await self._introduce(now)
                reply = await self._redis.evalsha(wanted.sha, 1, self.prefix, now, *args)
        except (RedisError, OSError, TimeoutError) as fault:
            raise IndexUnavailable("down") from fault
        if isinstance(reply, list) and reply and isinstance(reply[0], bytes) and reply[0][:1] == b"!":
            raise IndexUnavailable(reply[0][1:].decode())
        return reply

    async def run_id(self) -> str:
        """The server's run id; IndexUnavailable where it cannot be asked."""
        try:
            return str((await self._redis.info("server"))["run_id"])
        except (RedisError, OSError, TimeoutError) as fault:
            raise IndexUnavailable("down") from fault

    async def _introduce(self, now: str) -> None:
        """Checks the epoch against the run id, then loads all scripts."""
        async with self._loading:
            await self._redis.eval(script("rebuild").text, 1, self.prefix, now, "state", await self.run_id())
            for name in PARTS:
                await self._redis.script_load(script(name).text)
