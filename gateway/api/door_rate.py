"""The door's rate: messages per second of a tenant over all keys and workers (contract section 2, `quota.rate`).

One bucket per tenant in Redis, kept as the time at which it will be full again (GCRA), so that all workers share it.
A busy worker takes a little in advance (a tenth of a second's worth) and gives back what it did not use: never more
passes than agreed, and not every request costs a question. Unlike the carriers' limits a missing bucket reads as full:
nothing is owed for requests that a restart forgot.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any, Final

import redis.asyncio
from redis.exceptions import NoScriptError, RedisError

from gateway.api.answers import Headers
from gateway.gathering import Gatherer, GatheringFull
from gateway.policy.rules.snapshot import Limit
from scheduler.core.values import valueclass

REDIS_S: Final = 0.25
_TOLLS_MAX: Final = 500
_TOLLS_PACE_S: Final = 0.004  # how far apart the calls of a crowd are

# KEYS: one per tenant. ARGV per tenant: rate per s, burst, what is given back, number of tolls, then per toll its cost
# and what is wished in advance. Answers per toll: allowed, taken in advance, what is left, ms until this cost fits, ms
# until the bucket is full. A batch may be owed; what is more is left of a clock that was put back or of a lower rate.
_SCRIPT: Final = """
local OWED_MAX = 1000 -- messages of a batch
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
local out, at = {}, 1
for i = 1, #KEYS do
  local rate, burst = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local back, n = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  at = at + 4
  local per, depth = 1000 / rate, burst * 1000 / rate
  local full = tonumber(redis.call('GET', KEYS[i]) or now) - back * per
  if full < now then full = now end
  full = math.min(full, now + depth + OWED_MAX * per)
  local function left()
    return math.max(0, math.floor((depth - (full - now)) / per + 0.001))
  end
  local changed = back > 0
  for _ = 1, n do
    local cost, wish = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
    at = at + 2
    local short = (full - now) + math.min(cost, burst) * per - depth
    local allowed, ahead = 0, 0
    if short <= 0.001 then
      full = full + cost * per
      ahead = math.min(wish, left())
      full = full + ahead * per
      changed, allowed, short = true, 1, 0
    end
    out[#out + 1] = allowed
    out[#out + 1] = ahead
    out[#out + 1] = left()
    out[#out + 1] = math.ceil(short)
    out[#out + 1] = math.ceil(full - now)
  end
  if changed then redis.call('SET', KEYS[i], string.format('%.3f', full), 'PX', math.ceil(full - now) + 1000) end
end
return out
"""
_ANSWERS: Final = 5
_ADVANCE_S: Final = 0.1
_ADVANCE_MAX: Final = 200
_FRESH_S: Final = 0.25  # longer than this a worker keeps nothing that it took in advance
_TENANTS_MAX: Final = 10_000


@valueclass
class Toll:
    """A request at the door: `cost` messages of a tenant whose rate is `limit`."""

    tenant_id: int
    limit: Limit
    cost: int = 1


@valueclass
class Grant:
    """Whether a request may pass, and what is left (messages, seconds)."""

    limit: Limit
    allowed: bool
    remaining: int
    retry_after_s: int
    full_in_s: int

    def headers(self) -> Headers:
        """RateLimit-Policy and RateLimit as draft-ietf-httpapi-ratelimit-headers has them."""
        window_s = max(1, math.ceil(self.limit.burst / self.limit.rate_per_s))
        return (
            (b"ratelimit-policy", b'"requests";q=%d;w=%d' % (self.limit.burst, window_s)),
            (b"ratelimit", b'"requests";r=%d;t=%d' % (self.remaining, self.full_in_s)),
        )


@dataclass(slots=True)
class _Purse:
    """What this worker took of a tenant's bucket in advance."""

    limit: Limit
    held: int = 0
    left: int = 0
    full_in_s: int = 0
    taken_mono: float = 0.0


class DoorRate:
    """Takes tolls, many in one call."""

    def __init__(self, client: redis.asyncio.Redis, cell: str) -> None:
        self._redis = client
        self._prefix = f"{{{cell}}}:door:"
        self._sha = ""
        self._purses: dict[int, _Purse] = {}
        self._questions: Gatherer[Toll, Grant | None] = Gatherer(self._ask, _TOLLS_MAX, pace_s=_TOLLS_PACE_S)
        self.run = self._questions.run
        self.stop = self._questions.stop

    async def take(self, toll: Toll) -> Grant | None:
        """A grant, or a refusal; None where Redis does not answer in time."""
        purse = self._purses.get(toll.tenant_id)
        if (
            purse is not None
            and purse.held >= toll.cost
            and purse.limit == toll.limit
            and asyncio.get_running_loop().time() - purse.taken_mono < _FRESH_S
        ):
            purse.held -= toll.cost
            return Grant(toll.limit, True, purse.left + purse.held, 1, purse.full_in_s)
        try:
            return await self._questions.ask(toll)
        except GatheringFull:
            return None

    async def _ask(self, tolls: list[Toll]) -> list[Grant | None]:
        places: dict[int, list[int]] = {}
        for n, toll in enumerate(tolls):
            places.setdefault(toll.tenant_id, []).append(n)
        keys = [f"{self._prefix}{tenant_id}" for tenant_id in places]
        arguments: list[Any] = []
        for tenant_id, of_tenant in places.items():
            limit = tolls[of_tenant[0]].limit
            arguments += [limit.rate_per_s, limit.burst, self._empty(tenant_id), len(of_tenant)]
            for n in of_tenant:
                # Only the last toll of a batch takes in advance: it sees what the others left.
                arguments += [tolls[n].cost, _advance(limit) if n == of_tenant[-1] else 0]
        try:
            async with asyncio.timeout(REDIS_S):
                told = await self._evaluate(keys, arguments)
        except (RedisError, OSError, TimeoutError):
            return [None] * len(tolls)
        grants: list[Grant | None] = [None] * len(tolls)
        place = 0
        for tenant_id, of_tenant in places.items():
            for n in of_tenant:
                grants[n] = self._granted(tenant_id, tolls[n].limit, told[place : place + _ANSWERS])
                place += _ANSWERS
        return grants

    def _empty(self, tenant_id: int) -> int:
        """What the purse still holds, to be given back: it is counted anew."""
        purse = self._purses.get(tenant_id)
        if purse is None:
            return 0
        held, purse.held = purse.held, 0
        return held

    def _granted(self, tenant_id: int, limit: Limit, told: list[int]) -> Grant:
        allowed, ahead, left, wait_ms, full_ms = (int(one) for one in told)
        full_in_s = math.ceil(full_ms / 1000)
        if ahead:
            while tenant_id not in self._purses and len(self._purses) >= _TENANTS_MAX:
                del self._purses[next(iter(self._purses))]
            taken_mono = asyncio.get_running_loop().time()
            self._purses[tenant_id] = _Purse(limit, ahead, left, full_in_s, taken_mono)
        return Grant(limit, bool(allowed), left + ahead, max(1, math.ceil(wait_ms / 1000)), full_in_s)

    async def _evaluate(self, keys: list[str], arguments: list[Any]) -> list[int]:
        if self._sha:
            try:
                return list(await self._redis.evalsha(self._sha, len(keys), *keys, *arguments))
            except NoScriptError:
                pass
        loaded: Any = await self._redis.script_load(_SCRIPT)
        self._sha = loaded.decode("ascii") if isinstance(loaded, bytes) else str(loaded)
        return list(await self._redis.evalsha(self._sha, len(keys), *keys, *arguments))


def _advance(limit: Limit) -> int:
    wish = int(min(limit.burst * _ADVANCE_S, limit.rate_per_s * _ADVANCE_S, _ADVANCE_MAX))
    return wish if wish > 1 else 0
