"""Sessions that stay in order: parts spaced by their limit, unbinds, probes under load, restarts, doubtful clocks."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

import orjson
import pytest

from gateway.telemetry import REGISTRY
from smpp.simulator import SimulatorSettings
from smpp.simulator.settings import Rule
from tests.integration.egress.world import PolicyText, open_world, until


def _carrier(**settings: object) -> SimulatorSettings:
    return SimulatorSettings(port=0, receipts=False, keep_submits=5_000, seed=7, **settings)  # type: ignore[arg-type]


def _sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"sluicegate_{name}", labels) or 0.0


async def test_s04_parts_of_a_long_text_are_paced_one_by_one(database_url: str, redis_url: str, tmp_path: Path) -> None:
    journal = tmp_path / "carrier.jsonl"

    def text(port: int) -> PolicyText:
        return PolicyText(port, session="limits: {rate_per_s: 4, burst: 1}")

    before = _sample("limit_wait_seconds_count", scope="session")
    async with open_world(database_url, redis_url, _carrier(journal=str(journal)), text) as world, world.egress():
        ids = await world.put(["x" * 400, "short"])
        await world.until_status(ids, "sent")
        assert _sample("session_rate_per_s", session="s1") == 4
    lines = [orjson.loads(line) for line in journal.read_bytes().splitlines()]
    at = [line["at"] for line in lines if line["event"] == "submit"]
    gaps_ms = [later - one for one, later in itertools.pairwise(at)]
    # They leave 250 apart; behind one that the carrier is late to read it sees a shorter gap. Unpaced there is none.
    assert len(gaps_ms) == 3 and min(gaps_ms[:2]) >= 80, gaps_ms
    assert _sample("limit_wait_seconds_count", scope="session") > before


async def test_s22_a_carrier_that_unbinds_is_answered_and_only_the_unanswered_is_in_doubt(
    database_url: str, redis_url: str
) -> None:
    rules = (Rule(destination="*00001", silent=True, times=1),)
    carrier = _carrier(rules=rules, unbind_after=2)

    def text(port: int) -> PolicyText:
        return PolicyText(port, window=2)

    before = _sample("reconnects_total", session="s1"), _sample("unconfirmed_total", provider="carrier")
    async with open_world(database_url, redis_url, carrier, text) as world, world.egress():
        ids = await world.put([f"u{n}" for n in range(2)])
        await world.until_status([ids[0]], "sent")
        await world.until_status([ids[1]], "unconfirmed")
        more = await world.put(["after the unbind"])
        await world.until_status(more, "sent")
        assert world.carrier.counters["submits"] == 3, "nothing is sent twice"
        assert world.carrier.counters["binds"] >= 2
    assert _sample("reconnects_total", session="s1") > before[0]
    assert _sample("unconfirmed_total", provider="carrier") == before[1] + 1


async def test_s23_a_full_window_still_answers_the_carriers_probes(database_url: str, redis_url: str) -> None:
    carrier = _carrier(answer_delay_ms=2_500, enquire_link_s=0.2, response_timeout_s=1.0, inactivity_s=5.0)

    def text(port: int) -> PolicyText:
        return PolicyText(port, window=1)

    async with open_world(database_url, redis_url, carrier, text) as world, world.egress():
        ids = await world.put(["one", "two"])

        async def full() -> bool:
            return _sample("session_window_used", session="s1") == 1

        await until(full)
        await world.until_status(ids, "sent")
        assert world.carrier.counters["binds"] == 1


@pytest.mark.timeout(120)
async def test_restarts_under_load_leave_nothing_in_doubt(database_url: str, redis_url: str) -> None:
    """Invariant I34: five times SIGTERM's road while messages flow; each reaches the carrier exactly once."""
    async with open_world(database_url, redis_url, _carrier(answer_delay_ms=30), PolicyText) as world:
        ids = []
        for lap in range(5):
            ids += await world.put([f"lap {lap} {n}" for n in range(200)])
            seen = world.carrier.counters["submits"]

            async def flowing(seen: int = seen) -> bool:
                return world.carrier.counters["submits"] >= seen + 40

            async with world.egress(f"lap-{lap}"):
                await until(flowing)
            assert await world.conn.fetchval("SELECT count(*) FROM attempts WHERE outcome IS NULL") == 0
            assert await world.conn.fetchval("SELECT count(*) FROM attempts WHERE outcome = 'unconfirmed'") == 0
        async with world.egress("last"):
            await world.until_status(ids, "sent")
        assert world.carrier.counters["submits"] == len(ids) == 1_000
        assert await world.conn.fetchval("SELECT count(*) FROM carrier_ids") == 1_000


