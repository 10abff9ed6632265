"""The inbound loop: parts that egress kept become texts of the tenant that owns the number (delivery role).

One process of the installation joins at a time; a batch is one transaction: text, stop or start word, callback.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import asyncpg

from gateway.domain import ids, keywords
from gateway.domain.joining import Gathered, Part, settle
from gateway.hearing import hear
from gateway.inbound.reading import Read, decoder_of, handset_number, join_key, read_part
from gateway.ledger import consents, inbound
from gateway.ledger.callback_lines import TenantNotice, add_notices
from gateway.ledger.inbound import Handed
from gateway.ledger.tenants import ids_by_name
from gateway.logs import get
from gateway.loops import end, repeat
from gateway.policy.rules.snapshot import Policy
from gateway.runtime import Runtime
from gateway.sealing import SealBroken, about_provider
from gateway.telemetry import metrics
from scheduler.core.values import valueclass

BATCH: Final = 200
_LOOK_S: Final = 5.0  # new parts wake the loop; a wake that was lost costs this much at most
_BUSY_S: Final = 0.5
# A part that came again long after its message was handed over is no repeat any more.
_REPEATS_MS: Final = 600_000

log = get(__name__)


@valueclass
class _Told:
    """A text whose parts are together, before it is known whose it is."""

    provider: str
    sender: str
    source_ton: int
    recipient: str
    text: str
    received_at: int
    parts: int
    total: int


class Joiner:
    """Joins and hands over until the role stops."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._woken = asyncio.Event()
        self._unparked = False
        self._adopted_for: Policy | None = None

    async def run(self) -> None:
        """Works until the role stops."""
        hearing = asyncio.create_task(hear(self._rt, inbound.CHANNEL, self._woken), name="inbound_hearing")
        try:
            await repeat("inbound", self._rt.stopping, self.turn, self._woken)
        finally:
            await end([hearing])

    async def turn(self) -> float:
        """One batch; returns the seconds until the next."""
        async with self._rt.pool.acquire() as conn:
            if not self._unparked:
                await inbound.unpark(conn)  # this process may have the key that a former one lacked
                self._unparked = True
            return await self.work(conn)

    async def work(self, conn: asyncpg.Connection[Any]) -> float:
        """One batch; returns how many seconds nothing more is to be done unless something comes."""
        policy, now_at = self._rt.policies.current, self._rt.clock.now_at()
        timeout_ms = policy.inbound.join_timeout_ms
        async with conn.transaction():
            if not await inbound.begin(conn):
                return _BUSY_S
            rows = await inbound.unread(conn, BATCH)
            handed = await self._take(conn, policy, rows, now_at)
            adopted = await self._adopt(conn, policy, now_at)
            forgotten = await inbound.forget(conn, now_at - max(timeout_ms, _REPEATS_MS), BATCH)
            oldest_at = await inbound.oldest_waiting(conn)
        for one in handed:
            outcome = "unowned" if one.tenant_id is None else "joined" if one.parts == one.total else "incomplete"
            metrics.inbound_total.labels(outcome).inc()
        if len(rows) == BATCH or adopted or forgotten == BATCH:
            return 0.0
        return _LOOK_S if oldest_at is None else min(_LOOK_S, max(0.0, (oldest_at + timeout_ms - now_at) / 1000) or 0.1)

    def _read(self, row: Mapping[str, Any]) -> Read | None:
        """A kept part; None where this process has not the key that it is sealed under."""
        try:
            raw = self._rt.sealer.unwrap(bytes(row["raw"]), about_provider(row["provider"]))
        except SealBroken:
            log.error("inbound_part_sealed", part=row["id"])
            return None
        return read_part(raw, data_sm=row["data_sm"])

    async def _take(
        self, conn: asyncpg.Connection[Any], policy: Policy, rows: list[asyncpg.Record], now_at: int
    ) -> list[Handed]:
        told: list[_Told] = []
        done: list[int] = []
        keys: dict[int, bytes] = {}
        for row in rows:
            read = self._read(row)
            if read is None:
                keys[row["id"]] = inbound.PARKED
            elif read.place is None:
                told.append(_whole(policy, row, read))
                done.append(row["id"])
            else:
                keys[row["id"]] = join_key(row["sender"], row["recipient"], read.place)
        await inbound.wait(conn, keys)
        timeout_ms = policy.inbound.join_timeout_ms
        touched = set(keys.values()) | set(await inbound.late(conn, now_at - timeout_ms, BATCH))
        touched.discard(inbound.PARKED)
        by_key: dict[bytes, list[asyncpg.Record]] = {}
        for row in await inbound.siblings(conn, sorted(touched)):
            by_key.setdefault(row["join_key"], []).append(row)
        for group in by_key.values():
            reads = {row["id"]: self._read(row) for row in group}
            await inbound.wait(conn, {row_id: inbound.PARKED for row_id, read in reads.items() if read is None})
            joined, over = _join(policy, group, reads, now_at)
            told += joined
            done += over
        handed = await self._hand_over(conn, policy, told, now_at)
        await inbound.finish(conn, done, now_at)
        return handed

    async def _hand_over(
        self, conn: asyncpg.Connection[Any], policy: Policy, told: Sequence[_Told], now_at: int
    ) -> list[Handed]:
        owners = [keywords.owner_of(policy, one.recipient) for one in told]
        known = await ids_by_name(conn, {owner.tenant for owner in owners if owner is not None})
        handed = [
            self._handed(policy, one, owner, None if owner is None else known.get(owner.tenant), now_at)
            for one, owner in zip(told, owners, strict=True)
        ]
        await inbound.insert(conn, self._rt.sealer, handed)
        await self._heed(conn, policy, [one for one in handed if one.tenant_id is not None], now_at)
        return handed

    def _handed(
        self, policy: Policy, told: _Told, owner: keywords.Ownership | None, tenant_id: int | None, now_at: int
    ) -> Handed:
        recipient = told.recipient if owner is None else owner.number
        return Handed(
            id=ids.uuid7(now_at, os.urandom(10)),
            tenant_id=tenant_id,
            provider=told.provider,
            sender=handset_number(told.sender, told.source_ton, recipient),
            recipient=recipient,
            text=told.text,
            received_at=told.received_at,
            parts=told.parts,
            total=told.total,
            keyword=keywords.keyword_of(told.text, policy.inbound) if told.parts == told.total else None,
        )

    async def _heed(self, conn: asyncpg.Connection[Any], policy: Policy, texts: Iterable[Handed], now_at: int) -> None:
        """What a text does besides being there: stop and start words, and the tenant is told."""
        notices: list[TenantNotice] = []
        for one in texts:
            assert one.tenant_id is not None
            notices.append(TenantNotice(one.tenant_id, "message.received", one.id, _shown(one)))
            if one.keyword == keywords.STOP:
                if await consents.stop(conn, one.tenant_id, one.sender, one.recipient, now_at):
                    notices.append(TenantNotice(one.tenant_id, "optout.created", one.id, _opt_out(one, now_at)))
            elif one.keyword == keywords.START:
                await consents.start(conn, one.tenant_id, one.sender, one.recipient, now_at)
        await add_notices(conn, policy, notices, now_at)

    async def _adopt(self, conn: asyncpg.Connection[Any], policy: Policy, now_at: int) -> int:
        """Texts that waited for an owner, once a new policy version names one; returns how many."""
        if self._adopted_for is policy:
            return 0
        numbers = [row["recipient"] for row in await inbound.unowned_numbers(conn, 10_000)]
        owned = {number: owner for number in numbers if (owner := keywords.owner_of(policy, number)) is not None}
        rows = await inbound.unowned(conn, list(owned), BATCH) if owned else []
        known = await ids_by_name(conn, {owner.tenant for owner in owned.values()})
        texts = [_adopted(row, owned[row["recipient"]], known) for row in rows]
        texts = [one for one in texts if one.tenant_id is not None]
        if not texts:
            self._adopted_for = policy
            return 0
        await inbound.adopt(conn, texts)
        await self._heed(conn, policy, texts, now_at)
        return len(texts)


