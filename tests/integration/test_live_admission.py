"""A whole gateway before one slow carrier: what its Retry-After is worth, and codes beside a long backlog."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import orjson
import pytest

from loadtests.http_line import HttpLine
from loadtests.obedient import ObedientClient, Offer
from loadtests.world import Shape, World, wait_for
from tests.conftest import run_apart

RATE, BACKLOG = 25, 5_000
OFFERED_S, PATIENCE_S = 16.0, 75.0
POLICY = f"""\
classes:
  otp: {{wait_budget: 10s, ttl: {{default: 2m, max: 10m}}, weight: 60, quantum: 1}}
  transactional: {{wait_budget: 12s, ttl: {{default: 1h, max: 24h}}, weight: 25, quantum: 4}}
  marketing: {{wait_budget: 4h, ttl: {{default: 12h, max: 48h}}, weight: 10, quantum: 32, when_full: refuse}}
tenant_defaults: {{limits: {{rate_per_s: 1000, burst: 1000}}, requests: {{rate_per_s: 5000, burst: 10000}}, classes: [otp, transactional, marketing], default_class: transactional, default_sender: "60070"}}
tenants: {{obedient: {{}}, bank: {{}}, shop: {{}}}}
providers:
  carrier:
    sessions:
      only: {{host: 127.0.0.1, port: {{port}}, system_id: load, password: secret, bind: transceiver, window: 10, limits: {{rate_per_s: {RATE}, burst: 5}}}}
routes:
  everything: {{match: {{}}, provider: carrier}}
"""  # noqa: E501 - lines of YAML
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """One gateway for the tests of this file, in a directory that the servers' account can enter."""
    with tempfile.TemporaryDirectory(prefix="sluicegate-live-") as directory:
        world = World(Path(directory), Shape(answer_delay_ms=20), POLICY)
        run_apart(world.start())
        yield world
        run_apart(world.stop())


def left_ns(world: World) -> dict[str, int]:
    """When the carrier got each message first, by client_ref."""
    found: dict[str, int] = {}
    for line in world.journal_path.read_bytes().splitlines():
        entry = orjson.loads(line)
        if entry["event"] == "submit":
            found.setdefault(entry["body_prefix"].split(" ", 1)[0], entry["t_ns"])
    return found


async def _by_status(ledger: asyncpg.Connection, prefix: str) -> dict[str, int]:
    statement = "SELECT status, count(*) FROM messages WHERE starts_with(client_ref, $1) GROUP BY 1"
    return dict(await ledger.fetch(statement, prefix))


async def test_an_obedient_client_at_twice_the_capacity_gets_everything_in(world: World) -> None:
    """At most three requests per accepted message (two when the machine is quiet), nobody starves, nothing expires."""
    client = ObedientClient(world.url, world.new_key("obedient"))
    prefix = f"obedient-{time.monotonic_ns()}"  # a second try must not be answered from the first one's keys
    began_mono = time.monotonic()
    await client.send(Offer(prefix, 2 * RATE, OFFERED_S, {"class": "transactional"}, patience_s=PATIENCE_S))
    took_s = time.monotonic() - began_mono
    assert client.cut == 0 and client.given_up == set()
    refusals = [one for one in client.answers if one.status != 202]
    assert {(one.status, one.code) for one in refusals} == {(503, "capacity.class_budget_exceeded")}
    assert all((one.retry_after or "").isdecimal() and int(one.retry_after or 0) >= 1 for one in refusals)
    assert len(refusals) > len(client.accepted) / 10, "the carrier was not too slow: nothing was proven"
    assert client.requests_per_accepted <= 3.0
    assert took_s < 6 * OFFERED_S  # twice as long as it was offered, less what may wait inside; threefold slack
    ledger = await world.ledger()
    try:
        async with asyncio.timeout(60):
            while (ended := await _by_status(ledger, prefix)).keys() & {"queued", "scheduled"}:
                await asyncio.sleep(0.2)
    finally:
        await ledger.close()
    assert ended.get("expired", 0) == 0 and sum(ended.values()) == len(client.accepted)


async def test_codes_do_not_wait_for_a_backlog_of_marketing(world: World) -> None:
    """Five thousand of them would take over three minutes; a code leaves within two seconds."""
    line, key = HttpLine(world.url), world.new_key("shop")
    for call in range(BACKLOG // 1_000):
        messages = [{"to": f"+44770{call}{n:06d}", "text": f"sale-{call}.{n} all of it"} for n in range(1_000)]
        body = orjson.dumps({"defaults": {"class": "marketing"}, "messages": messages})
        reply = await line.post(
            "/v1/messages/batch", body, {"Authorization": f"Bearer {key}", "Idempotency-Key": f"{call}"}
        )
        assert reply.status == 202 and {one["status"] for one in orjson.loads(reply.body)["results"]} == {202}
    line.close()
    bank = world.new_key("bank")
    longest_s = []
    for turn in range(3):
        client = ObedientClient(world.url, bank)
        await client.send(Offer(f"code{turn}", 4, 2.0, {"class": "otp"}, poisson=True, seed=turn, patience_s=2.0))
        assert client.given_up == set()
        await wait_for(lambda codes=client.accepted: codes.keys() <= left_ns(world).keys(), "every code left", 20)  # type: ignore[misc]
        left = left_ns(world)
        longest_s.append(max((left[ref] - one.began_ns) / 1e9 for ref, one in client.accepted.items()))
    assert min(longest_s) < 2.0, longest_s
    marketing = sum(1 for ref in left_ns(world) if ref.startswith("sale-"))
    assert 0 < marketing < BACKLOG - 1_000, "the backlog was gone: nothing was proven"
