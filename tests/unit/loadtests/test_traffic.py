"""The load runs' client is obedient and keeps an honest journal."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import orjson

from loadtests.traffic import Traffic

Answer = Callable[[str, int], bytes | None]  # (client_ref, how often it was asked) -> raw reply; None: cut


def reply(status: int, body: bytes = b"{}", more: str = "") -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


def accepted(ref: str) -> bytes:
    return reply(202, orjson.dumps({"id": f"msg_{ref}"}))


@asynccontextmanager
async def door(answer: Answer) -> AsyncIterator[str]:
    """A door that answers as told."""
    asked: Counter[str] = Counter()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.split("content-length: ", 1)[1].split("\r\n", 1)[0])
                ref = orjson.loads(await reader.readexactly(length))["client_ref"]
                assert f"idempotency-key: {ref}" in head
                asked[ref] += 1
                raw = answer(ref, asked[ref])
                if raw is None:
                    break
                writer.write(raw)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def play(answer: Answer, *, messages: int = 5, patience_s: float = 10.0, again_ratio: float = 0.0) -> Traffic:
    async with door(answer) as url:
        traffic = Traffic(url, "key", 500, 1, "t", patience_s=patience_s, again_ratio=again_ratio, lines=4)
        sending = asyncio.create_task(traffic.run_until_stopped())
        while traffic.journal.attempted < messages:
            await asyncio.sleep(0.001)
        traffic.stop()
        await asyncio.wait_for(sending, 20)
    return traffic


async def test_refused_and_cut_off_messages_are_asked_again_under_their_key() -> None:
    def answer(ref: str, n: int) -> bytes | None:
        if n == 1:
            return reply(503, more="Retry-After: 0\r\n")
        return None if n == 2 else accepted(ref)

    journal = (await play(answer)).journal
    assert journal.accepted == {f"t-{n:06d}": f"msg_t-{n:06d}" for n in range(journal.attempted)}
    assert journal.answers == {503: journal.attempted, "IncompleteReadError": journal.attempted, 202: journal.attempted}
    assert not journal.given_up and not journal.refused and not journal.contradicted
    assert journal.rate_per_s() == journal.attempted


async def test_a_definite_refusal_is_not_asked_again() -> None:
    journal = (await play(lambda ref, n: reply(422))).journal
    assert journal.answers == {422: journal.attempted}
    assert journal.refused == set(journal.given_up) and len(journal.refused) == journal.attempted


async def test_what_had_no_answer_counts_as_refused_by_nobody() -> None:
    journal = (await play(lambda ref, n: None, messages=2, patience_s=0.05)).journal
    assert len(journal.given_up) == journal.attempted
    assert not journal.refused


async def test_a_key_answered_with_another_message_is_noted() -> None:
    journal = (await play(lambda ref, n: accepted(f"{ref}-{n}"), again_ratio=1.0)).journal
    assert sorted(journal.contradicted) == sorted(journal.accepted)
