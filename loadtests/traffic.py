"""An obedient client under load: open loop at a rate, one idempotency key per message, repeated until it is answered.

It keeps the client's journal: which 202 was given for which `client_ref`, and when.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter, deque
from dataclasses import dataclass, field

import aiohttp

CLASSES = ("otp", "transactional", "marketing")
_REPEATABLE = frozenset({408, 409, 429, 500, 502, 503})


@dataclass(slots=True)
class ClientJournal:
    """What the client was told."""

    accepted: dict[str, str] = field(default_factory=dict)  # client_ref -> message id
    accepted_mono: deque[float] = field(default_factory=deque)  # when each 202 came, in order
    answers: Counter[int | str] = field(default_factory=Counter)  # status, or why there was none
    refused: set[str] = field(default_factory=set)  # got nothing but refusals
    contradicted: list[str] = field(default_factory=list)  # the same key was answered with another message
    given_up: list[str] = field(default_factory=list)
    attempted: int = 0

    def rate_per_s(self, within_s: float = 1.0) -> float:
        """Messages accepted per second during the last `within_s`."""
        since_mono = time.monotonic() - within_s
        recent = itertools.takewhile(lambda at_mono: at_mono >= since_mono, reversed(self.accepted_mono))
        return sum(1 for _ in recent) / within_s

    def longest_silence_s(self) -> float:
        """The longest time without any 202 between the first and the last one."""
        return max((later - at for at, later in itertools.pairwise(self.accepted_mono)), default=0.0)


@dataclass(slots=True)
class Traffic:
    """Sends `rate_per_s` messages a second until told to stop, then finishes what it began.

    A share of what was accepted is sent again with its key: the answer must name the same message.
    """

    url: str
    key: str
    rate_per_s: float
    seed: int
    run: str
    journal: ClientJournal = field(default_factory=ClientJournal)
    patience_s: float = 60.0
    again_ratio: float = 0.02
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """No new messages; those begun are still repeated until answered."""
        self._stopping.set()

    async def run_until_stopped(self) -> None:
        """Open loop: the next message starts on time whatever happened to the last."""
        dice = random.Random(self.seed)
        connector = aiohttp.TCPConnector(limit=100)
        timeout = aiohttp.ClientTimeout(total=15)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session, asyncio.TaskGroup() as group:
            begin = time.monotonic()
            for n in itertools.count():
                if self._stopping.is_set():
                    break
                due = begin + n / self.rate_per_s
                delay = due - time.monotonic()
                if delay > 0:
                    await asyncio.sleep(delay)
                again = dice.random() < self.again_ratio
                group.create_task(self._send(session, n, dice.choice(CLASSES), again))

    async def _send(self, session: aiohttp.ClientSession, n: int, traffic_class: str, again: bool) -> None:
        self.journal.attempted += 1
        ref = f"{self.run}-{n:06d}"
        body = {
            "to": f"+4477{n:08d}",
            "text": f"{ref} the quick brown fox",
            "class": traffic_class,
            "client_ref": ref,
        }
        if await self._until_answered(session, ref, body) and again:
            await self._until_answered(session, ref, body)

    async def _until_answered(self, session: aiohttp.ClientSession, ref: str, body: dict[str, str]) -> bool:
        headers = {"Authorization": f"Bearer {self.key}", "Idempotency-Key": ref}
        give_up_mono = time.monotonic() + self.patience_s
        pause_s, unanswered = 0.2, False
        while time.monotonic() < give_up_mono:
            try:
                async with session.post(f"{self.url}/v1/messages", json=body, headers=headers) as answer:
                    self.journal.answers[answer.status] += 1
                    if answer.status == 202:
                        self._note(ref, (await answer.json())["id"])
                        return True
                    if answer.status not in _REPEATABLE:
                        break
                    pause_s = min(3.0, float(answer.headers.get("Retry-After", "1")))
            except (aiohttp.ClientError, TimeoutError, OSError) as fault:
                self.journal.answers[type(fault).__name__] += 1
                unanswered = True
                pause_s = min(2.0, pause_s * 2)
            await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))
        self.journal.given_up.append(ref)
        if not unanswered and ref not in self.journal.accepted:
            self.journal.refused.add(ref)
        return False

    def _note(self, ref: str, message_id: str) -> None:
        known = self.journal.accepted.setdefault(ref, message_id)
        if known != message_id:
            self.journal.contradicted.append(ref)
        self.journal.accepted_mono.append(time.monotonic())
