"""Faults that strike a whole gateway: kills, pauses, a lost or an outdated index, steps of the wall clock."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from loadtests.evidence import claimed, outbox_rows
from loadtests.oracle import Kill
from loadtests.world import World, kill, send_signal

KILLED: Final = ("api", "egress", "delivery", "postgres", "valkey")
PAUSED: Final = tuple(f"pause-{role}" for role in KILLED)
# flushall: the index loses everything; snapshot: it comes back as it was seconds before; stores: both stores at once.
KINDS: Final = (*KILLED, *PAUSED, "flushall", "snapshot", "stores", "clock")

PAUSE_S: Final = {"postgres": (0.5, 4.0), "valkey": (0.5, 4.0)}
PAUSE_OF_ROLE_S: Final = (0.5, 12.0)  # past the response timer, the lease and an owner's heartbeat
SNAPSHOT_AGE_S: Final = (0.5, 3.0)
STEP_S: Final = (1.0, 6.0)
STEPPED_S: Final = (1.0, 4.0)
_FLIES_WITHIN_S = 10.0
_FLYING = 10
_STARTS_WITHIN_S = 20.0


async def strike(world: World, target: str, dice: random.Random, *, repeated: bool = False) -> Kill:
    """One fault, at a moment with claimed work, with the instants around it; it is over when this returns.

    `repeated`: a second one, while what the first has hit starts anew.
    """
    await asyncio.to_thread(_await_process, world, target)
    if target == "snapshot":
        world.save_index()
        await asyncio.sleep(dice.uniform(*SNAPSHOT_AGE_S))
    role = {"snapshot": "valkey"}.get(target, target.removeprefix("pause-"))
    pids = [] if role in ("flushall", "clock") else await asyncio.to_thread(world.victims, role, dice.choice)
    if not repeated:
        await _flies(world)
    waiting = 0 if repeated or role in ("postgres", "stores") else await outbox_rows(world)
    began_at = _now_at()
    if target == "flushall":
        world.flush_index()
    elif target == "clock":
        async with stepped(world, dice):
            await asyncio.sleep(dice.uniform(*STEPPED_S))
    elif target.startswith("pause-"):
        await _pause(pids, dice.uniform(*PAUSE_S.get(role, PAUSE_OF_ROLE_S)))
    else:
        kill(pids)
    done_at = _now_at()
    if target == "snapshot":
        await asyncio.to_thread(_await_restart, world, pids)
        world.forget_saved_index()
    return Kill(target, began_at, done_at, repeated, waiting, tuple(pids))


@asynccontextmanager
async def stepped(world: World, dice: random.Random) -> AsyncIterator[None]:
    """The wall clocks of the gateway's processes are off, one way or the other, and then right again at once."""
    world.step_clock(dice.choice((-1, 1)) * dice.uniform(*STEP_S))
    try:
        yield
    finally:
        world.step_clock(0.0)


async def _pause(pids: list[int], seconds: float) -> None:
    send_signal(pids, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        send_signal(pids, signal.SIGCONT)


async def _flies(world: World) -> None:
    """Wait for claimed work: a pause of the machine just then would make the strike prove nothing."""
    end_mono = time.monotonic() + _FLIES_WITHIN_S
    while await claimed(world) < _FLYING and time.monotonic() < end_mono:
        await asyncio.sleep(0.01)


def _await_process(world: World, target: str) -> None:
    """The supervisor starts it anew: there must be something to kill."""
    end_mono = time.monotonic() + _STARTS_WITHIN_S
    while target in (*KILLED, "stores") and not world.pids(target) and time.monotonic() < end_mono:
        time.sleep(0.02)


def _await_restart(world: World, before: list[int]) -> None:
    """Wait until Valkey runs anew and answers: it has read what was saved."""
    end_mono = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < end_mono:
        now = world.pids("valkey")
        if now and not set(now) & set(before) and world.index_answers():
            return
        time.sleep(0.05)


def _now_at() -> int:
    return time.time_ns() // 1_000_000
