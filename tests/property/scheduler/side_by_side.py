"""The scripts on a real server and the model, told the same at the same instants; a difference is an AssertionError."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from math import isclose
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import redis
from redis.asyncio import Redis

from scheduler.core.asks import Leased
from scheduler.core.names import escape
from scheduler.core.unavailable import IndexUnavailable
from scheduler.model import Model
from scheduler.plain.state import FlowQueue
from scheduler.store import rebuilding
from scheduler.store import scheduler as store
from scheduler.store.scheduler import Scheduler
from tests.property.scheduler.remembered import PREFIX, forget_promises, of_model, of_server

# Verbs that leave something which the server soon forgets.
_FORGETFUL = frozenset({"admit", "report_outcomes", "begin_rebuild", "load", "open_class"})
# The server's clock runs on while the virtual one stands: what it would forget is forgotten when the model forgets it.
_PERSIST = """
local found = {}
for _, pattern in ipairs(ARGV) do
  for _, key in ipairs(redis.call('KEYS', pattern)) do
    local left = redis.call('PTTL', key)
    if left >= 0 then
      redis.call('PERSIST', key)
      found[#found + 1] = key
      found[#found + 1] = left
    end
  end
end
return found
"""


class Direct:
    """A blocking client behind the few awaitable commands that the scheduler uses: its coroutines never suspend."""

    connection_pool = SimpleNamespace(connection_kwargs={})

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    async def fcall(self, function: str, *args: Any) -> Any:
        return self._client.fcall(function, *args)

    async def function_load(self, text: str) -> Any:
        return self._client.function_load(text)

    async def info(self, section: str) -> Any:
        return self._client.info(section)

    async def unlink(self, *keys: bytes) -> Any:
        return self._client.unlink(*keys)

    async def scan_iter(self, match: str, count: int) -> AsyncIterator[bytes]:
        for key in list(self._client.scan_iter(match=match, count=count)):
            yield key


def finished(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("it waits")


@dataclass(slots=True)
class SideBySide:
    """Both, with one clock."""

    client: redis.Redis
    scheduler: Scheduler
    model: Model
    now: float

    @staticmethod
    @contextmanager
    def on(url: str, now: float) -> Iterator[SideBySide]:
        """Both empty; names of leases and epochs are the model's."""
        client = redis.Redis.from_url(url)
        names = SimpleNamespace(next=b"")
        patched = SimpleNamespace(token_bytes=lambda _: names.next, token_hex=lambda _: names.next.hex())
        try:
            client.flushall()
            with mock.patch.object(store, "secrets", patched), mock.patch.object(rebuilding, "secrets", patched):
                both = SideBySide(client, None, Model(), now)  # type: ignore[arg-type]
                both.scheduler = Scheduler(cast(Redis, Direct(client)), clock=lambda: both.now)
                own_name = both.model._name

                def named() -> bytes:
                    names.next = own_name()
                    return cast(bytes, names.next)

                with mock.patch.object(both.model, "_name", named):
                    yield both
        finally:
            client.close()

    def ask(self, verb: str, *args: Any, **options: Any) -> Any:
        """One verb of both; their answers must be the same. None where both are unavailable for the same reason."""
        self._forget()
        said = _outcome(lambda: _verb(self.model, verb)(*args, now=self.now, **options))
        of_scripts = _outcome(lambda: finished(_verb(self.scheduler, verb)(*args, **options)))
        assert_same(of_scripts, said, verb)
        if verb in _FORGETFUL:
            self._persist()
        return None if isinstance(said, str) and said.startswith("unavailable: ") else said

    def lose(self) -> None:
        """The server is emptied."""
        self.client.flushall()
        self.model.lose()

    # The server's forgetting

    def _persist(self, *patterns: str) -> None:
        patterns = patterns or ("w:*", "full:*", "rebuilder")
        found = self.client.eval(_PERSIST, 0, *("{c1}:" + one for one in patterns))
        lifetimes = dict(zip(found[::2], found[1::2], strict=True))
        for key, flow in self._promises():
            left = lifetimes.get(key)
            if left is not None:
                assert 0 <= flow.promised_until - self.now - left < 3_000, "a promise's lifetime differs"

    def _promises(self) -> Iterator[tuple[bytes, FlowQueue]]:
        for flow in self.model.index.flows.values():
            if flow.promised > 0:
                yield b"{c1}:w:" + flow.octets, flow

    def _forget(self) -> None:
        index, now = self.model.index, self.now
        gone: list[bytes] = []
        for key, flow in self._promises():
            if flow.promised_until < now:
                gone.append(key)
                flow.promised = 0
        for (scope, token), bucket in list(index.numbers.items()):
            if bucket.until < now:
                gone.append(f"{PREFIX}n:{escape(scope)}:".encode() + token)
                del index.numbers[scope, token]
        for batch, until in list(index.batches.items()):
            if until < now:
                gone.append(b"{c1}:batch:" + batch)
                del index.batches[batch]
        for (scope, tenant), waiting in list(index.door_lines.items()):
            name = self._tail(scope, tenant)
            for page, until in list(waiting.pages_until.items()):
                if until < now:
                    gone.append(name + b"|%d" % page)
                    del waiting.pages[page], waiting.pages_until[page]
            if waiting.until < now:
                gone.append(name)
                del index.door_lines[scope, tenant]
        if index.state == "loading" and index.rebuilder_until < now:
            gone.append(b"{c1}:rebuilder")
        if gone:
            self.client.delete(*gone)

    def _tail(self, scope: str, tenant: str) -> bytes:
        """The server's key of a line at the door: of a scope, of a (provider, class), or of one number."""
        octets = escape(scope).encode()
        of_line = [name for name in self.model.index.lines if "|".join(name) == scope]
        if of_line:
            octets = "|".join(map(escape, of_line[0])).encode()
        elif scope.startswith("number:"):
            limit, _, token = scope.rpartition("|")
            octets = escape(limit).encode() + b"|" + bytes.fromhex(token)
        return PREFIX.encode() + b"tail:" + octets + b"|" + escape(tenant).encode()

    # The whole state

    def compare(self) -> None:
        """Everything that both remember."""
        self._persist("*")
        scripts, model = of_server(self.client), of_model(self.model.index)
        for state in (scripts, model):
            forget_promises(state["line"], self.now)
        assert_same(scripts, model, "state")


def _verb(of: object, name: str) -> Callable[..., Any]:
    return cast(Callable[..., Any], getattr(of, name))


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except IndexUnavailable as fault:
        return f"unavailable: {fault.reason}"


def assert_same(left: Any, right: Any, at: str) -> None:
    """Equal, but for the rounding of sums: 1e-6 relative, 1e-5 absolute."""
    if left == right:
        return
    if is_dataclass(left) and not isinstance(left, type):
        assert type(left) is type(right), f"{at}: {left!r} / {right!r}"
        left, right = _fields(left), _fields(right)
    if isinstance(left, dict):
        assert isinstance(right, dict), f"{at}: {left!r} / {right!r}"
        for key in [*left, *(key for key in right if key not in left)]:
            assert key in left and key in right, (
                f"{at}.{key!r}: scripts {left.get(key, 'nothing')!r}, model {right.get(key, 'nothing')!r}"
            )
            assert_same(left[key], right[key], f"{at}.{key}")
    elif isinstance(left, list | tuple):
        assert isinstance(right, list | tuple) and len(left) == len(right), f"{at}: scripts {left!r}, model {right!r}"
        for number, pair in enumerate(zip(left, right, strict=True)):
            assert_same(*pair, f"{at}[{number}]")
    elif isinstance(left, float) or isinstance(right, float):
        assert left is not None and right is not None, f"{at}: scripts {left!r}, model {right!r}"
        assert isclose(left, right, rel_tol=1e-6, abs_tol=1e-5), f"{at}: scripts {left!r}, model {right!r}"
    else:
        assert left == right, f"{at}: scripts {left!r}, model {right!r}"


def _fields(one: Any) -> dict[str, Any]:
    if isinstance(one, Leased):  # references are values of their own
        return {"id": one.lease_id, "items": list(one.items), "expired": list(one.expired), "wait": one.wait_ms,
                "cause": one.cause}  # fmt: skip
    return asdict(one)
