"""Real cases of kind http, as met by people who run SMS gateways, named by id."""

from __future__ import annotations

import asyncio
import json
import resource
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.integration.api.conftest import Gateway, Reply

GB = {"to": "+447700900123", "from": "60070", "text": "hi"}


async def test_h01_separators_in_a_number_are_dropped(gateway: Gateway) -> None:
    """Plus, blanks and hyphens: the same number always means the same."""
    reply = await gateway.send('{"to": "+44 7700-900123", "from": "60070", "text": "hi"}', key="h01")
    assert (reply.status, reply.json["to"]) == (202, "+447700900123")
    again = await gateway.send('{"to": "+447700900123", "from": "60070", "text": "hi"}', key="h01")
    assert again.octets == reply.octets
    assert await gateway.rt.pool.fetchval("SELECT recipient FROM messages") == "+447700900123"


async def test_h02_00_instead_of_plus_only_where_the_tenant_allows_it(gateway: Gateway) -> None:
    body = '{"to": "00447700900123", "from": "60070", "text": "hi"}'
    refused = await gateway.send(body)
    assert (refused.status, refused.pointers) == (422, ["/to"])
    taken = await gateway.send(body, "other")
    assert (taken.status, taken.json["to"]) == (202, "+447700900123")


async def test_h04_arabic_indic_digits_are_not_digits(gateway: Gateway) -> None:
    to = "\\u0664\\u0664\\u0667\\u0667\\u0660\\u0660\\u0669\\u0660\\u0660\\u0661\\u0662\\u0663"
    reply = await gateway.send(f'{{"to": "+{to}", "from": "60070", "text": "hi"}}')
    assert (reply.status, reply.pointers) == (422, ["/to"])


async def test_h06_letters_in_a_number(gateway: Gateway) -> None:
    reply = await gateway.send('{"to": "+49 7775abc2219", "from": "60070", "text": "hi"}')
    assert (reply.status, reply.pointers) == (422, ["/to"])


async def test_h08_alphanumeric_sender_has_at_most_11_characters(gateway: Gateway) -> None:
    senders = ["ACMEBANKING", "ACMEBANKINGS", "ACME", "12345678901234567"]
    replies = [await gateway.send({"to": "+447700900123", "from": sender, "text": "hi"}) for sender in senders]
    assert [reply.status for reply in replies] == [202, 422, 202, 422]
    assert replies[1].pointers == ["/from"]


async def test_h10_short_code_as_sender(gateway: Gateway) -> None:
    reply = await gateway.send(GB)
    assert (reply.status, reply.json["from"]) == (202, "60070")


@pytest.mark.parametrize("text", ["", "   ", "\n"])
async def test_h11_empty_text_or_blanks_only(gateway: Gateway, text: str) -> None:
    reply = await gateway.send(GB | {"text": text})
    assert (reply.status, reply.pointers) == (422, ["/text"])
    assert await gateway.count() == 0


async def test_h12_too_many_segments_are_refused_not_cut(gateway: Gateway) -> None:
    reply = await gateway.send(GB | {"text": "x" * (10 * 153 + 1)})
    assert (reply.status, reply.code) == (422, "policy.max_segments")
    assert "11 segments" in reply.json["detail"]
    assert "limit is 10" in reply.json["detail"]
    assert (await gateway.send(GB | {"text": "x" * (10 * 153)})).json["segments"] == 10


async def test_h13_nul_inside_the_text(gateway: Gateway) -> None:
    reply = await gateway.send('{"to":"+447700900123","from":"60070","text":"Hello\\u0000world"}')
    assert (reply.status, reply.pointers) == (422, ["/text"])


async def test_h15_the_same_key_twice_in_one_object(gateway: Gateway) -> None:
    reply = await gateway.send('{"to":"+447700900123","to":"+447700900456","from":"60070","text":"hi"}')
    assert (reply.status, reply.code) == (400, "request.malformed")


async def raw(gateway: Gateway, head: bytes, chunks: list[bytes]) -> int:
    """Writes a request by hand and returns the status of its answer."""
    url = urlsplit(gateway.base)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)

    async def write() -> None:
        writer.write(head)
        try:
            for chunk in chunks:
                writer.write(chunk)
                await writer.drain()
        except ConnectionError:
            pass

    writing = asyncio.create_task(write())
    line = await asyncio.wait_for(reader.readline(), 15)
    await writing
    writer.close()
    return int(line.split()[1])


