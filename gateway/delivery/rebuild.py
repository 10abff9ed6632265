"""Fills the index again from the ledger when it was lost, OTP first (design section 2, "Redis a rebuildable index")."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final
from uuid import uuid4

import asyncpg

from gateway.admission.flows import entry_of, limited_scopes
from gateway.delivery.pausing import Pausing
from gateway.ledger.connect import connect
from gateway.ledger.outcomes import forget_outbox
from gateway.ledger.rebuild import (
    all_tenants,
    outbox_ids,
    queued_of_class,
    queued_of_line,
    queued_of_others,
    rebuilder,
)
from gateway.logs import get
from gateway.loops import repeat
from gateway.policy.rules.snapshot import Policy
from gateway.policy.rules.tuning import tuning_of
from gateway.runtime import Runtime
from scheduler.core.records import Entry

LOOK_S: Final = 1.0
_SLICE: Final = 1_000

log = get(__name__)


class Rebuilder:
    """Keeps the index in step with the policy, and rebuilds it under a lock when its epoch is gone."""

    def __init__(self, rt: Runtime, pausing: Pausing | None = None) -> None:
        """`pausing` tells the new index what is paused before its first class opens."""
        self._rt = rt
        self._pausing = pausing or Pausing(rt)
        self._tuned: Policy | None = None

    async def run(self) -> None:
        """Work until the role stops."""
        await repeat("rebuild", self._rt.stopping, self.turn)

    async def turn(self) -> float:
        """One look: rebuild what was lost, and tell the index of a new policy."""
        if await self._rt.scheduler.epoch_state() != "ready":
            await self.rebuild()
        policy = self._rt.policies.current
        if policy is not self._tuned:
            await self._rt.scheduler.tune(tuning_of(policy))
            await self._rt.scheduler.look_again()
            if await self._arranged(policy):
                self._tuned = policy
        return LOOK_S

    async def _arranged(self, policy: Policy) -> bool:
        """A limit where there was none: what waits already must keep it too, so it goes into the flows that have it.

        The index says for which limits it was done: a process that ended over it, or was not there when the policy
        changed, leaves it to the next one. False where another process is at it.
        """
        mark = _arrangement(policy)
        if await self._rt.scheduler.arrangement() == mark:
            return True
        if not await self._move_into_other_flows():
            return False
        await self._rt.scheduler.set_arrangement(mark)
        return True

    async def _move_into_other_flows(self) -> bool:
        order = {name: place for place, name in enumerate(_in_order(self._rt.policies.current))}
        lines = [line for line, waiting in (await self._rt.scheduler.counts()).items() if waiting]
        for provider, class_name in sorted(lines, key=lambda line: order.get(line[1], len(order))):
            count = await self.reload_line(provider, class_name)
            if count is None:
                return False
            log.info("index_line_in_other_flows", provider=provider, traffic_class=class_name, messages=count)
        return True

    async def rebuild(self) -> bool:
        """Rebuild the whole index unless another process is at it; returns whether this one did."""
        conn = await connect(self._rt.settings.database_url)
        try:
            async with rebuilder(conn) as won:
                # `loading` without a holder of the lock is a rebuild whose process died: begin anew.
                if not won or await self._rt.scheduler.epoch_state() == "ready":
                    return False
                return await self._fill(conn)
        finally:
            await conn.close(timeout=5)

    async def reload_line(self, provider: str, class_name: str) -> int | None:
        """Rebuild one line alone; returns how many messages it got, None where another process rebuilds."""
        conn = await connect(self._rt.settings.database_url)
        try:
            async with rebuilder(conn) as won:
                if not won:
                    return None
                names = await all_tenants(conn)
                await self._rt.scheduler.drop_line(provider, class_name)
                count = 0
                async for page in queued_of_line(conn, provider, class_name):
                    entries = self._entries(page, names)
                    for start in range(0, len(entries), _SLICE):
                        await self._rt.scheduler.enqueue(uuid4().bytes, entries[start : start + _SLICE])
                    count += len(entries)
                return count
        finally:
            await conn.close(timeout=5)

    async def _fill(self, conn: asyncpg.Connection[Any]) -> bool:
        began = time.monotonic()
        scheduler, policy = self._rt.scheduler, self._rt.policies.current
        # The epoch goes to `loading` before the first row is read: nothing can enter beside the rebuild.
        epoch = await scheduler.begin_rebuild()
        if epoch is None:  # the index still takes another rebuilder for alive
            return False
        await scheduler.tune(tuning_of(policy))
        self._tuned = policy
        await self._pausing.apply(conn, again=True)
        names = await all_tenants(conn)
        # What stands in the outbox now is read below as well: enqueued again it would only be there twice.
        covered = await outbox_ids(conn)
        count = 0
        for class_name in _in_order(policy):
            count += await self._load(epoch, queued_of_class(conn, class_name), names)
            await scheduler.open_class(epoch, class_name)
            log.info("index_class_open", traffic_class=class_name, messages=count, after_s=_since(began))
        count += await self._load(epoch, queued_of_others(conn, list(policy.classes)), names)
        await scheduler.set_arrangement(_arrangement(policy))
        await scheduler.finish_rebuild(epoch)
        await forget_outbox(conn, covered)
        log.warning("index_rebuilt", messages=count, took_s=_since(began))
        return True

    async def _load(self, epoch: str, pages: AsyncIterator[list[asyncpg.Record]], names: Mapping[int, str]) -> int:
        """Load pages in order. One slice is on its way to the index while the next is read and packed."""
        count = 0
        sending: asyncio.Task[None] | None = None
        try:
            async for page in pages:
                for start in range(0, len(page), _SLICE):
                    entries = self._entries(page[start : start + _SLICE], names)
                    if sending is not None:
                        await sending
                    sending = asyncio.create_task(self._rt.scheduler.load(epoch, entries), name="rebuild_load")
                    # Receipts and callbacks of this process go on meanwhile.
                    await asyncio.sleep(0)
                count += len(page)
            if sending is not None:
                await sending
        finally:
            if sending is not None and not sending.done():
                sending.cancel()
        return count

    def _entries(self, rows: Sequence[Mapping[str, Any]], names: Mapping[int, str]) -> list[Entry]:
        policy, pepper = self._rt.policies.current, self._rt.pepper
        return [entry_of(policy, pepper, names.get(row["tenant_id"], ""), row) for row in rows]


def _in_order(policy: Policy) -> list[str]:
    """Class names as they are opened: OTP first, then by weight."""
    ordered = sorted(policy.classes.values(), key=lambda one: (one.name != "otp", -one.weight, one.name))
    return [one.name for one in ordered]


def _arrangement(policy: Policy) -> str:
    """Sixteen hex digits that differ where what waits belongs into other flows."""
    return blake2b(repr(sorted(limited_scopes(policy))).encode(), digest_size=8).hexdigest()


def _since(began_mono: float) -> float:
    return round(time.monotonic() - began_mono, 3)
