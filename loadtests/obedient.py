"""A client that does what it is told: it comes again at its `Retry-After`, with the same key, and notes every answer.

Where `traffic` wants each message in soon, this one waits as long as the answer says: it measures what the answer is
worth. Instants are nanoseconds of the monotonic clock, the same that the carrier's journal uses.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from loadtests.http_line import HttpLine

REPEATABLE = frozenset({408, 409, 429, 500, 502, 503})
IDLE_S = 2.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer to one request for one message; `nth` counts from 1 over its requests."""

    ref: str
    nth: int
    began_ns: int
    ended_ns: int
    status: int
    code: str
    retry_after: str | None  # as sent
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """What is offered: so many messages a second, for so long; `fields` go into every message.

    `poisson`: gaps are exponential instead of even. A message whose next request would come after `patience_s` (from
    the start) is given up.
    """

    prefix: str
    rate_per_s: float
    seconds: float
    fields: Mapping[str, Any]
    poisson: bool = False
    seed: int = 1
    patience_s: float = 120.0
    first_number: int = 0

    def instants(self) -> Iterator[float]:
        """Seconds from the start at which messages are due."""
        dice, at_s = random.Random(self.seed), 0.0
        while True:
            at_s += dice.expovariate(self.rate_per_s) if self.poisson else 1 / self.rate_per_s
            if at_s >= self.seconds:
                return
            yield at_s


@dataclass(slots=True)
class ObedientClient:
    """Sends one offer, each message in a task of its own (open loop), over connections that are used again."""

    url: str
    key: str
    answers: list[Answer] = field(default_factory=list)
    accepted: dict[str, Answer] = field(default_factory=dict)  # by ref
    given_up: set[str] = field(default_factory=set)
    cut: int = 0  # requests that got no answer
    _idle: list[tuple[float, HttpLine]] = field(default_factory=list)  # since when, which

    async def send(self, offer: Offer) -> None:
        """Returns when each message is accepted or given up."""
        begin_mono = time.monotonic()
        carried = []
        for n, at_s in enumerate(offer.instants()):
            await asyncio.sleep(max(0.0, begin_mono + at_s - time.monotonic()))
            ref = f"{offer.prefix}-{n:06d}"
            body = {"to": f"+4477{offer.first_number + n:08d}", "text": f"{ref} a text", "client_ref": ref}
            raw = orjson.dumps({**body, **offer.fields})
            carried.append(asyncio.create_task(self._carry(ref, raw, begin_mono + offer.patience_s)))
        await asyncio.gather(*carried)
        for _, line in self._idle:
            line.close()
        self._idle.clear()

    def _line(self) -> HttpLine:
        """The line that was used last, unless the door may have ended it by now."""
        while self._idle:
            since_mono, line = self._idle.pop()
            if time.monotonic() - since_mono < IDLE_S:
                return line
            line.close()
        return HttpLine(self.url)

    async def _carry(self, ref: str, body: bytes, give_up_mono: float) -> None:
        for nth in range(1, 1_000):
            answer = await self._ask(ref, nth, body)
            if answer is not None and answer.status == 202:
                self.accepted[ref] = answer
                return
            pause_s = 1.0 if answer is None or answer.retry_after is None else float(answer.retry_after)
            if answer is not None and answer.status not in REPEATABLE:
                break
            if time.monotonic() + pause_s > give_up_mono:
                break
            await asyncio.sleep(pause_s)
        self.given_up.add(ref)

    async def _ask(self, ref: str, nth: int, body: bytes) -> Answer | None:
        headers = {"Authorization": f"Bearer {self.key}", "Idempotency-Key": ref}
        line = self._line()
        began_ns = time.monotonic_ns()
        try:
            reply = await line.post("/v1/messages", body, headers)
        except (OSError, EOFError, TimeoutError):
            self.cut += 1
            return None
        ended_ns = time.monotonic_ns()
        self._idle.append((time.monotonic(), line))
        told = orjson.loads(reply.body)
        answer = Answer(
            ref=ref,
            nth=nth,
            began_ns=began_ns,
            ended_ns=ended_ns,
            status=reply.status,
            code=str(told.get("code", "")),
            retry_after=reply.headers.get("retry-after"),
            message_id=str(told.get("id", "")) if reply.status == 202 else "",
        )
        self.answers.append(answer)
        return answer

    @property
    def requests_per_accepted(self) -> float:
        """How many requests one accepted message took, those of given-up ones included."""
        return len(self.answers) / max(1, len(self.accepted))
