"""Reading, listing and canceling, for the owner and for nobody else (I31)."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from tests.integration.api.conftest import Gateway

MESSAGE = {"to": "+447700900123", "from": "ACME", "text": "hi"}


async def test_foreign_and_missing_messages_are_the_same(gateway: Gateway) -> None:
    location = (await gateway.send(MESSAGE)).headers["location"]
    missing = f"/v1/messages/msg_{location[-32:-6]}ffffff"
    for method, suffix in (("GET", ""), ("POST", "/cancel")):
        foreign = await gateway.call(method, location + suffix, "other")
        absent = await gateway.call(method, missing + suffix, "other")
        nonsense = await gateway.call(method, "/v1/messages/msg_x" + suffix, "other")
        assert {foreign.status, absent.status, nonsense.status} == {404}
        assert foreign.octets == absent.octets == nonsense.octets
    assert (await gateway.call("GET", location)).json["status"] == "queued"
    assert (await gateway.call("GET", "/v1/messages", "other")).json == {"data": [], "next_cursor": None}


async def test_cancel_wins_the_slot_once(gateway: Gateway) -> None:
    location = (await gateway.send(MESSAGE)).headers["location"]
    replies = await asyncio.gather(*(gateway.call("POST", location + "/cancel") for _ in range(5)))
    assert sorted(reply.status for reply in replies) == [200, 409, 409, 409, 409]
    canceled = next(reply for reply in replies if reply.status == 200).json
    assert (canceled["status"], canceled["final"], canceled["origin"]) == ("canceled", True, "gateway")
    assert [event["type"] for event in canceled["events"]] == ["accepted", "canceled"]
    assert await gateway.count("attempts") == 1
    assert next(reply for reply in replies if reply.status == 409).code == "message.not_cancelable"
    assert await gateway.rt.pool.fetchval("SELECT sweep_at FROM messages") is None


async def test_a_claimed_message_is_sending_and_not_cancelable(gateway: Gateway) -> None:
    location = (await gateway.send(MESSAGE)).headers["location"]
    claim = "INSERT INTO attempts (day, id, slot, kind, provider, session, claimed_at) SELECT day, id, 0, 'submit', provider, 's', $1 FROM messages"  # noqa: E501
    await gateway.rt.pool.execute(claim, gateway.rt.clock.now_at())
    assert (await gateway.call("GET", location)).json["status"] == "sending"
    assert (await gateway.call("POST", location + "/cancel")).status == 409
    assert len((await gateway.call("GET", "/v1/messages?status=sending")).json["data"]) == 1
    assert (await gateway.call("GET", "/v1/messages?status=queued")).json["data"] == []


async def test_not_cancelable_while_an_earlier_submit_is_in_doubt(gateway: Gateway) -> None:
    location = (await gateway.send(MESSAGE)).headers["location"]
    doubt = "INSERT INTO attempts (day, id, slot, kind, claimed_at, outcome, outcome_at) SELECT day, id, 0, 'submit', $1, 'unconfirmed', $1 FROM messages"  # noqa: E501
    await gateway.rt.pool.execute(doubt, gateway.rt.clock.now_at())
    await gateway.rt.pool.execute("UPDATE messages SET next_slot = 1")
    assert (await gateway.call("POST", location + "/cancel")).status == 409


async def test_a_scheduled_message_is_canceled_with_its_due_row(gateway: Gateway) -> None:
    reply = await gateway.send(MESSAGE | {"send_at": "2099-01-01T00:00:00Z"})
    assert reply.status == 422
    from datetime import UTC, datetime, timedelta

    reply = await gateway.send(MESSAGE | {"send_at": (datetime.now(UTC) + timedelta(days=1)).isoformat()})
    assert (await gateway.call("POST", reply.headers["location"] + "/cancel")).json["status"] == "canceled"
    assert await gateway.count("due") == 0


async def test_the_list_pages_newest_first_and_filters(gateway: Gateway) -> None:
    for n in range(5):
        await gateway.send(MESSAGE | {"to": f"+44770090012{n}", "client_ref": f"ref-{n % 2}"})
    await gateway.send(MESSAGE | {"class": "otp"})
    seen: list[str] = []
    path = "/v1/messages?limit=4"
    while True:
        page = (await gateway.call("GET", path)).json
        seen += [message["id"] for message in page["data"]]
        if page["next_cursor"] is None:
            break
        path = f"/v1/messages?limit=4&cursor={page['next_cursor']}"
    assert len(seen) == len(set(seen)) == 6
    assert seen == sorted(seen, reverse=True)
    for query, count in {
        "class=otp": 1,
        "to=%2B447700900123": 2,
        "to=+447700900123": 2,
        "client_ref=ref-0": 3,
        "status=queued": 6,
        "status=delivered": 0,
        "created_after=2020-01-01T00:00:00Z": 6,
        "created_before=2020-01-01T00:00:00Z": 0,
    }.items():
        reply = await gateway.call("GET", f"/v1/messages?{query}")
        assert (query, len(reply.json["data"])) == (query, count)


async def test_wrong_filters_and_foreign_cursors_are_refused(gateway: Gateway) -> None:
    for _ in range(2):
        await gateway.send(MESSAGE)
    cursor = (await gateway.call("GET", "/v1/messages?limit=1")).json["next_cursor"]
    assert (await gateway.call("GET", f"/v1/messages?cursor={cursor}", "other")).pointers == ["/cursor"]
    for query in (
        "limit=0",
        "limit=x",
        "status=lost",
        "class=x",
        "to=12",
        "created_after=now",
        "cursor=%00",
        "x=1",
        "limit=1&limit=2",
    ):
        reply = await gateway.call("GET", f"/v1/messages?{query}")
        assert (query, reply.status, reply.code) == (query, 422, "request.invalid")


async def test_parts_and_timeline_of_a_long_message(gateway: Gateway) -> None:
    location = (await gateway.send(MESSAGE | {"text": "x" * 200})).headers["location"]
    row = await gateway.rt.pool.fetchrow("SELECT day, id, created_at FROM messages")
    at = row["created_at"]
    await gateway.rt.pool.execute(
        "INSERT INTO attempts (day, id, slot, kind, provider, session, claimed_at, written_at, outcome, outcome_at,"
        " parts)"
        " VALUES ($1, $2, 0, 'submit', 'simulator', 'sim-1', $3, $4, 'accepted', $5, $6)",
        row["day"], row["id"], at + 1, at + 2, at + 3, {"accepted": [1, 2]},
    )  # fmt: skip
    await gateway.rt.pool.execute(
        "INSERT INTO receipts (provider, digest, session, received_at, state, raw, day, message_id, slot, part,"
        " done_at)"
        " VALUES ('simulator', $4, 'sim-1', $3, 'delivered', '', $1, $2, 0, 1, $3)",
        row["day"], row["id"], at + 4, uuid4().bytes,
    )  # fmt: skip
    shown = (await gateway.call("GET", location)).json
    assert [(event["seq"], event["type"]) for event in shown["events"]] == [
        (1, "accepted"), (2, "claimed"), (3, "submitted"), (4, "receipt"),
    ]  # fmt: skip
    assert [(part["part"], part["status"]) for part in shown["parts"]] == [(1, "delivered"), (2, "sent")]
    assert shown["parts"][0]["delivery"]["state"] == "delivered"
    assert "text" not in shown
