"""An obedient client under load: open loop at a rate, one idempotency key per message, repeated until it is answered.

It keeps the client's journal: which 202 was given for which `client_ref`.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from dataclasses import dataclass, field

import aiohttp

CLASSES = ("otp", "transactional", "marketing")


@dataclass(slots=True)
class ClientJournal:
    """What the client was told."""

    accepted: dict[str, str] = field(default_factory=dict)  # client_ref -> message id
    answers: Counter[int] = field(default_factory=Counter)
    given_up: list[str] = field(default_factory=list)
    attempted: int = 0


@dataclass(slots=True)
class Traffic:
    """Sends `rate_per_s` messages a second until told to stop, then finishes what it began."""

    url: str
    key: str
    rate_per_s: float
    seed: int
    run: str
    journal: ClientJournal = field(default_factory=ClientJournal)
    patience_s: float = 60.0
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
                ref = f"{self.run}-{n:06d}"
                group.create_task(self._send(session, ref, n, dice.choice(CLASSES)))

    async def _send(self, session: aiohttp.ClientSession, ref: str, n: int, traffic_class: str) -> None:
        self.journal.attempted += 1
        body = {
            "to": f"+4477{n:08d}",
            "text": f"{ref} the quick brown fox",
            "class": traffic_class,
            "client_ref": ref,
        }
        headers = {"Authorization": f"Bearer {self.key}", "Idempotency-Key": ref}
        give_up = time.monotonic() + self.patience_s
        pause_s = 0.2
        while time.monotonic() < give_up:
            try:
                async with session.post(f"{self.url}/v1/messages", json=body, headers=headers) as answer:
                    self.journal.answers[answer.status] += 1
                    if answer.status == 202:
                        self.journal.accepted[ref] = (await answer.json())["id"]
                        return
                    if answer.status not in (408, 409, 429, 500, 502, 503):
                        break
                    pause_s = min(3.0, float(answer.headers.get("Retry-After", "1")))
            except (aiohttp.ClientError, TimeoutError, OSError):
                self.journal.answers[0] += 1
                pause_s = min(2.0, pause_s * 2)
            await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))
        self.journal.given_up.append(ref)
