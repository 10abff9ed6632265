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

import orjson

from loadtests.http_line import HttpLine

CLASSES = ("otp", "transactional", "marketing")
HURRIED_S = 3  # less than many a pause: what is claimed before one must not leave after it
_REPEATABLE = frozenset({408, 409, 429, 500, 502, 503})


@dataclass(slots=True)
class ClientJournal:
    """What the client was told."""

    accepted: dict[str, str] = field(default_factory=dict)  # client_ref -> message id
    accepted_mono: deque[float] = field(default_factory=deque)  # when each 202 came, in order
    asked_at: dict[str, int] = field(default_factory=dict)  # client_ref -> first request, UTC ms
    answered_at: dict[str, int] = field(default_factory=dict)  # client_ref -> first 202
    answers: Counter[int | str] = field(default_factory=Counter)  # status, or why there was none
    refused: set[str] = field(default_factory=set)  # got nothing but refusals
    contradicted: list[str] = field(default_factory=list)  # the same key was answered with another message
    given_up: list[str] = field(default_factory=list)
    hurried: set[str] = field(default_factory=set)  # client_refs with HURRIED_S to live
    attempted: int = 0

    def rate_per_s(self, within_s: float = 1.0) -> float:
        """Messages accepted per second during the last `within_s`."""
        since_mono = time.monotonic() - within_s
        recent = itertools.takewhile(lambda at_mono: at_mono >= since_mono, reversed(self.accepted_mono))
        return sum(1 for _ in recent) / within_s

    def mean_per_s(self) -> float:
        """Messages accepted per second from the first to the last one."""
        at = self.accepted_mono
        return (len(at) - 1) / (at[-1] - at[0]) if len(at) > 1 else 0.0

    def longest_silence_s(self) -> float:
        """The longest time without any 202 between the first and the last one."""
        return max((later - at for at, later in itertools.pairwise(self.accepted_mono)), default=0.0)


@dataclass(slots=True)
class _Message:
    """One message on its way to its answer; `again`: once accepted it is sent once more."""

    ref: str
    body: bytes
    again: bool
    give_up_mono: float
    pause_s: float = 0.2
    unanswered: bool = False


@dataclass(slots=True)
class Traffic:
    """Offers `rate_per_s` messages a second until told to stop, then finishes what it began.

    A share of what was accepted is sent again with its key: the answer must name the same message. A share is good for
    HURRIED_S only. `lines` connections take what is due in turn, so that an outage lets work wait and does not pile
    up requests.
    """

    url: str
    key: str
    rate_per_s: float
    seed: int
    run: str
    journal: ClientJournal = field(default_factory=ClientJournal)
    patience_s: float = 60.0
    again_ratio: float = 0.02
    hurried_ratio: float = 0.0
    lines: int = 64
    _due: asyncio.Queue[_Message] = field(default_factory=asyncio.Queue)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _open: int = 0
    _none_open: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """No new messages; those begun are still repeated until answered."""
        self._stopping.set()

    async def run_until_stopped(self) -> None:
        """Open loop: the next message is due on time whatever happened to the last."""
        workers = [asyncio.create_task(self._serve()) for _ in range(self.lines)]
        try:
            await self._offer()
            while self._open:
                self._none_open.clear()
                await self._none_open.wait()
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _offer(self) -> None:
        dice = random.Random(self.seed)
        begin_mono = time.monotonic()
        for n in itertools.count():
            if self._stopping.is_set():
                return
            delay = begin_mono + n / self.rate_per_s - time.monotonic()
            if delay > 0:
                await asyncio.sleep(delay)
            ref = f"{self.run}-{n:06d}"
            text = f"{ref} the quick brown fox"
            body: dict[str, str | int] = {
                "to": f"+4477{n:08d}",
                "text": text,
                "class": dice.choice(CLASSES),
                "client_ref": ref,
            }
            if self.hurried_ratio and dice.random() < self.hurried_ratio:
                body["ttl"] = HURRIED_S
                self.journal.hurried.add(ref)
            self.journal.attempted += 1
            self._open += 1
            give_up_mono = time.monotonic() + self.patience_s
            self._due.put_nowait(_Message(ref, orjson.dumps(body), dice.random() < self.again_ratio, give_up_mono))

    async def _serve(self) -> None:
        line = HttpLine(self.url)
        try:
            while True:
                await self._send(line, await self._due.get())
        finally:
            line.close()

    async def _send(self, line: HttpLine, message: _Message) -> None:
        headers = {"Authorization": f"Bearer {self.key}", "Idempotency-Key": message.ref}
        self.journal.asked_at.setdefault(message.ref, time.time_ns() // 1_000_000)
        try:
            reply = await line.post("/v1/messages", message.body, headers)
        except (OSError, EOFError, TimeoutError) as fault:
            self.journal.answers[type(fault).__name__] += 1
            message.unanswered = True
            message.pause_s = min(2.0, message.pause_s * 2)
            self._later(message)
            return
        self.journal.answers[reply.status] += 1
        if reply.status == 202:
            self._note(message.ref, orjson.loads(reply.body)["id"])
            if message.again:
                message.again = False
                self._due.put_nowait(message)
            else:
                self._end()
        elif reply.status in _REPEATABLE:
            message.pause_s = min(3.0, float(reply.headers.get("retry-after", "1")))
            self._later(message)
        else:
            self._give_up(message)

    def _later(self, message: _Message) -> None:
        if time.monotonic() >= message.give_up_mono:
            self._give_up(message)
            return
        pause_s = message.pause_s * random.uniform(0.8, 1.2)
        asyncio.get_running_loop().call_later(pause_s, self._due.put_nowait, message)

    def _give_up(self, message: _Message) -> None:
        if message.ref not in self.journal.accepted:
            self.journal.given_up.append(message.ref)
            if not message.unanswered:
                self.journal.refused.add(message.ref)
        self._end()

    def _end(self) -> None:
        self._open -= 1
        if not self._open:
            self._none_open.set()

    def _note(self, ref: str, message_id: str) -> None:
        known = self.journal.accepted.setdefault(ref, message_id)
        self.journal.answered_at.setdefault(ref, time.time_ns() // 1_000_000)
        if known != message_id:
            self.journal.contradicted.append(ref)
        self.journal.accepted_mono.append(time.monotonic())