async def test_a_doubtful_clock_holds_one_time_passwords_alone(database_url: str, redis_url: str) -> None:
    async with open_world(database_url, redis_url, _carrier(), PolicyText) as world, world.egress() as rt:
        first = await world.put(["warm"])
        await world.until_status(first, "sent")
        clock = rt.clock
        doubtful = type(clock).doubtful
        try:
            type(clock).doubtful = property(lambda self: self is clock or doubtful.fget(self))  # type: ignore[assignment, method-assign, attr-defined]
            otps = await world.put(["1234"], class_name="otp", ttl_ms=60_000)
            others = await world.put([f"t{n}" for n in range(20)])
            await world.until_status(others, "sent")
            assert await world.statuses(otps) == {"queued"}
        finally:
            type(clock).doubtful = doubtful  # type: ignore[method-assign]
        await world.until_status(otps, "sent")


async def test_metrics_of_a_session_move(database_url: str, redis_url: str) -> None:
    names: tuple[tuple[str, dict[str, str]], ...] = (
        ("submit_response_seconds_count", {"provider": "carrier"}),
        ("queue_wait_seconds_count", {"class": "transactional"}),
        ("carrier_errors_total", {"provider": "carrier", "status": "ESME_RX_T_APPN"}),
        ("submits_total", {"provider": "carrier", "session": "s1", "outcome": "later", "attempt": "first"}),
        ("submits_total", {"provider": "carrier", "session": "s1", "outcome": "accepted", "attempt": "retry"}),
        ("possible_duplicates_total", {}),
    )

    def text(port: int) -> PolicyText:
        return PolicyText(port, response_timeout="500ms")

    before = [_sample(name, **labels) for name, labels in names]
    rules = (
        Rule(destination="*00001", status=0x64, times=1),
        Rule(destination="*00002", silent=True, times=1),
    )
    async with open_world(database_url, redis_url, _carrier(rules=rules), text) as world, world.egress():
        ids = await world.put([f"m{n}" for n in range(2)])
        otps = await world.put(["0", "1", "2"], class_name="otp", ttl_ms=60_000)

        async def done() -> bool:
            await world.promote()
            return await world.statuses([*ids, *otps]) == {"sent"}

        await until(done)
        await asyncio.sleep(1.2)  # the gauge is told once a second
        assert _sample("retry_share_ratio", provider="carrier") > 0
        for state, value in (("bound", 1), ("refused", 0)):
            assert _sample("session_state", session="s1", state=state) == value
    moved = [_sample(name, **labels) for name, labels in names]
    assert all(later > one for one, later in zip(before, moved, strict=True)), (before, moved)


async def test_silence_is_told_to_the_scheduler(database_url: str, redis_url: str) -> None:
    """A carrier that answers nothing must not look fast: its sessions report how old the oldest submit is."""
    carrier = _carrier(drop_ratio=1.0)
    async with open_world(database_url, redis_url, carrier, PolicyText) as world, world.egress() as rt:
        told: list[float] = []
        real = rt.scheduler.report_outcomes

        async def spy(provider: str, session: str, outcomes: object) -> object:
            told.append(outcomes.unanswered_ms)  # type: ignore[attr-defined]
            return await real(provider, session, outcomes)  # type: ignore[arg-type]

        rt.scheduler.report_outcomes = spy  # type: ignore[method-assign, assignment]
        await world.put(["into the void"])
        began_mono = time.monotonic()

        async def old() -> bool:
            return bool(told) and max(told) > 1_500

        await until(old)
        assert len(told) <= 4 * (time.monotonic() - began_mono) + 2, "about twice a second"
