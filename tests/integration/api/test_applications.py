"""Applications as a whole: counts by status, pause, resume, cancel (contract section 2)."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from yarl import URL

from gateway.domain.ids import day_of, read
from tests.integration.api.conftest import Gateway

SALE = {"to": "+447700900123", "from": "ACME", "text": "hello", "application": "sale"}


async def _act(gateway: Gateway, action: str, name: str = "sale", tenant: str = "manager") -> Any:
    return await gateway.call("POST", f"/v1/applications/{name}/{action}", tenant)


async def _claimed(gateway: Gateway, message: str) -> None:
    message_id = read(message)
    assert message_id is not None
    await gateway.rt.pool.execute(
        "INSERT INTO attempts (day, id, slot, kind, claimed_at) VALUES ($1, $2, 0, 'submit', 0)",
        day_of(message_id), message_id,
    )  # fmt: skip


async def test_pause_resume_cancel_and_counts(gateway: Gateway) -> None:
    await gateway.give_key("acme", "manager", scopes=["manage", "read"])
    sent = [(await gateway.send(SALE)).json["id"] for _ in range(4)]
    planned = await gateway.send(SALE | {"send_at": "2027-01-01T00:00:00Z"})
    assert planned.status == 202, planned.octets
    other = await gateway.send({**SALE, "application": "other"})
    paused = await _act(gateway, "pause")
    assert paused.status == 200 and paused.json["paused"] and paused.json["paused_since"]
    assert (await gateway.send(SALE)).status == 202  # a pause does not close the door
    await _claimed(gateway, sent[0])
    listed = await gateway.call("GET", "/v1/applications")
    assert [(one["name"], one["paused"], one["counts"]) for one in listed.json["data"]] == [
        ("other", False, {"queued": 1}),
        ("sale", True, {"queued": 4, "scheduled": 1, "sending": 1}),
    ]
    canceled = await _act(gateway, "cancel")
    assert (canceled.status, canceled.json["canceled"]) == (200, 5)
    assert canceled.json["counts"] == {"canceled": 5, "sending": 1}
    assert (await _act(gateway, "cancel")).json["canceled"] == 0
    assert (await gateway.call("GET", f"/v1/messages/{other.json['id']}")).json["status"] == "queued"
    assert (await gateway.call("GET", f"/v1/messages/{planned.json['id']}")).json["status"] == "canceled"
    assert await gateway.count("due") == 0
    resumed = await _act(gateway, "resume")
    assert (resumed.status, resumed.json["paused"]) == (200, False)
    audit = await gateway.rt.pool.fetch("SELECT actor, action FROM audit WHERE action LIKE 'application.%' ORDER BY id")
    assert [row["action"] for row in audit] == [
        "application.pause", "application.cancel", "application.cancel", "application.resume",
    ]  # fmt: skip
    assert {row["actor"] for row in audit} == {"tenant acme"}


async def test_a_cancellation_works_in_batches(gateway: Gateway, monkeypatch: Any) -> None:
    monkeypatch.setattr("gateway.ledger.applications._LOOKED", 3)
    await gateway.give_key("acme", "manager", scopes=["manage"])
    for _ in range(7):
        assert (await gateway.send(SALE)).status == 202
    assert (await _act(gateway, "cancel")).json["counts"] == {"canceled": 7}


async def test_applications_of_others_and_unknown_ones_do_not_exist(gateway: Gateway) -> None:
    await gateway.give_key("acme", "manager", scopes=["manage"])
    await gateway.give_key("other", "stranger", scopes=["manage", "read"])
    assert (await gateway.send(SALE)).status == 202
    for action in ("pause", "resume", "cancel"):
        foreign = await _act(gateway, action, tenant="stranger")
        unknown = await _act(gateway, action, "nothing")
        assert (foreign.status, unknown.status) == (404, 404)
        assert foreign.octets == unknown.octets
        refused = await _act(gateway, action, tenant="acme")
        assert (refused.status, refused.code) == (403, "auth.scope")
    assert (await gateway.call("GET", "/v1/applications", "stranger")).json == {"data": []}


async def test_a_paused_route_is_passed_by_or_refused(gateway: Gateway) -> None:
    """The next candidate takes the message; without one the door says 503, cause `paused`, scope route."""
    second = {"to": "+447700900123", "from": "ACME", "text": "hello", "class": "non_priority"}
    await gateway.rt.scheduler.session_up("simulator", "sim-1")
    await gateway.rt.scheduler.session_up("slow", "slow-1")
    await gateway.rt.scheduler.pause("route:everywhere")
    taken = await gateway.send(second)
    assert (taken.status, taken.json["route"]) == (202, "bulk")
    refused = await gateway.send(SALE)
    assert (refused.status, refused.code) == (503, "capacity.class_budget_exceeded")
    assert (refused.json["cause"], refused.json["scope"]) == ("paused", {"kind": "route", "name": "everywhere"})
    assert "is paused" in refused.json["detail"] and refused.json["retry_after_s"] >= 30  # nobody knows its end
    await gateway.rt.scheduler.resume("route:everywhere")
    assert (await gateway.send(SALE)).status == 202


async def test_any_name_that_a_message_may_have_can_be_held(gateway: Gateway) -> None:
    await gateway.give_key("acme", "manager", scopes=["manage", "read"])
    names = ["spring/sale", "a/pause/b", "/", "100 %", "a%2Fb", "a?b#c", "ü" * 64, "…", "=1+1"]
    for name in names:
        assert (await gateway.send(SALE | {"application": name})).status == 202
    for name in names:
        for action, paused in (("pause", True), ("pause", True), ("resume", False), ("resume", False)):
            path = URL(f"{gateway.base}/v1/applications/{quote(name, safe='')}/{action}", encoded=True)
            headers = {"Authorization": f"Bearer {gateway.keys['manager']}"}
            async with gateway.session.post(path, headers=headers) as reply:
                assert reply.status == 200, name
                told = await reply.json()
                assert (told["name"], told["paused"]) == (name, paused)