async def test_h16_a_very_large_body_with_and_without_a_length(gateway: Gateway) -> None:
    head = b"POST /v1/messages HTTP/1.1\r\nhost: x\r\nidempotency-key: h16\r\n"
    piece = b"x" * 100_000
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert await raw(gateway, head + b"content-length: 20000000\r\n\r\n", [piece] * 200) == 413
    chunked = [b"%x\r\n%s\r\n" % (len(piece), piece)] * 200 + [b"0\r\n\r\n"]
    assert await raw(gateway, head + b"transfer-encoding: chunked\r\n\r\n", chunked) == 413
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 20_000  # sender and server in one process


async def test_h17_a_key_again_with_another_body(gateway: Gateway) -> None:
    replies = [await gateway.send(GB | {"text": text}, key="k1") for text in ("A", "B")]
    assert [reply.status for reply in replies] == [202, 422]
    assert replies[1].code == "idempotency.conflict"
    assert "idempotent-replayed" not in replies[1].headers
    assert await gateway.count() == 1


async def test_h19_the_same_key_of_another_tenant_or_endpoint(gateway: Gateway) -> None:
    mine = await gateway.send(GB, key="k3")
    theirs = await gateway.send(GB, "other", key="k3")
    batch = await gateway.call("POST", "/v1/messages/batch", key="k3", json={"messages": [GB]})
    assert [mine.status, theirs.status, batch.status] == [202, 202, 202]
    ids = {mine.json["id"], theirs.json["id"], batch.json["results"][0]["message"]["id"]}
    assert len(ids) == 3
    assert not any("idempotent-replayed" in reply.headers for reply in (mine, theirs, batch))


async def test_h20_a_shed_request_may_be_repeated_with_its_key(gateway: Gateway) -> None:
    await gateway.rt.scheduler.pause("provider:simulator")
    shed = await gateway.send(GB, key="k4")
    assert (shed.status, shed.code) == (503, "capacity.class_budget_exceeded")
    assert int(shed.headers["retry-after"]) >= 1
    assert await gateway.count() == await gateway.count("idempotency") == 0
    await gateway.rt.scheduler.resume("provider:simulator")
    repeated = await gateway.send(GB, key="k4")
    assert repeated.status == 202
    assert await gateway.count() == 1


async def test_h22_a_batch_with_one_bad_recipient(gateway: Gateway) -> None:
    numbers = ["+447700900123", "44", "+447700900456", "+447700900789"]
    reply = await gateway.call(
        "POST",
        "/v1/messages/batch",
        key="h22",
        json={"defaults": {"from": "60070", "text": "hi"}, "messages": [{"to": number} for number in numbers]},
    )
    assert reply.status == 202
    results = reply.json["results"]
    assert [result["status"] for result in results] == [202, 422, 202, 202]
    assert results[1]["problem"]["errors"][0]["pointer"] == "/messages/1/to"
    assert [result["message"]["to"] for result in results if "message" in result] == [numbers[0], *numbers[2:]]
    assert await gateway.count() == 3


@pytest.mark.parametrize(
    ("key", "status", "code"),
    [
        (None, 400, "idempotency.missing"),
        ("", 400, "idempotency.malformed"),
        ("x" * 10_000, 400, "idempotency.malformed"),
        ("ключ", 400, "idempotency.malformed"),
        ("a b", 400, "idempotency.malformed"),
        ("x" * 256, 400, "idempotency.malformed"),
        ('"quoted', 400, "idempotency.malformed"),
    ],
)
async def test_h27_missing_or_unfit_keys(gateway: Gateway, key: str | None, status: int, code: str) -> None:
    headers: dict[str, Any] = {} if key is None else {"Idempotency-Key": key}
    reply: Reply = await gateway.call("POST", "/v1/messages", headers=headers, data=json.dumps(GB).encode())
    assert (reply.status, reply.code) == (status, code)
    assert await gateway.count() == 0
