"""What the index holds: references of 42 octets in flows, and batches of them as the ledger's outbox keeps them.

A reference says which slot of which message may be claimed and until when; never text or number (design section 1).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from scheduler.core.names import SEPARATOR, escape, unescape
from scheduler.core.values import valueclass

REFERENCE_SIZE = 42
NO_NUMBER = bytes(8)
_REFERENCE = struct.Struct(">16sIBBHIHI8s")  # id, slot, segments, flags, deadline and queued as 16 + 32 bits, number
_U48_MAX = (1 << 48) - 1

# Kinds of scopes in the fixed order in which they stand in a flow key (contract section 2 names them).
KINDS = ("tenant", "application", "sender", "destination", "number", "route", "provider", "session")
_RANK = {kind: rank for rank, kind in enumerate(KINDS)}

BATCH_VERSION = 1


class BatchMalformed(ValueError):
    """A packed batch that is cut, of another version, or not a batch."""


@valueclass
class Reference:
    """A claimable slot of a message; `_at` are UTC ms on the queue's clock; `number` stands for the recipient."""

    id: bytes
    slot: int
    segments: int
    deadline_at: int
    queued_at: int
    number: bytes = NO_NUMBER

    def __post_init__(self) -> None:
        if len(self.id) != 16 or len(self.number) != 8:
            raise ValueError("a reference has an id of 16 and a number token of 8 octets")
        if not 1 <= self.segments <= 255:
            raise ValueError("a reference has 1 to 255 segments")
        if not (0 <= self.deadline_at <= _U48_MAX and 0 <= self.queued_at <= _U48_MAX):
            raise ValueError("instants of a reference are ms in 48 bits")

    def pack(self) -> bytes:
        """The 42 octets that stand in a flow's list."""
        return _REFERENCE.pack(
            self.id,
            self.slot,
            self.segments,
            0,
            self.deadline_at >> 32,
            self.deadline_at & 0xFFFFFFFF,
            self.queued_at >> 32,
            self.queued_at & 0xFFFFFFFF,
            self.number,
        )

    @staticmethod
    def unpack(octets: bytes) -> Reference:
        """The reference behind 42 octets; struct.error where they are not 42."""
        id_, slot, segments, _, deadline_hi, deadline_lo, queued_hi, queued_lo, number = _REFERENCE.unpack(octets)
        return Reference(id_, slot, segments, deadline_hi << 32 | deadline_lo, queued_hi << 32 | queued_lo, number)


@valueclass
class Flow:
    """The messages that share one set of limits; `scopes` are `kind:name`, sorted into the order of kinds."""

    provider: str
    class_name: str
    tenant: str
    scopes: tuple[str, ...]
    ttl_band: int

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.scopes, key=_scope_rank))
        if ordered != self.scopes:
            object.__setattr__(self, "scopes", ordered)

    @property
    def key(self) -> str:
        """The flow's name in the index: provider, class, band, tenant and scopes, escaped."""
        return _flow_key(self)

    @staticmethod
    def parse(key: str) -> Flow:
        """The flow behind a key (the `retry` scope of a retry flow is part of the key, not of the flow)."""
        provider, class_name, band, tenant, *scopes = [unescape(part) for part in key.split(SEPARATOR)]
        return Flow(provider, class_name, tenant, tuple(s for s in scopes if not s.startswith("retry:")), int(band))


def _scope_rank(scope: str) -> tuple[int, str]:
    kind = scope.partition(":")[0]
    return _RANK.get(kind, len(KINDS)), scope


@lru_cache(maxsize=32_768)
def _flow_key(flow: Flow) -> str:
    parts = (flow.provider, flow.class_name, str(flow.ttl_band), flow.tenant, *flow.scopes)
    return SEPARATOR.join([escape(part) for part in parts])


@lru_cache(maxsize=32_768)
def retry_key(flow: Flow) -> str:
    """The key of the flow in which retries wait: the same limits and the provider's retry share on top."""
    return flow.key + SEPARATOR + escape(f"retry:{flow.provider}")


@valueclass
class Entry:
    """A reference on its way into the index; `front` keeps the place of one that was there before."""

    flow: Flow
    reference: Reference
    front: bool = False
    retry: bool = False

    @property
    def queue_key(self) -> str:
        """The key of the flow in which this entry waits."""
        return retry_key(self.flow) if self.retry else self.flow.key


@dataclass(slots=True)
class _Group:
    flow: Flow
    flags: int
    references: list[bytes] = field(default_factory=list)


def pack_batch(entries: Sequence[Entry]) -> bytes:
    """A batch as one run of octets: version, then per run of equal flow and flags the key and its references."""
    groups: list[_Group] = []
    for entry in entries:
        flags = entry.front | entry.retry << 1
        if not groups or groups[-1].flags != flags or groups[-1].flow != entry.flow:
            groups.append(_Group(entry.flow, flags))
        groups[-1].references.append(entry.reference.pack())
    parts = [struct.pack(">BI", BATCH_VERSION, len(groups))]
    for group in groups:
        key = group.flow.key.encode()
        parts.append(struct.pack(">BHI", group.flags, len(key), len(group.references)))
        parts.append(key)
        parts.extend(group.references)
    return b"".join(parts)


def unpack_batch(octets: bytes) -> list[Entry]:
    """The entries of a packed batch in order; BatchMalformed where the octets are no batch."""
    try:
        return _unpack_batch(octets)
    except (struct.error, ValueError, IndexError) as fault:
        raise BatchMalformed("not a batch of references") from fault


def _unpack_batch(octets: bytes) -> list[Entry]:
    version, groups = struct.unpack_from(">BI", octets)
    if version != BATCH_VERSION:
        raise BatchMalformed(f"batch version {version} is not known")
    at = 5
    entries: list[Entry] = []
    for _ in range(groups):
        flags, key_size, count = struct.unpack_from(">BHI", octets, at)
        at += 7
        flow = Flow.parse(octets[at : at + key_size].decode())
        at += key_size
        for _ in range(count):
            reference = Reference.unpack(octets[at : at + REFERENCE_SIZE])
            entries.append(Entry(flow, reference, front=bool(flags & 1), retry=bool(flags & 2)))
            at += REFERENCE_SIZE
    if at != len(octets):
        raise BatchMalformed("octets after the end of the batch")
    return entries
