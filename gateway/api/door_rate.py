"""The door's rate: messages per second of a tenant, over all its keys and all workers (contract section 2, `quota.rate`).

One bucket per tenant in Redis, kept as the time at which it will be full again (GCRA), so that all workers share it.
Unlike the carriers' limits a missing bucket reads as full: nothing is owed for requests that a restart forgot.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import redis.asyncio
from redis.exceptions import NoScriptError, RedisError

from gateway.api.answers import Headers
from gateway.policy.rules.snapshot import Limit

REDIS_S: Final = 0.25

# KEYS: one per tenant. ARGV per tenant: rate per s, burst, number of costs, costs. Answers per cost: allowed,
# what is left, ms until this cost fits, ms until the bucket is full.
_SCRIPT: Final = """
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
local out, at = {}, 1
for i = 1, #KEYS do
  local rate, burst, n = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  at = at + 3
  local per, depth = 1000 / rate, burst * 1000 / rate
  local full = tonumber(redis.call('GET', KEYS[i]) or now)
  if full < now then full = now end
  if full > now + depth * 2 then full = now + depth * 2 end
  local changed = false
  for _ = 1, n do
    local cost = tonumber(ARGV[at])
    at = at + 1
    local short = (full - now) + math.min(cost, burst) * per - depth
    local allowed = 0
    if short <= 0.001 then
      full = full + cost * per
      changed, allowed, short = true, 1, 0
    end
    local left = math.floor((depth - (full - now)) / per + 0.001)
    if left < 0 then left = 0 end
    out[#out + 1] = allowed
    out[#out + 1] = left
    out[#out + 1] = math.ceil(short)
    out[#out + 1] = math.ceil(full - now)
  end
  if changed then redis.call('SET', KEYS[i], string.format('%.3f', full), 'PX', math.ceil(full - now) + 1000) end
end
return out
"""


@dataclass(frozen=True, slots=True)
class Toll:
    """A request at the door: `cost` messages of a tenant whose rate is `limit`."""

    tenant_id: int
    limit: Limit
    cost: int = 1


@dataclass(frozen=True, slots=True)
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


class DoorRate:
    """Takes tolls, many in one call."""

    def __init__(self, client: redis.asyncio.Redis, cell: str) -> None:
        self._redis = client
        self._prefix = f"{{{cell}}}:door:"
        self._sha = ""

    async def take(self, tolls: Sequence[Toll]) -> list[Grant | None]:
        """A grant per toll, in order; None for all of them where Redis does not answer in time."""
        places: dict[int, list[int]] = {}
        for n, toll in enumerate(tolls):
            places.setdefault(toll.tenant_id, []).append(n)
        keys = [f"{self._prefix}{tenant_id}" for tenant_id in places]
        arguments: list[Any] = []
        for of_tenant in places.values():
            limit = tolls[of_tenant[0]].limit
            arguments += [limit.rate_per_s, limit.burst, len(of_tenant), *(tolls[n].cost for n in of_tenant)]
        try:
            async with asyncio.timeout(REDIS_S):
                told = await self._evaluate(keys, arguments)
        except (RedisError, OSError, TimeoutError):
            return [None] * len(tolls)
        grants: list[Grant | None] = [None] * len(tolls)
        order = [n for of_tenant in places.values() for n in of_tenant]
        for place, n in enumerate(order):
            allowed, remaining, wait_ms, full_ms = told[place * 4 : place * 4 + 4]
            grants[n] = Grant(
                tolls[n].limit,
                bool(allowed),
                int(remaining),
                max(1, math.ceil(wait_ms / 1000)),
                math.ceil(full_ms / 1000),
            )
        return grants

    async def _evaluate(self, keys: list[str], arguments: list[Any]) -> list[int]:
        if self._sha:
            try:
                return list(await self._redis.evalsha(self._sha, len(keys), *keys, *arguments))
            except NoScriptError:
                pass
        self._sha = str(await self._redis.script_load(_SCRIPT))
        return list(await self._redis.evalsha(self._sha, len(keys), *keys, *arguments))