def _whole(policy: Policy, row: Mapping[str, Any], read: Read) -> _Told:
    text = decoder_of(policy, row["provider"])(read.octets, read.coding)
    return _Told(row["provider"], row["sender"], read.source_ton, row["recipient"], text, row["received_at"], 1, 1)


def _join(
    policy: Policy, group: list[asyncpg.Record], reads: Mapping[int, Read | None], now_at: int
) -> tuple[list[_Told], list[int]]:
    """What the parts under one key come to, and the rows that are done with it; what cannot be read waits."""
    parts: list[Part] = []
    tons: dict[int, int] = {}
    for row in group:
        read = reads[row["id"]]
        if read is not None and read.place is not None:
            tons[row["id"]] = read.source_ton
            parts.append(
                Part(
                    row_id=row["id"],
                    number=read.place.number,
                    total=read.place.total,
                    octets=read.octets,
                    coding=read.coding,
                    received_at=row["received_at"],
                    done=row["done_at"] is not None,
                )
            )
    settled = settle(parts, now_at, policy.inbound.join_timeout_ms)
    first = group[0]
    decode = decoder_of(policy, first["provider"])

    def told(message: Gathered) -> _Told:
        ton = tons[message.row_ids[0]]
        text = message.text(decode)
        return _Told(
            first["provider"], first["sender"], ton, first["recipient"], text,
            message.begun_at, len(message.parts), message.total,
        )  # fmt: skip

    over = [row_id for message in settled.messages for row_id in message.row_ids]
    return [told(message) for message in settled.messages], over + settled.doubles


def _adopted(row: Mapping[str, Any], owner: keywords.Ownership, known: Mapping[str, int]) -> Handed:
    return Handed(
        id=row["id"],
        tenant_id=known.get(owner.tenant),
        provider=row["provider"],
        sender=handset_number(row["sender"], 0, owner.number),
        recipient=owner.number,
        text="",
        received_at=row["received_at"],
        parts=row["parts"],
        total=row["total"],
        keyword=row["keyword"],
    )


def _shown(one: Handed) -> dict[str, Any]:
    """The entry as a callback keeps it: without the text, which is put in when it is sent."""
    row = {
        "id": one.id,
        "sender": one.sender,
        "recipient": one.recipient,
        "received_at": one.received_at,
        "parts": one.parts,
        "total": one.total,
        "keyword": one.keyword,
    }
    return inbound.shown(row, None) | {"seq": 1}


def _opt_out(one: Handed, now_at: int) -> dict[str, Any]:
    return {
        "number": one.sender,
        "sender": one.recipient,
        "source": consents.INBOUND,
        "created_at": ids.rfc3339(now_at),
        "inbound_id": inbound.shown_id(one.id),
        "seq": 1,
    }
