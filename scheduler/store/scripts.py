"""The Lua scripts: parts in `scheduler/lua`, joined into one library with one function per script (FUNCTION LOAD).

A library's functions and constants are made once per server; as a text for EVAL they would be made at every call, which
costs more than the work of a small one. The name of a library ends with the digest of its text, so versions of the
product live side by side.

Before any function works on a server, the epoch is compared with the server's run id (design section 2): a library
begins unintroduced, and introducing it is the moment of that check. A server that restarted or failed over has none of
it, whether it kept the libraries on disk or got them as a replica, so no call has to pay for the check, and none can
miss it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from scheduler.core.due import LATER_MS
from scheduler.core.unavailable import IndexUnavailable

__all__ = ["IndexUnavailable", "Script", "ScriptRunner", "script"]

LUA = Path(__file__).resolve().parent.parent / "lua"
PARTS = {
    "admit": ("records", "flows", "numbers", "faults", "estimate", "admit"),
    "enqueue": ("records", "flows", "enqueue"),
    "lease": ("records", "flows", "leases", "numbers", "faults", "lease"),
    "ack": ("records", "flows", "leases", "numbers", "ack"),
    "tune": ("records", "tune"),
    "steer": ("records", "flows", "numbers", "faults", "steer"),
    "health": ("records", "flows", "faults", "health"),
    "explain": ("records", "flows", "numbers", "faults", "estimate", "explain"),
    "rebuild": ("records", "flows", "rebuild"),
    "report": ("records", "flows", "faults", "report"),
    "sweep": ("records", "flows", "sweep"),
}


@dataclass(frozen=True, slots=True)
class Script:
    """One script's library: its text, and the name of the library and of its function."""

    text: str
    function: str


_FRAME = """#!lua name={function}
{parts}
local function main(ARGV)
local LATER_MS = {later_ms}
{body}
end
local introduced = false
redis.register_function('{function}', function(keys, args)
  if args[1] == '!' then
    introduced = true
    return 1
  end
  if not introduced and {checked} then return {{ '!introduce' }} end
  begin(keys, args)
  return main(args)
end)
"""


@cache
def script(name: str) -> Script:
    """The script of a name, read once."""
    *parts, body = [(LUA / f"{part}.lua").read_text(encoding="utf-8") for part in PARTS[name]]
    # Only the check itself may run before it.
    checked = "args[2] ~= 'state'" if name == "rebuild" else "true"
    joined = "\n".join(parts)
    digest = sha1((joined + body + checked + _FRAME + str(LATER_MS)).encode(), usedforsecurity=False).hexdigest()[:12]
    function = f"sluicegate_{name}_{digest}"
    text = _FRAME.format(function=function, parts=joined, body=body, checked=checked, later_ms=LATER_MS)
    return Script(text, function)


class ScriptRunner:
    """Runs scripts on one cell; translates every fault of the store into IndexUnavailable."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self.prefix = prefix
        self._loading = asyncio.Lock()

    async def run(self, name: str, now: str, *args: Any) -> Any:
        """The reply of a script; `now` in ms as text, '' for the server's clock."""
        try:
            reply = await self._call(name, now, *args)
            if reply is None:
                await self._introduce(now)
                reply = await self._call(name, now, *args)
        except (RedisError, OSError, TimeoutError) as fault:
            raise IndexUnavailable("down") from fault
        if reply is None:
            raise IndexUnavailable("down")
        if isinstance(reply, list) and reply and isinstance(reply[0], bytes) and reply[0][:1] == b"!":
            raise IndexUnavailable(reply[0][1:].decode())
        return reply

    async def run_id(self) -> str:
        """The server's run id; IndexUnavailable where it cannot be asked."""
        try:
            return str((await self._redis.info("server"))["run_id"])
        except (RedisError, OSError, TimeoutError) as fault:
            raise IndexUnavailable("down") from fault

    async def _call(self, name: str, now: str, *args: Any) -> Any:
        """The reply; None where the server does not know the function, or does not trust its data yet."""
        try:
            reply = await self._redis.fcall(script(name).function, 1, self.prefix, now, *args)
        except ResponseError as fault:
            if "unction not found" not in str(fault):
                raise
            return None
        return None if reply == [b"!introduce"] else reply

    async def _introduce(self, now: str) -> None:
        """Loads all libraries, checks the epoch against the run id, then lets them work."""
        async with self._loading:
            for name in PARTS:
                try:
                    await self._redis.function_load(script(name).text)
                except ResponseError as fault:
                    if "already exists" not in str(fault):
                        raise
            await self._call("rebuild", now, "state", await self.run_id())
            for name in PARTS:
                await self._call(name, "!")
