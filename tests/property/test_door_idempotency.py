"""One key, however often and wherever it is posted, makes one message (I27), and tenants never meet (I31)."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

from tests.integration.api.conftest import Gateway, running

MESSAGE = {"to": "+447700900123", "from": "ACME", "text": "hi", "class": "non_priority"}
ROUNDS, POSTS = 10, 25


async def test_one_key_makes_one_message_over_two_doors(database_url: str, redis_url: str) -> None:
    """Every 202 to a key has the same octets; the others are 409 while it runs; another body is a conflict."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(running(database_url, redis_url))
        second = await stack.enter_async_context(running(database_url, redis_url, worker="api-1"))
        chance = random.Random(27)
        for number in range(ROUNDS):
            key = f"round-{number}"

            async def post(door: Gateway, body: dict[str, str], key: str = key) -> tuple[int, bytes]:
                await asyncio.sleep(chance.random() * 0.02)
                reply = await door.send(body, key=key)
                return reply.status, reply.octets

            same = [post(chance.choice((first, second)), MESSAGE) for _ in range(POSTS)]
            replies = await asyncio.gather(*same)
            assert {status for status, _ in replies} <= {202, 409}
            assert len({octets for status, octets in replies if status == 202}) == 1
            other, _ = await post(second, MESSAGE | {"text": "another"})
            assert other == 422
        assert await first.count() == await first.count("idempotency") == ROUNDS


async def test_what_one_tenant_does_never_shows_in_what_another_gets(database_url: str, redis_url: str) -> None:
    """The same random calls of one tenant get the same answers whether or not the other is active."""
    async with running(database_url, redis_url) as door:
        chance = random.Random(31)
        mine: list[str] = []
        for n in range(40):
            tenant = chance.choice(("acme", "other"))
            reply = await door.send(
                {"to": "+447700900123", "from": tenant.upper(), "text": f"{n}"}, tenant, key=f"k{n % 7}"
            )
            if tenant == "acme" and reply.status == 202 and "idempotent-replayed" not in reply.headers:
                mine.append(reply.json["id"])
            if reply.status == 202:
                assert reply.json["from"] == tenant.upper()
        listed = (await door.call("GET", "/v1/messages?limit=200")).json["data"]
        assert sorted(message["id"] for message in listed) == sorted(mine)
        for message_id in mine:
            assert (await door.call("GET", f"/v1/messages/{message_id}", "other")).status == 404
