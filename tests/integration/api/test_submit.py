"""POST /v1/messages: what is accepted, how it is answered, and what is durable then (I7)."""

from __future__ import annotations

from typing import Any

from gateway.sealing import about_message
from tests.integration.api.conftest import Gateway, until

MESSAGE = {"to": "+447700900123", "from": "ACME", "text": "hi"}


async def test_accepted_message_is_answered_as_the_contract_says(gateway: Gateway) -> None:
    reply = await gateway.send(MESSAGE | {"class": "otp", "metadata": {"order": "4711"}, "client_ref": "c-1"})
    assert reply.status == 202
    body = reply.json
    assert list(body) == [
        "id", "status", "final", "origin", "class", "to", "from", "segments", "encoding", "created_at", "submit_by",
        "expires_at", "not_before", "route", "predicted_wait_ms", "application", "client_ref", "metadata",
        "policy_version", "delivery", "expiry", "error", "possible_duplicate",
    ]  # fmt: skip
    assert body["status"] == "queued"
    assert body["final"] is False
    assert body["metadata"] == {"order": "4711"}
    assert reply.headers["location"] == f"/v1/messages/{body['id']}"
    assert reply.headers["x-request-id"]
    assert reply.headers["ratelimit-policy"] == '"requests";q=100000;w=1'
    assert reply.headers["ratelimit"].startswith('"requests";r=99999;t=')
    assert await gateway.count() == 1
    row = await gateway.rt.pool.fetchrow("SELECT * FROM messages")
    assert row["status"] == "queued"
    assert row["sweep_at"] == row["submit_by"]
    assert b"hi" not in bytes(row["body"]), "texts are sealed"
    about = about_message(row["tenant_id"], row["id"])
    assert gateway.rt.sealer.open(row["body_key_id"], bytes(row["body"]), about) == b"hi"


async def test_accepted_message_reaches_the_index_and_its_outbox_row_goes(gateway: Gateway) -> None:
    await gateway.send(MESSAGE)

    async def queued() -> bool:
        counts = await gateway.rt.scheduler.counts()
        return counts.get(("simulator", "transactional")) == 1 and await gateway.count("outbox") == 0

    await until(queued)


async def test_same_key_same_fields_gets_the_first_answer_again(gateway: Gateway) -> None:
    first = await gateway.send(MESSAGE, key="k-1")
    again = await gateway.send('{"text":"hi","from":"ACME", "to":"+44 (7700) 900-123"}', key='"k-1"')
    assert (first.status, first.octets) == (again.status, again.octets)
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    assert await gateway.count() == 1


async def show(gateway: Gateway, message_id: str) -> Any:
    return (await gateway.call("GET", f"/v1/messages/{message_id}")).json
