"""Lines of many endpoints share statements: pages read together, results written together, and nobody's gets lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.callbacks.books import PAGE, Books
from gateway.ledger import callback_lines
from gateway.ledger.callback_lines import Endpoint, Verdict
from gateway.loops import end
from tests.integration.delivery.test_callbacks import none_owed, sending, sink, tell
from tests.integration.delivery.world import World, policy_of, until


@asynccontextmanager
async def books_of(world: World) -> AsyncIterator[Books]:
    books = Books(world.pool, world.sealer, world.clock)
    task = asyncio.create_task(books.run())
    try:
        yield books
    finally:
        await end([task])


async def endpoints_of(world: World, count: int, each: int) -> list[Endpoint]:
    """So many endpoints, each owed so many notices."""
    world.policy = policy_of("http://127.0.0.1:9/unused")
    for n in range(count):
        for _ in range(each):
            await tell(world, extras={"callback_url": f"http://127.0.0.1:9/{n}"})
    rows = await world.pool.fetch("SELECT id, tenant_id, url FROM endpoints ORDER BY id")
    return [Endpoint(row["id"], row["tenant_id"], "acme", row["url"]) for row in rows]


async def test_pages_and_results_of_lines_that_come_together_are_one_statement_each(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, removed = callback_lines.pages, callback_lines.remove
    sizes: list[tuple[str, int]] = []

    async def counted_pages(conn: Any, sealer: Any, asked: Any, **bounds: Any) -> Any:
        sizes.append(("read", len(asked)))
        return await read(conn, sealer, asked, **bounds)

    async def counted_remove(conn: Any, ids: Any) -> None:
        sizes.append(("removed", len(ids)))
        await removed(conn, ids)

    monkeypatch.setattr(callback_lines, "pages", counted_pages)
    monkeypatch.setattr(callback_lines, "remove", counted_remove)
    endpoints = await endpoints_of(world, 5, 2)
    async with books_of(world) as books:
        pages = await asyncio.gather(*(books.page(endpoint, ()) for endpoint in endpoints))
        assert [(len(lines), more) for lines, more in pages] == [(2, False)] * 5
        in_hand = [[line.id for line in lines] for lines, _ in pages]
        assert len({one for ids in in_hand for one in ids}) == 10
        rest = await asyncio.gather(*(books.page(one, ids[:1]) for one, ids in zip(endpoints, in_hand, strict=True)))
        assert [[line.id for line in lines] for lines, _ in rest] == [ids[1:] for ids in in_hand]
        later = Verdict(in_hand[0][1], world.clock.now_at() + 60_000, "500", None)
        settled = [books.settle(ids[:1], [later] if ids is in_hand[0] else []) for ids in in_hand]
        await asyncio.gather(*settled)
        assert await books.page(endpoints[0], ()) == ([], False)
    assert sizes == [("read", 5), ("read", 5), ("removed", 5), ("read", 1)]
    assert await world.pool.fetchval("SELECT tries FROM callbacks WHERE id = $1", in_hand[0][1]) == 1
    assert await world.pool.fetchval("SELECT count(*) FROM callbacks") == 5


async def test_a_lone_line_gets_a_whole_page_and_hears_that_there_is_more(world: World) -> None:
    (endpoint,) = await endpoints_of(world, 1, 1)
    await world.pool.execute(
        "INSERT INTO callbacks (endpoint_id, tenant_id, seq, type, webhook_id, body, created_at, due_at)"
        " SELECT endpoint_id, tenant_id, seq, type, gen_random_uuid(), body, created_at, due_at"
        " FROM callbacks, generate_series(1, $1::int)",
        PAGE,
    )
    async with books_of(world) as books:
        lines, more = await books.page(endpoint, ())
        assert (len(lines), more) == (PAGE, True)
        lines, more = await books.page(endpoint, [line.id for line in lines])
        assert (len(lines), more) == (1, False)


async def test_what_the_ledger_says_no_to_reaches_every_line_that_asked(world: World) -> None:
    endpoints = await endpoints_of(world, 2, 1)
    await world.pool.execute("ALTER TABLE callbacks RENAME TO elsewhere")
    async with books_of(world) as books:
        asked = [books.page(endpoint, ()) for endpoint in endpoints]
        faults = await asyncio.gather(*asked, books.settle([1], []), return_exceptions=True)
        assert [type(fault).__name__ for fault in faults] == ["UndefinedTableError"] * 3
        await world.pool.execute("ALTER TABLE elsewhere RENAME TO callbacks")
        assert len((await books.page(endpoints[0], ()))[0]) == 1


async def test_a_word_of_a_former_release_names_nobody_and_is_heard_by_all(world: World) -> None:
    """What is written while the sender listens is found at once, with the names of its endpoints or without."""
    async with sink() as one:
        world.policy = policy_of(one.url)
        async with sending(world):
            for word in (None, ""):
                for n in range(20):
                    await tell(world, extras={"callback_url": f"{one.url}/{n}"})
                if word is not None:
                    await world.pool.execute("SELECT pg_notify($1, $2)", callback_lines.CHANNEL, word)
                await until(none_owed(world))
    assert len(one.got) == 40 and len(set(one.paths)) == 20
