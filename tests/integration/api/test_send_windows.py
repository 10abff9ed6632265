"""The door and the send window of a destination (contract section 3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.domain.ids import rfc3339
from tests.integration.api.conftest import POLICY, Gateway, running

HOUR_MS = 3_600_000


def policy_closed_now() -> str:
    """Marketing may reach Britain in an hour that is eleven hours ahead."""
    now = datetime.now(UTC)
    start, end = ((now + timedelta(hours=ahead)).strftime("%H:%M") for ahead in (11, 12))
    window = f'{{classes: [marketing], from: "{start}", to: "{end}", timezone: UTC}}'
    return f'{POLICY}destinations:\n  britain: {{prefixes: ["+44"], send_window: {window}}}\n'


def sale(**fields: Any) -> dict[str, Any]:
    return {"to": "+447700900123", "from": "ACME", "text": "sale", "class": "marketing", **fields}


async def test_a_message_outside_its_window_is_scheduled_for_the_opening(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, policy_closed_now()) as gateway:
        taken = (await gateway.send(sale(ttl=24 * 3600))).json
        now_at = gateway.rt.clock.now_at()
        row = await gateway.rt.pool.fetchrow("SELECT * FROM messages")
        due = await gateway.rt.pool.fetchrow("SELECT due_at, kind FROM due")
        assert (taken["status"], taken["not_before"]) == ("scheduled", rfc3339(row["not_before"]))
        assert 10.9 * HOUR_MS < row["not_before"] - now_at <= 11 * HOUR_MS
        assert row["submit_by"] == row["not_before"] + 4 * HOUR_MS
        assert row["expires_at"] == row["created_at"] + 24 * HOUR_MS  # never moved
        assert tuple(due) == (row["not_before"], "send_window")
        shown = (await gateway.call("GET", f"/v1/messages/{taken['id']}")).json
        assert [(event["type"], event["cause"]) for event in shown["events"]] == [
            ("accepted", None), ("deferred", "send_window"),
        ]  # fmt: skip
        assert (await gateway.send(sale(**{"class": "otp"}))).json["status"] == "queued"


async def test_what_can_never_go_is_refused(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url, policy_closed_now()) as gateway:
        await _refused(gateway, sale(ttl=3600))
        batch = {"defaults": {"from": "ACME", "class": "marketing"}, "messages": [{"to": "+447700900123", "text": "a", "ttl": 3600}, {"to": "+447700900124", "text": "b", "ttl": 86400}]}  # fmt: skip  # noqa: E501
        answer = await gateway.call("POST", "/v1/messages/batch", key="b1", json=batch)
        assert [one["status"] for one in answer.json["results"]] == [422, 202]
        assert answer.json["results"][1]["message"]["status"] == "scheduled"
        rehearsed = await gateway.call("POST", "/v1/messages?dry_run=true", json=sale(ttl=86400))
        assert (rehearsed.status, rehearsed.json["status"]) == (200, "scheduled")


async def _refused(gateway: Gateway, message: dict[str, Any]) -> None:
    answer = await gateway.send(message)
    assert (answer.status, answer.code) == (422, "capacity.infeasible_deadline")
    assert "retry-after" not in answer.headers
