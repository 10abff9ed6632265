"""Binds as they are met in the field: refused, still held, split in two directions, over IPv6, ordered by hand."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.ledger import session_orders
from gateway.ledger.pauses import DRAIN, PAUSE, SESSION, Place, clear_pause, set_pause
from gateway.policy import versions
from gateway.policy.rules.tuning import tuning_of
from gateway.telemetry import REGISTRY
from smpp.simulator import SimulatorSettings
from tests.integration.egress.world import PolicyText, World, open_world, until

PASSWORD = "s3cr3tpw"
S1 = Place(SESSION, "s1")


def _carrier(**settings: object) -> SimulatorSettings:
    return SimulatorSettings(port=0, receipts=False, keep_submits=1_000, seed=7, **settings)  # type: ignore[arg-type]


def _sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"sluicegate_{name}", labels) or 0.0


async def _bound(world: World, count: int = 1, within_s: float = 60.0) -> None:
    async def bound() -> bool:
        return world.carrier.bound == count

    await until(bound, within_s, lambda: f"{world.carrier.bound} bound, not {count}")


async def _in_state(state: str, session: str = "s1") -> None:
    async def reached() -> bool:
        return _sample("session_state", session=session, state=state) == 1

    await until(reached, 60, lambda: f"{session} is not {state}")


async def test_s20_the_session_is_back_when_the_carrier_gave_the_old_one_up(database_url: str, redis_url: str) -> None:
    before = _sample("binds_refused_total", session="s1", status="ESME_RALYBND")
    async with open_world(database_url, redis_url, _carrier(already_bound_s=2.0), PolicyText) as world, world.egress():
        await _bound(world)
        world.carrier.cut()
        cut_mono = time.monotonic()
        await _bound(world, 0)
        await _bound(world, 1, 20)
        assert time.monotonic() - cut_mono >= 1.9
        refused = _sample("binds_refused_total", session="s1", status="ESME_RALYBND") - before
        # Longer waits than after a cut (5 x the base, half of it at least): 2 s hold a handful of attempts.
        assert 1 <= refused <= 9
        ids = await world.put(["after the cut"])
        await world.until_status(ids, "sent")


async def test_a_bound_session_is_up_again_in_an_index_that_began_anew(database_url: str, redis_url: str) -> None:
    async with open_world(database_url, redis_url, _carrier(), PolicyText) as world, world.egress():

        async def up() -> bool:
            report = await world.scheduler.report()
            return {name: link.state for name, link in report.providers.items()} == {"carrier": "up"}

        await until(up, 60)
        await world.client.flushdb()
        await world.scheduler.tune(tuning_of(world.policy))
        epoch = await world.scheduler.begin_rebuild()
        assert epoch is not None
        await world.scheduler.finish_rebuild(epoch)
        await until(up, 60, lambda: "the session did not tell the new index that it is bound")
        assert world.carrier.counters["connections"] == 1, "it must not take another bind"


async def test_refused_credentials_stop_the_account_until_somebody_resumes(
    database_url: str, redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def text(port: int) -> PolicyText:
        return PolicyText(port, sessions=2, password=PASSWORD)

    carrier = _carrier(bind_status=0x0E)
    async with open_world(database_url, redis_url, carrier, text) as world, world.egress() as rt:
        await _in_state("refused", "s1")
        await _in_state("refused", "s2")
        await asyncio.sleep(1.5)  # three times the longest back-off: nobody tries again
        assert world.carrier.counters["connections"] == 1, "the second session of the account must not try at all"
        assert rt.report["sessions"]["s1"]["state"] == "refused"
        said = capsys.readouterr().out
        assert "bind_refused" in said and "session_stopped" in said and PASSWORD not in said
        world.carrier.change(bind_status=0)
        await session_orders.resume(world.conn, "s1", world.clock.now_at())
        await session_orders.resume(world.conn, "s2", world.clock.now_at())
        await _bound(world, 2)
        ids = await world.put(["resumed"])
        await world.until_status(ids, "sent")


async def test_a_new_policy_tries_refused_credentials_again(database_url: str, redis_url: str) -> None:
    carrier = _carrier(password="right")
    async with open_world(database_url, redis_url, carrier, PolicyText) as world, world.egress():
        await _in_state("refused")
        source = PolicyText(world.carrier.port, password="right").yaml()
        await versions.activate(world.conn, await versions.insert(world.conn, source, "test", "", world.clock.now_at()))
        await _bound(world)


async def test_pause_drain_and_resume_by_hand(database_url: str, redis_url: str) -> None:
    carrier = _carrier(answer_delay_ms=400)
    async with open_world(database_url, redis_url, carrier, PolicyText) as world, world.egress():
        first = await world.put([f"in flight {n}" for n in range(100)])

        async def flying() -> bool:
            return world.carrier.counters["submits"] >= 10

        await until(flying)
        await set_pause(world.conn, S1, PAUSE, "test", world.clock.now_at())
        await _in_state("paused")
        seen = world.carrier.counters["submits"]
        await asyncio.sleep(1.2)
        assert world.carrier.bound == 1 and world.carrier.counters["submits"] <= seen + 10
        assert await world.statuses(first) == {"sent", "queued"}, "what was in flight is finished, the rest waits"
        assert await world.conn.fetchval("SELECT count(*) FROM attempts WHERE outcome IS NULL") == 0
        await set_pause(world.conn, S1, DRAIN, "test", world.clock.now_at())
        await _in_state("drained")
        assert world.carrier.bound == 0
        await asyncio.sleep(0.8)
        assert world.carrier.bound == 0, "a drained session stays down"
        await clear_pause(world.conn, S1, "test", world.clock.now_at())
        await _bound(world)
        await world.until_status(first, "sent")
        assert world.carrier.counters["submits"] == 100
        assert await world.conn.fetchval("SELECT count(*) FROM attempts WHERE outcome = 'unconfirmed'") == 0


async def test_a_drained_session_stays_down_over_a_restart(database_url: str, redis_url: str) -> None:
    async with open_world(database_url, redis_url, _carrier(), PolicyText) as world:
        await set_pause(world.conn, S1, DRAIN, "test", world.clock.now_at())
        async with world.egress():
            await _in_state("drained")
            assert world.carrier.counters["connections"] == 0


async def test_a_transmitter_sends_and_a_receiver_takes_receipts(database_url: str, redis_url: str) -> None:
    def text(port: int) -> PolicyText:
        return PolicyText(port, binds=("transmitter", "receiver", "receiver"))

    carrier = SimulatorSettings(port=0, receipt_delay_ms=50, seed=7)
    async with open_world(database_url, redis_url, carrier, text) as world, world.egress():
        await _bound(world, 3)
        ids = await world.put([f"split {n}" for n in range(20)])
        await world.until_status(ids, "sent")

        async def taken() -> bool:
            return world.carrier.counters["receipts_taken"] == 20

        await until(taken)
        assert await world.conn.fetchval("SELECT count(*) FROM receipts WHERE session IN ('s2', 's3')") == 20
        assert {row["session"] for row in await world.conn.fetch("SELECT session FROM attempts")} == {"s1"}


async def test_a_carrier_on_ipv6(database_url: str, redis_url: str) -> None:
    def text(port: int) -> PolicyText:
        return PolicyText(port, host="::1")

    async with open_world(database_url, redis_url, _carrier(host="::1"), text) as world, world.egress():
        ids = await world.put(["six"])
        await world.until_status(ids, "sent")


async def test_q07_without_a_bind_nothing_is_leased_and_nothing_spins(database_url: str, redis_url: str) -> None:
    async with open_world(database_url, redis_url, _carrier(bind_status=0x0D), PolicyText) as world, world.egress():
        (id_,) = await world.put(["nobody to send it to"])
        cpu_s, began_mono = time.process_time(), time.monotonic()
        await asyncio.sleep(3)
        assert await world.attempts(id_) == [] and await world.statuses([id_]) == {"queued"}
        tries_per_s = world.carrier.counters["connections"] / (time.monotonic() - began_mono)
        assert tries_per_s <= 12, "at a longest back-off of half a second"
        assert time.process_time() - cpu_s < 1.5
        world.carrier.change(bind_status=0)
        await world.until_status([id_], "sent")
        assert [row["attempts_spent"] for row in await world.rows([id_])] == [1]
