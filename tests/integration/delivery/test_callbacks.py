"""Callbacks against a real HTTP server (contract, "Callbacks"; I30, cases H24, Q21)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import Mock

import pytest
from aiohttp import web
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from gateway.callbacks import line, sender
from gateway.callbacks.client import Client
from gateway.callbacks.sender import Sender
from gateway.ledger import give_up_list
from gateway.ledger.callback_lines import add_events, wants
from gateway.policy.rules.snapshot import CallbackTarget, Policy
from tests.integration.delivery.world import SECRET, World, policy_of, until


@dataclass
class Sink:
    """An endpoint that answers as told and keeps what it got."""

    url: str = ""
    answer: Callable[[int], web.Response] = lambda n: web.Response(status=204)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    at_once: int = 0
    most: int = 0
    slow_s: float = 0.0
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, request: web.Request) -> web.Response:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        self.got.append(({name.lower(): value for name, value in request.headers.items()}, await request.read()))
        self.paths.append(request.path)
        with suppress(TimeoutError):
            await asyncio.wait_for(self.closing.wait(), self.slow_s)
        self.at_once -= 1
        return self.answer(len(self.got))

    def seqs(self) -> list[int]:
        return [json.loads(body)["data"]["seq"] for _, body in self.got]


@asynccontextmanager
async def sink() -> AsyncIterator[Sink]:
    made = Sink()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", made.take)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    made.url = f"http://127.0.0.1:{port}/hooks"
    try:
        yield made
    finally:
        made.closing.set()
        await runner.cleanup()


@asynccontextmanager
async def sending(world: World) -> AsyncIterator[Any]:
    rt = world.runtime()
    async with Client() as client:
        task = asyncio.create_task(Sender(rt, client).run())
        try:
            yield rt
        finally:
            rt.stopping.set()
            await asyncio.wait_for(task, 60)


async def tell(world: World, event: str = "message.delivered", **values: Any) -> None:
    """A message in a state that is told, and its callback."""
    message = await world.message(**({"status": "delivered", "final_at": 1, "sweep_at": None, "version": 3} | values))
    async with world.pool.acquire() as conn, conn.transaction():
        row = dict(await world.row(message))
        await add_events(conn, world.policy, [(row, event)], world.clock.now_at())


async def owed(world: World) -> int:
    return int(await world.pool.fetchval("SELECT count(*) FROM callbacks WHERE gave_up_at IS NULL"))


def none_owed(world: World) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        return await owed(world) == 0

    return check


async def test_a_signed_callback_is_sent_and_forgotten(world: World) -> None:
    async with sink() as one:
        world.policy = policy_of(one.url)
        async with sending(world):
            await tell(world, client_ref="order-7")
            await until(none_owed(world))
    ((headers, body),) = one.got
    told = Webhook(SECRET).verify(body, headers)
    assert told["type"] == "message.delivered" and told["data"]["seq"] == 3
    assert told["data"]["status"] == "delivered" and told["data"]["client_ref"] == "order-7"
    assert "text" not in told["data"] and b"hello" not in body
    assert headers["content-type"] == "application/json"


async def test_a_failing_endpoint_gets_it_again_under_the_same_id(world: World) -> None:
    async with sink() as one:
        one.answer = lambda n: web.Response(status=500 if n < 3 else 200, text="x" * 100_000)
        world.policy = policy_of(one.url)
        async with sending(world):
            await tell(world)
            await until(none_owed(world))
    assert len({headers["webhook-id"] for headers, _ in one.got}) == 1 and len(one.got) == 3


async def test_retry_after_is_respected_and_redirects_are_not_followed(world: World) -> None:
    async with sink() as one:
        one.answer = lambda n: web.Response(status=302, headers={"location": "/inside", "retry-after": "1000"})
        world.policy = policy_of(one.url)
        async with sending(world):
            await tell(world)

            async def tried() -> bool:
                return bool(await world.pool.fetchval("SELECT max(tries) FROM callbacks") == 1)

            await until(tried)
    row = await world.pool.fetchrow("SELECT due_at, last_status FROM callbacks")
    assert 900_000 < row["due_at"] - world.clock.now_at() <= 1_000_000
    assert row["last_status"] == "302" and one.paths == ["/hooks"]


async def test_gone_is_given_up_and_can_be_replayed(world: World) -> None:
    async with sink() as one:
        one.answer = lambda n: web.Response(status=410 if n == 1 else 200)
        world.policy = policy_of(one.url)
        async with sending(world):
            await tell(world)
            await until(none_owed(world))
            assert await world.pool.fetchval("SELECT last_status FROM callbacks") == "410"
            async with world.pool.acquire() as conn:
                assert await give_up_list.replay(conn, world.tenants["beta"], 0, world.clock.now_at(), by="test") == 0
                assert await give_up_list.replay(conn, world.tenants["acme"], 0, world.clock.now_at(), by="test") == 1

            async def all_gone() -> bool:
                return bool(await world.pool.fetchval("SELECT count(*) FROM callbacks") == 0)

            await until(all_gone)
    assert len(one.got) == 2


async def test_q21_a_dead_endpoint_delays_no_other(world: World) -> None:
    """One endpoint hangs with a long line, the other gets its notices at once."""
    async with sink() as dead, sink() as good:
        dead.slow_s = 30.0
        source = policy_of(good.url)
        world.policy = replace(source, callbacks=replace(source.callbacks, timeout_ms=60_000))
        for _ in range(30):
            await tell(world, extras={"callback_url": dead.url})
        async with sending(world):

            async def dead_is_busy() -> bool:
                return dead.at_once == 4

            await until(dead_is_busy)
            for _ in range(20):
                await tell(world)

            async def good_is_done() -> bool:
                return len(good.got) == 20

            await until(good_is_done)
            assert dead.most == 4
        assert await owed(world) == 30


async def test_q21_an_endpoint_that_refuses_everything_costs_little_and_the_other_nothing(world: World) -> None:
    """503 to all of a long line: the other's notices of the same tenant come at once, the line is tried rarely."""
    async with sink() as bad, sink() as good:
        bad.answer = lambda n: web.Response(status=503)
        world.policy = policy_of(good.url)
        for _ in range(200):
            await tell(world, extras={"callback_url": bad.url})
        async with sending(world):

            async def bad_was_tried() -> bool:
                return len(bad.got) >= 4

            await until(bad_was_tried)
            for _ in range(20):
                await tell(world)

            async def good_is_done() -> bool:
                return len(good.got) == 20

            await until(good_is_done)
            await asyncio.sleep(1.0)
        assert len(bad.got) < 50, "a line of 200 that is refused was not left alone"
        assert await owed(world) == 200
        async with world.pool.acquire() as conn:
            (seen,) = await give_up_list.summary(conn, 10)
        assert (seen["owed"], seen["gave_up"]) == (200, 0), "operators do not see what is owed"


