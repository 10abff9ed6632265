"""What a carrier's refusal does to the message, the session, the route and the account, each apart from the others."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import orjson
import pytest

from gateway.telemetry import REGISTRY
from smpp.protocol.pdu import SubmitSm
from smpp.simulator import SimulatorSettings
from smpp.simulator.settings import Rule
from tests.integration.egress.world import PolicyText, World, open_world, until

SECOND = "*00001"  # the number of the second message of a test


def _carrier(**settings: object) -> SimulatorSettings:
    return SimulatorSettings(port=0, receipts=False, keep_submits=2_000, seed=7, **settings)  # type: ignore[arg-type]


def _sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"sluicegate_{name}", labels) or 0.0


def _texts(world: World) -> list[str]:
    return [_text(pdu) for _, pdu in world.carrier.submits]


def _text(pdu: SubmitSm) -> str:
    return pdu.short_message.decode()


async def _settled(world: World, statuses: set[str], ids: list[object], within_s: float = 20.0) -> None:
    async def settled() -> bool:
        await world.promote()
        return await world.statuses(ids) == statuses  # type: ignore[arg-type]

    await until(settled, within_s)


async def test_s01_a_throttled_session_stops_and_goes_on_with_what_was_refused(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    """Later messages of the session wait too; the refused one spends no attempt."""
    journal = tmp_path / "carrier.jsonl"
    carrier = _carrier(rules=(Rule(destination=SECOND, status=0x58, times=1),), journal=str(journal))

    def text(port: int) -> PolicyText:
        return PolicyText(port, window=1)

    async with open_world(database_url, redis_url, carrier, text) as world, world.egress() as rt:
        ids = await world.put([f"m{n}" for n in range(8)])
        await world.until_status(ids, "sent")
        assert _texts(world) == ["m0", "m1", "m1", "m2", "m3", "m4", "m5", "m6", "m7"]
        assert {row["attempts_spent"] for row in await world.rows(ids)} == {1}
        assert [a["outcome"] for a in await world.attempts(ids[1])] == ["throttled", "accepted"]
        limit = rt.report["sessions"]["s1"]["limit"]
        assert limit is not None and limit > 0, "the pace is lower for a while"
        assert _sample("session_rate_per_s", session="s1") == pytest.approx(limit)
    lines = [orjson.loads(line) for line in journal.read_bytes().splitlines()]
    refused, again = [line["at"] for line in lines if line["event"] == "submit"][1:3]
    assert again - refused >= 700, "the session rests about a second"


async def test_s01_what_was_ready_waits_behind_what_was_refused(database_url: str, redis_url: str) -> None:
    """With several in flight: whatever had not left yet leaves after what came back, in its order."""
    carrier = _carrier(rules=(Rule(destination="*00002", status=0x58, times=1),), answer_delay_ms=50)

    def text(port: int) -> PolicyText:
        return PolicyText(port, window=4)

    async with open_world(database_url, redis_url, carrier, text) as world, world.egress():
        ids = await world.put([f"m{n:02d}" for n in range(30)])
        await world.until_status(ids, "sent")
        seen = _texts(world)
        again = seen.index("m02", seen.index("m02") + 1)
        assert seen[again:] == ["m02", *sorted(set(seen[again:]) - {"m02"})], seen
        assert again <= 4 + 4, "no more than two windows were on their way"


async def test_s30_a_rest_survives_a_cut_and_ends(database_url: str, redis_url: str) -> None:
    carrier = _carrier(rules=(Rule(destination="*00000", status=0x58, times=1),))

    def text(port: int) -> PolicyText:
        return PolicyText(port, dialect='{status_overrides: {"0x58": {retry: throttle, delay: 2s}}}')

    async with open_world(database_url, redis_url, carrier, text) as world, world.egress():
        ids = await world.put(["rest"])

        async def refused() -> bool:
            return world.carrier.counters["submits"] == 1

        await until(refused)
        refused_mono = time.monotonic()
        await asyncio.sleep(0.3)
        world.carrier.cut()
        await world.until_status(ids, "sent")
        assert 1.4 <= time.monotonic() - refused_mono <= 30, "it rests over the cut, not for ever"
        assert world.carrier.counters["submits"] == 2


async def test_s02_one_full_queue_concerns_its_number_alone(database_url: str, redis_url: str) -> None:
    carrier = _carrier(rules=(Rule(destination=SECOND, status=0x14, times=1),))
    async with open_world(database_url, redis_url, carrier, PolicyText) as world, world.egress() as rt:
        ids = await world.put([f"m{n}" for n in range(40)])
        others = [id_ for id_ in ids if id_ != ids[1]]
        await world.until_status(others, "sent")
        await asyncio.sleep(1.2)
        assert rt.report["sessions"]["s1"]["limit"] is None, "the session is not slowed"
        await _settled(world, {"sent"}, [ids[1]])
        assert [row["attempts_spent"] for row in await world.rows([ids[1]])] == [2]


async def test_s02_three_full_queues_slow_the_session(database_url: str, redis_url: str) -> None:
    carrier = _carrier(rules=(Rule(destination="*004??", status=0x14, times=6),), answer_delay_ms=20)
    async with open_world(database_url, redis_url, carrier, PolicyText) as world, world.egress() as rt:
        ids = await world.put([f"m{n}" for n in range(500)])

        async def slowed() -> bool:
            return rt.report.get("sessions", {}).get("s1", {}).get("limit") is not None

        await until(slowed)
        await _settled(world, {"sent"}, list(ids), 40)


async def test_a_message_that_breaks_the_framing_twice_is_refused_for_good(database_url: str, redis_url: str) -> None:
    """0x02: the session binds anew and the message keeps its attempts, once; then it is the message."""
    carrier = _carrier(rules=(Rule(destination=SECOND, status=0x02),))

    def text(port: int) -> PolicyText:
        return PolicyText(port, dialect='{status_overrides: {"0x02": {retry: hold, delay: 300ms}}}')

    async with open_world(database_url, redis_url, carrier, text) as world, world.egress():
        ids = await world.put([f"m{n}" for n in range(4)])
        await world.until_status([ids[1]], "rejected")
        await world.until_status([ids[0], *ids[2:]], "sent")
        assert _texts(world).count("m1") == 2
        assert world.carrier.counters["binds"] >= 2
        assert [a["outcome"] for a in await world.attempts(ids[1])] == ["hold", "never"]
        (row,) = await world.rows([ids[1]])
        assert row["error"] == {"code": "ESME_RINVCMDLEN", "permanent": True, "carrier_status": "0x00000002"}


async def test_a_route_that_the_carrier_forbids_rests(database_url: str, redis_url: str) -> None:
    carrier = _carrier(rules=(Rule(destination="*00000", status=0x101),))

    def text(port: int) -> PolicyText:
        return PolicyText(port, window=1)

    before = _sample("route_holds_total", route="main", status="ESME_RPROHIBITED")
    async with open_world(database_url, redis_url, carrier, text) as world, world.egress():
        first, *others = await world.put([f"m{n}" for n in range(120)])
        await world.until_status([first], "rejected")
        await asyncio.sleep(1.0)
        waiting = [row for row in await world.rows(others) if row["status"] == "queued"]
        assert waiting, "the route is paused, what has not left waits"
        assert world.carrier.bound == 1, "the session is not to blame"
        assert _sample("route_holds_total", route="main", status="ESME_RPROHIBITED") == before + 1
        await world.scheduler.resume("route:main")
        await world.until_status(others, "sent")


async def test_a_refused_account_stops_all_its_sessions_and_spends_no_attempt(
    database_url: str, redis_url: str
) -> None:
    carrier = _carrier(error_ratio=1.0, error_status=0x0E)

    def text(port: int) -> PolicyText:
        return PolicyText(port, sessions=2)

    async with open_world(database_url, redis_url, carrier, text) as world, world.egress() as rt:
        ids = await world.put(["whose account"])

        async def stopped() -> bool:
            sessions = rt.report.get("sessions", {})
            return bool(sessions) and {one["state"] for one in sessions.values()} == {"refused"}

        await until(stopped)
        await asyncio.sleep(1)
        assert world.carrier.bound == 0
        (row,) = await world.rows(ids)
        assert (row["status"], row["attempts_spent"]) == ("queued", 0)


@pytest.mark.parametrize("how", [{"message_ids": "empty"}, {"bad_pdu": "bare_answer"}])
async def test_an_acceptance_without_an_id_is_an_acceptance(
    database_url: str, redis_url: str, how: dict[str, str]
) -> None:
    async with open_world(database_url, redis_url, _carrier(**how), PolicyText) as world, world.egress():
        ids = await world.put(["nameless"])
        await world.until_status(ids, "sent")
        assert await world.conn.fetchval("SELECT count(*) FROM carrier_ids") == 0
        assert await world.conn.fetchval("SELECT count(*) FROM unnamed_submits") == 1


async def test_a_broken_carrier_is_left_alone_and_tried_again(database_url: str, redis_url: str) -> None:
    """The breaker (policy): half of 20 answers within 10 s are errors; then one probe each `probe_after`."""
    carrier = _carrier(error_ratio=1.0, error_status=0x08, answer_delay_ms=50)  # most are to be left for later

    def text(port: int) -> PolicyText:
        breaker = "    breaker: {errors: 0.5, of: 20, within: 10s, probe_after: 1s}\n"
        return PolicyText(port, provider=breaker, retries="{base: 2s, max: 2s, share: 1}")

    async with open_world(database_url, redis_url, carrier, text) as world, world.egress():
        ids = await world.put([f"b{n}" for n in range(400)])

        async def broken() -> bool:
            return world.carrier.counters["submits"] >= 20

        async def left_alone() -> bool:
            before = world.carrier.counters["submits"]
            await asyncio.sleep(0.4)
            return world.carrier.counters["submits"] == before

        await until(broken)
        await until(left_alone)
        seen, began_mono = world.carrier.counters["submits"], time.monotonic()
        assert seen < 400, "the breaker did not open"
        await asyncio.sleep(1.5)
        allowed = 2 + 3 * (time.monotonic() - began_mono)
        assert world.carrier.counters["submits"] - seen <= allowed, "an open breaker lets a probe through now and then"
        world.carrier.change(error_ratio=0.0)
        await _settled(world, {"sent"}, list(ids), 80)


async def test_q05_an_outage_makes_no_second_copy(database_url: str, redis_url: str) -> None:
    async with open_world(database_url, redis_url, _carrier(bind_status=0x0D), PolicyText) as world, world.egress():
        ids = await world.put([f"q{n}" for n in range(300)])
        for _ in range(3):  # a sweep that repeats what waits must not add to it
            await world.enqueue(ids)
            await asyncio.sleep(0.3)
        world.carrier.change(bind_status=0)
        await world.until_status(ids, "sent")
        await asyncio.sleep(0.5)
        assert world.carrier.counters["submits"] == 300
        assert {row["attempts_spent"] for row in await world.rows(ids)} == {1}
