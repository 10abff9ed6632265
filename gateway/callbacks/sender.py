"""Sends callbacks: finds the endpoints that are owed something and gives each a line of its own.

One process of the installation sends at a time (a session lock on the listening connection); another takes over when
it goes. Memory is bounded by the number of lines and the page of each, never by the backlog.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any, Final

import asyncpg

from gateway.callbacks.books import Books
from gateway.callbacks.client import Client
from gateway.callbacks.line import EndpointLine, Means, Terms
from gateway.callbacks.signing import Signer
from gateway.ledger.callback_lines import CHANNEL, Endpoint, heads
from gateway.ledger.connect import LEDGER_ERRORS, connect
from gateway.ledger.give_up_list import forget, forget_endpoints, give_up_old
from gateway.logs import get
from gateway.loops import end
from gateway.policy.rules.lookup import tenant_rules
from gateway.policy.rules.snapshot import Policy
from gateway.policy.secrets import SecretMissing, resolve
from gateway.runtime import Runtime
from gateway.telemetry import metrics

LINES: Final = 300
_LOCK: Final = "sluicegate.callbacks"
_STANDBY_S: Final = 2.0
_LOOK_S: Final = 2.0  # notices wake the sender; a wake that was lost costs this much at most
_AWAY_S: Final = 1.0
_PACE_S: Final = 0.02
_LOOKING_COSTS: Final = 4  # with endpoints by the ten thousand a look takes a fifth of the time at most
_COMMAND_S: Final = 30.0
_TIDY_S: Final = 600.0
_BROKEN_MS: Final = 60_000
# A host that vanished without a word frees its lock within half a minute.
_KEEPALIVE: Final = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}

log = get(__name__)


class Sender:
    """The callbacks of this process, from `run` until the role stops."""

    def __init__(self, rt: Runtime, client: Client) -> None:
        self._rt = rt
        self._books = Books(rt.pool, rt.sealer, rt.clock)
        self._means = Means(rt.pool, self._books, client, rt.clock, self._terms)
        self._lines: dict[int, tuple[EndpointLine, asyncio.Task[None]]] = {}
        self._failures: dict[int, int] = {}
        self._resting: dict[int, int] = {}
        self._known: dict[str, Terms] = {}
        self._known_of: Policy | None = None
        self._tidied_mono = 0.0
        self._least_s = _PACE_S
        # Endpoints that may be owed something since the last look, and when all are to be looked at again.
        self._heard: set[int] = set()
        self._all_mono = 0.0
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Sends until the role stops; a lost database connection is taken up again."""
        waker = asyncio.create_task(self._wake_at_end(), name="callbacks_end")
        books = asyncio.create_task(self._books.run(), name="callback_books")
        try:
            await self._run()
        finally:
            waker.cancel()
            await end([books])

    async def _wake_at_end(self) -> None:
        await self._rt.stopping.wait()
        self._woken.set()

    async def _run(self) -> None:
        while not self._rt.stopping.is_set():
            try:
                listener = await connect(
                    self._rt.settings.database_url, server_settings=_KEEPALIVE, command_timeout=_COMMAND_S
                )
            except LEDGER_ERRORS as error:
                log.warning("callbacks_wait_for_ledger", cause=type(error).__name__)
                await self._pause(_AWAY_S)
                continue
            try:
                await self._serve(listener)
            except LEDGER_ERRORS as error:
                log.warning("callbacks_lost_ledger", cause=type(error).__name__)
                await self._pause(_AWAY_S)
            finally:
                await self._end_lines()
                await _close(listener)

    async def _serve(self, listener: asyncpg.Connection[Any]) -> None:
        while not await listener.fetchval("SELECT pg_try_advisory_lock(hashtextextended($1, 0))", _LOCK):
            await self._pause(_STANDBY_S)
            if self._rt.stopping.is_set():
                return
        await listener.add_listener(CHANNEL, self._hear)
        self._all_mono = 0.0
        while not self._rt.stopping.is_set():
            await self._tidy(listener)
            wait_s = await self._open_lines(listener)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()
            # Notices come in batches; several of them share one look.
            await self._pause(self._least_s)
            self._woken.clear()

    async def _open_lines(self, listener: asyncpg.Connection[Any]) -> float:
        """Gives a line to every endpoint that is due; returns seconds until the next look.

        Between two looks at all endpoints only those are looked at that were heard of: there may be ten thousand more.
        """
        now_at, began_mono = self._rt.clock.now_at(), self._rt.clock.now_mono()
        for endpoint_id in [one for one, until in self._resting.items() if until <= now_at]:
            del self._resting[endpoint_id]
            self._heard.add(endpoint_id)
        free = LINES - len(self._lines)
        if free <= 0:
            return _LOOK_S
        is_whole = began_mono >= self._all_mono
        among = None if is_whole else self._heard - self._lines.keys() - self._resting.keys()
        self._heard = set()
        running = Counter(line.endpoint.tenant_id for line, _ in self._lines.values())
        besides = [*self._lines, *self._resting]
        found = []
        if among is None or among:
            found = await heads(listener, besides, running, now_at=now_at, limit=free, among=among)
            took_s = self._rt.clock.now_mono() - began_mono
            self._least_s = min(_LOOK_S, max(_PACE_S, _LOOKING_COSTS * took_s))
        wait_ms = int(_LOOK_S * 1000)
        is_cut = len(found) == free
        for endpoint, due_at in found:
            if due_at > now_at:
                wait_ms = min(wait_ms, due_at - now_at)
                break
            # Who has many endpoints leaves as many lines as it has to the others: theirs are always soon begun.
            if running[endpoint.tenant_id] >= free:
                is_cut = True
                break
            running[endpoint.tenant_id] += 1
            free -= 1
            self._open_line(endpoint)
        next_mono = began_mono + max(_PACE_S, wait_ms / 1000)
        self._all_mono = next_mono if is_whole else min(self._all_mono, next_mono)
        if is_cut:  # whoever has no line yet is found as soon as one ends
            self._all_mono = min(self._all_mono, began_mono)
            return _LOOK_S
        rested_s = min((until - now_at for until in self._resting.values()), default=int(_LOOK_S * 1000)) / 1000
        return max(_PACE_S, min(rested_s, self._all_mono - self._rt.clock.now_mono()))

    def _open_line(self, endpoint: Endpoint) -> None:
        line = EndpointLine(self._means, endpoint, self._failures.get(endpoint.id, 0))
        task = asyncio.create_task(self._run_line(line), name=f"callbacks:{endpoint.id}")
        self._lines[endpoint.id] = (line, task)

    async def _run_line(self, line: EndpointLine) -> None:
        endpoint_id = line.endpoint.id
        try:
            await line.run(self._rt.stopping)
        except LEDGER_ERRORS as error:
            log.warning("callback_line_stopped", endpoint=endpoint_id, cause=type(error).__name__)
            self._resting[endpoint_id] = self._rt.clock.now_at() + 1_000
        except Exception as error:  # one endpoint's trouble is not the others'
            log.error("callback_line_broke", endpoint=endpoint_id, exc_info=error)
            self._resting[endpoint_id] = self._rt.clock.now_at() + _BROKEN_MS
        finally:
            self._lines.pop(endpoint_id, None)
            self._remember(line)
            self._heard.add(endpoint_id)  # it may have been owed more after its last look
            self._woken.set()

    def _remember(self, line: EndpointLine) -> None:
        rest_ms = line.rest_ms()
        if rest_ms:
            self._resting[line.endpoint.id] = self._rt.clock.now_at() + rest_ms
        if line.failures:
            self._failures[line.endpoint.id] = line.failures
        else:
            self._failures.pop(line.endpoint.id, None)

    def _terms(self, endpoint: Endpoint) -> Terms:
        policy = self._rt.policies.current
        if self._known_of is not policy:
            self._known, self._known_of = {}, policy
        terms = self._known.get(endpoint.tenant)
        if terms is None:
            terms = self._known[endpoint.tenant] = _terms_of(policy, endpoint.tenant)
        # A secret that was missing may be there the next time.
        if terms.unresolved:
            del self._known[endpoint.tenant]
        return terms

    async def _tidy(self, listener: asyncpg.Connection[Any]) -> None:
        """Now and then: gives up what is too old, tried or not, and forgets what was given up long ago."""
        if self._tidied_mono and self._rt.clock.now_mono() - self._tidied_mono < _TIDY_S:
            return
        policy, now_at = self._rt.policies.current, self._rt.clock.now_at()
        given_up = await give_up_old(listener, now_at - policy.callbacks.give_up_ms, now_at)
        metrics.callbacks_total.labels("gave_up").inc(given_up)
        forgotten = await forget(listener, now_at - policy.receipts.inbox_retention_ms)
        await forget_endpoints(listener, policy.version, now_at)
        if given_up + forgotten == 0:
            self._tidied_mono = self._rt.clock.now_mono()

    def _hear(self, _listener: object, _pid: int, _channel: str, heard: object) -> None:
        """The word names endpoints; without any it may be each of them (a former release, a replay)."""
        ids = [int(one) for one in str(heard).split(",") if one.isdigit()]
        for endpoint_id in ids or [*self._lines]:
            line = self._lines.get(endpoint_id)
            if line is not None:
                line[0].look_again()
        self._heard.update(ids)
        if not ids:
            self._all_mono = 0.0
        self._woken.set()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rt.stopping.wait()

    async def _end_lines(self) -> None:
        await end([task for _, task in self._lines.values()])


def _terms_of(policy: Policy, tenant: str) -> Terms:
    target = tenant_rules(policy, tenant).callbacks
    if target is None or not target.secrets:
        return Terms(policy.version, policy.callbacks, None, False)
    try:
        signer = Signer([resolve(reference) for reference in target.secrets])
    except (SecretMissing, ValueError):
        log.warning("callback_secret_unusable", tenant=tenant)
        return Terms(policy.version, policy.callbacks, None, target.allow_private, unresolved=True)
    return Terms(policy.version, policy.callbacks, signer, target.allow_private)


async def _close(connection: asyncpg.Connection[Any]) -> None:
    try:
        await connection.close(timeout=2)
    except LEDGER_ERRORS:
        connection.terminate()