async def test_a_long_line_is_sent_once_each_within_its_width(world: World) -> None:
    async with sink() as one:
        one.slow_s = 0.001
        world.policy = policy_of(one.url)
        row = dict(await world.row(await world.message(status="delivered", final_at=1)))
        async with world.pool.acquire() as conn:
            told = [(row | {"version": n + 1}, "message.delivered") for n in range(450)]
            await add_events(conn, world.policy, told, world.clock.now_at())
        async with sending(world):
            await until(none_owed(world))
    assert sorted(one.seqs()) == list(range(1, 451)) and one.most <= 4


async def test_an_inner_address_is_refused_at_delivery(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """H24: `beta` may not go inside, whatever its message says."""
    async with sink() as one:
        source = policy_of(one.url)
        beta = source.tenants["acme"]
        closed = CallbackTarget(None, (SECRET,), ("final",), allow_private=False)
        tenants = dict(source.tenants) | {"beta": replace(beta, name="beta", callbacks=closed)}
        world.policy = replace(source, tenants=tenants)
        told = Mock()
        monkeypatch.setattr(line, "_log", told)
        hooks = [one.url, one.url.replace("127.0.0.1", "localhost"), one.url.replace("127.0.0.1", "2130706433")]
        for url in hooks:
            await tell(world, tenant="beta", extras={"callback_url": url})
        async with sending(world):

            async def all_tried() -> bool:
                return bool(await world.pool.fetchval("SELECT count(*) FROM callbacks WHERE tries > 0") == len(hooks))

            await until(all_tried)
        words = await world.pool.fetch("SELECT DISTINCT last_status FROM callbacks")
        assert one.got == [] and [word[0] for word in words] == ["address_refused"]
    assert {call.args[0] for call in told.warning.call_args_list} == {"callback_address_refused"}
    assert {call.kwargs["tenant"] for call in told.warning.call_args_list} == {"beta"}


async def test_without_a_secret_in_the_policy_it_is_given_up_at_once_and_can_be_replayed(world: World) -> None:
    async with sink() as one:
        await tell(world, tenant="beta", extras={"callback_url": one.url})
        async with sending(world):
            await until(none_owed(world))
        row = await world.pool.fetchrow("SELECT tries, last_status, gave_up_at FROM callbacks")
        assert (row["tries"], row["last_status"]) == (0, "no_secret") and one.got == []
        world.policy = with_beta(policy_of(one.url), SECRET, allow_private=True)
        async with world.pool.acquire() as conn:
            assert await give_up_list.replay(conn, world.tenants["beta"], 0, world.clock.now_at(), by="test") == 1
        async with sending(world):
            await until(none_owed(world))
    assert len(one.got) == 1


async def test_a_secret_that_cannot_be_read_costs_no_try(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sink() as one:
        world.policy = with_beta(policy_of(one.url), "env:BETA_SECRET_OF_TEST", allow_private=True)
        await tell(world, tenant="beta", extras={"callback_url": one.url})
        await tell(world)  # the other tenant's goes out meanwhile
        async with sending(world):

            async def other_is_done() -> bool:
                return len(one.got) == 1

            await until(other_is_done)
            await asyncio.sleep(0.2)
        row = await world.pool.fetchrow("SELECT tries, last_status, gave_up_at FROM callbacks")
        assert tuple(row) == (0, None, None)
        monkeypatch.setenv("BETA_SECRET_OF_TEST", SECRET)
        async with sending(world):
            await until(none_owed(world))
    assert len(one.got) == 2


def with_beta(source: Policy, secret: str, *, allow_private: bool) -> Policy:
    target = CallbackTarget(None, (secret,), ("final",), allow_private=allow_private)
    beta = replace(source.tenants["beta"], callbacks=target)
    return replace(source, tenants=dict(source.tenants) | {"beta": beta})


async def test_an_endpoint_that_said_gone_gets_nothing_until_the_policy_changes(world: World) -> None:
    async with sink() as one:
        one.answer = lambda n: web.Response(status=410)
        world.policy = policy_of(one.url)
        for _ in range(20):
            await tell(world)
        async with sending(world):
            await until(none_owed(world))
            asked = len(one.got)
            assert asked <= 4  # what was in flight at once
            await tell(world)
            assert await owed(world) == 0
            await asyncio.sleep(0.1)
        assert len(one.got) == asked
        assert await world.pool.fetchval("SELECT count(*) FROM callbacks WHERE last_status = '410'") == 21
        one.answer = lambda n: web.Response(status=204)
        world.policy = policy_of(one.url, version=2)
        async with sending(world):
            await tell(world)
            await until(none_owed(world))
        assert len(one.got) == asked + 1


async def test_a_busy_endpoint_is_left_alone_for_as_long_as_it_asks(world: World) -> None:
    async with sink() as one:
        one.answer = lambda n: web.Response(status=503, headers={"retry-after": "600"})
        world.policy = policy_of(one.url)
        for _ in range(20):
            await tell(world)
        async with sending(world):

            async def tried() -> bool:
                return bool(await world.pool.fetchval("SELECT max(tries) FROM callbacks") == 1)

            await until(tried)
            await asyncio.sleep(0.3)
        assert len(one.got) <= 4 and await owed(world) == 20


async def test_what_is_too_old_is_given_up_whether_it_was_tried_or_not(world: World) -> None:
    async with sink() as one:
        one.answer = lambda n: web.Response(status=500)
        world.policy = policy_of(one.url)
        for _ in range(3):
            await tell(world)
        world.clock.shift_ms = 3 * 86_400_000 + 1
        await tell(world)
        async with sending(world):

            async def three_given_up() -> bool:
                return bool(await world.pool.fetchval("SELECT count(gave_up_at) FROM callbacks") == 3)

            await until(three_given_up)
        summary = await give_up_list.summary(await world.pool.acquire(), 10)
        assert (summary[0]["owed"], summary[0]["gave_up"], summary[0]["tenant"]) == (1, 3, "acme")
        world.clock.shift_ms += 15 * 86_400_000
        async with sending(world):

            async def forgotten() -> bool:
                return bool(await world.pool.fetchval("SELECT count(gave_up_at) FROM callbacks") == 1)

            await until(forgotten)


async def test_two_secrets_sign_during_a_rotation(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    new = "whsec_bmV3LXNlY3JldC1vZi0zMi1vY3RldHMtbG9uZy1oZXJlIQ=="
    async with sink() as one:
        source = policy_of(one.url)
        target = replace(source.tenants["acme"].callbacks, secrets=(new, SECRET))  # type: ignore[type-var]
        acme = replace(source.tenants["acme"], callbacks=target)
        world.policy = replace(source, tenants=dict(source.tenants) | {"acme": acme})
        async with sending(world):
            await tell(world)
            await until(none_owed(world))
    ((headers, body),) = one.got
    for secret in (new, SECRET):
        assert Webhook(secret).verify(body, headers)["type"] == "message.delivered"


async def test_each_try_is_signed_by_what_is_in_force_then(world: World) -> None:
    """A secret that is changed between two tries of one notice: the same id, a new moment, the new signature."""
    new = "whsec_bmV3LXNlY3JldC1vZi0zMi1vY3RldHMtbG9uZy1oZXJlIQ=="
    async with sink() as one:
        first = policy_of(one.url)
        target = first.tenants["acme"].callbacks
        assert target is not None

        def signed_by(version: int, *secrets: str) -> Policy:
            acme = replace(first.tenants["acme"], callbacks=replace(target, secrets=secrets))
            return replace(first, version=version, tenants=dict(first.tenants) | {"acme": acme})

        stages = [(SECRET,), (new, SECRET), (new,), (new,)]
        one.answer = lambda n: web.Response(status=500 if n < len(stages) else 204)
        world.policy = first
        async with sending(world) as rt:
            await tell(world)
            for number in range(1, len(stages)):

                async def tried(number: int = number) -> bool:
                    rows = await world.pool.fetch("SELECT tries FROM callbacks")
                    return [row["tries"] for row in rows] == [number]

                await until(tried)
                rt.policies.current = world.policy = signed_by(number + 1, *stages[number])
                await world.pool.execute("UPDATE callbacks SET due_at = 1")
            await until(none_owed(world))
    assert len(one.got) == len(stages)
    for (headers, body), secrets in zip(one.got, stages, strict=True):
        for secret in (SECRET, new):
            if secret in secrets:
                Webhook(secret).verify(body, headers)
            else:
                with pytest.raises(WebhookVerificationError):
                    Webhook(secret).verify(body, headers)
    assert len({headers["webhook-id"] for headers, _ in one.got}) == 1
    assert len({body for _, body in one.got}) == 1


_COPIES = """
INSERT INTO callbacks (endpoint_id, tenant_id, day, message_id, seq, type, webhook_id, body, created_at, due_at, tries,
                       last_status, gave_up_at)
SELECT endpoint_id, tenant_id, day, message_id, seq, type, gen_random_uuid(), body, created_at, due_at, 9, '500', $2
  FROM callbacks, generate_series(1, $1)
"""


async def test_ten_thousand_that_gave_up_are_sent_again_and_delay_nobody(world: World) -> None:
    """A long list is one call; it goes out at the width of its endpoint, and another tenant's notice passes it."""
    copies = 10_000
    async with sink() as one, sink() as other:
        both = policy_of(one.url)
        target = both.tenants["acme"].callbacks
        assert target is not None
        beta = replace(both.tenants["beta"], callbacks=replace(target, url=other.url))
        world.policy = replace(both, tenants=dict(both.tenants) | {"beta": beta})
        one.slow_s = 0.01
        await tell(world)
        async with world.pool.acquire() as conn:
            await conn.execute(_COPIES, copies, world.clock.now_at())
            acme = world.tenants["acme"]
            assert await give_up_list.replay(conn, acme, 0, world.clock.now_at(), by="test") == copies
        assert await owed(world) == copies + 1
        async with sending(world):

            async def well_under_way() -> bool:
                return len(one.got) > 50

            async def passed() -> bool:
                return len(other.got) == 1

            await until(well_under_way)
            await tell(world, tenant="beta")
            await until(passed)
            assert len(one.got) < copies
    assert one.most <= world.policy.callbacks.per_endpoint
    ids = [headers["webhook-id"] for headers, _ in one.got]
    assert len(set(ids)) == len(ids)
    assert await owed(world) >= copies + 1 - len(ids)  # a try that the end cut off is owed still


async def test_one_sender_at_a_time(world: World) -> None:
    async with sink() as one:
        world.policy = policy_of(one.url)
        async with world.pool.acquire() as other:
            await other.execute("SELECT pg_advisory_lock(hashtextextended('sluicegate.callbacks', 0))")
            async with sending(world):
                await tell(world)
                await asyncio.sleep(0.1)
                assert one.got == []
            await other.execute("SELECT pg_advisory_unlock_all()")


async def test_tenants_get_what_they_chose(world: World) -> None:
    world.policy = policy_of(events="[final]")
    sent, delivered = await world.message(status="sent"), await world.message(status="delivered", final_at=1)
    last = await world.message(status="sent", final_at=1)
    foreign = await world.message(tenant="beta", status="delivered", final_at=1)
    async with world.pool.acquire() as conn:
        rows = [
            (await world.row(sent), "message.sent"),
            (await world.row(delivered), "message.delivered"),
            (await world.row(last), "message.sent"),
            (await world.row(foreign), "message.delivered"),
        ]
        assert await add_events(conn, world.policy, rows, 0) == 2
    told = await world.pool.fetch("SELECT message_id FROM callbacks ORDER BY id")
    assert [row[0] for row in told] == [delivered, last]


@pytest.mark.parametrize(
    ("events", "event", "final", "wanted"),
    [
        (("final",), "message.sent", False, False),
        (("final",), "message.sent", True, True),
        (("final",), "message.corrected", True, True),
        (("final",), "message.received", False, True),
        (("final",), "optout.created", False, True),
        (("all",), "message.sent", False, True),
        (("message.sent",), "message.sent", False, True),
        (("message.sent",), "message.delivered", True, False),
    ],
)
def test_what_a_choice_of_events_holds(events: tuple[str, ...], event: str, final: bool, wanted: bool) -> None:
    assert wants(CallbackTarget("https://cb.example", (), events), event, final=final) is wanted


@pytest.mark.parametrize(
    "asked",
    ["Fri, 31 Dec 99999999999999999999 23:59:59 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "9" * 300, "-1", "soon"],
)
async def test_an_absurd_retry_after_holds_up_its_own_endpoint_at_most(world: World, asked: str) -> None:
    """The notice goes back to its line with a next try within its patience, whatever the endpoint writes."""
    async with sink() as one:
        one.answer = lambda n: web.Response(status=503 if n == 1 else 204, headers={"retry-after": asked})
        world.policy = policy_of(one.url)
        await tell(world)
        async with sending(world):

            async def put_back() -> bool:
                return bool(await world.pool.fetchval("SELECT max(tries) FROM callbacks") == 1)

            await until(put_back)
        row = await world.pool.fetchrow("SELECT created_at, due_at, gave_up_at FROM callbacks")
        assert row["gave_up_at"] is None and row["due_at"] <= row["created_at"] + 3 * 86_400_000


async def test_a_fault_of_ours_in_one_try_forgets_no_notice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What should never fail and does ends the line: its notice is sent by the next one, not kept in hand for ever."""
    monkeypatch.setattr(sender, "_BROKEN_MS", 50)
    honest, broken = line.next_try, iter([True])

    def once(*given: Any) -> Any:
        if next(broken, False):
            raise RuntimeError("a fault of ours")
        return honest(*given)

    monkeypatch.setattr(line, "next_try", once)
    async with sink() as one:
        one.answer = lambda n: web.Response(status=503 if n == 1 else 204)
        world.policy = policy_of(one.url)
        await tell(world)
        async with sending(world):
            await until(none_owed(world))
    assert len(one.got) == 2


async def test_a_tenant_with_endpoints_without_end_leaves_lines_to_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message may name a URL of its own: a thousand of them that hang hold up nobody else's (contract)."""
    monkeypatch.setattr(sender, "LINES", 8)
    async with sink() as hanging, sink() as other:
        hanging.slow_s = 60.0
        world.policy = policy_of(hanging.url)
        beta = replace(
            world.policy.tenants["beta"], callbacks=replace(world.policy.tenants["acme"].callbacks, url=other.url)
        )
        patient = replace(world.policy.callbacks, timeout_ms=60_000)
        world.policy = replace(world.policy, callbacks=patient, tenants={**world.policy.tenants, "beta": beta})
        for n in range(40):
            await tell(world, extras={"callback_url": f"{hanging.url}/{n}"})
        async with sending(world):

            async def all_hang() -> bool:
                return hanging.at_once >= 4

            await until(all_hang)
            await tell(world, tenant="beta")

            async def told() -> bool:
                return len(other.got) == 1

            await until(told)
        assert hanging.most <= 4
