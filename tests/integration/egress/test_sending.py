"""The road from a queued reference to an answered submit_sm, on real stores and the simulated carrier."""

from __future__ import annotations

from smpp.simulator import SimulatorSettings
from tests.integration.egress.world import PolicyText, open_world, until


def _carrier(**settings: object) -> SimulatorSettings:
    return SimulatorSettings(port=0, receipts=False, keep_submits=1_000, seed=7, **settings)  # type: ignore[arg-type]


async def test_messages_are_sent_once_with_their_carrier_ids(database_url: str, redis_url: str) -> None:
    async with open_world(database_url, redis_url, _carrier(), PolicyText) as world, world.egress() as rt:
        ids = await world.put([f"hello {n}" for n in range(60)])
        await world.until_status(ids, "sent")
        assert world.carrier.counters["submits"] == 60
        assert await world.conn.fetchval("SELECT count(*) FROM carrier_ids") == 60
        rows = await world.rows(ids)
        assert {row["version"] for row in rows} == {2}
        assert {(row["attempts_spent"], row["next_slot"], row["submit_begun"]) for row in rows} == {(1, 0, True)}
        assert all(row["sweep_at"] > row["expires_at"] for row in rows)
        attempts = await world.conn.fetch("SELECT * FROM attempts")
        assert {row["owner_id"] for row in attempts} == {rt.process_id}
        assert all(row["claimed_at"] <= row["written_at"] <= row["outcome_at"] for row in attempts)
        _, pdu = world.carrier.submits[0]
        assert (pdu.source_addr, pdu.source_addr_ton, pdu.source_addr_npi) == ("ACME", 5, 0)
        assert (pdu.dest_addr_ton, pdu.dest_addr_npi, pdu.registered_delivery) == (1, 1, 1)
        assert pdu.validity_period.endswith("000R")


async def test_long_messages_go_as_parts_of_one_reference(database_url: str, redis_url: str) -> None:
    async with open_world(database_url, redis_url, _carrier(), PolicyText) as world, world.egress():
        (id_,) = await world.put(["x" * 400])
        await world.until_status([id_], "sent")
        heads = [pdu.short_message[:6] for _, pdu in world.carrier.submits]
        assert [head[4:6] for head in heads] == [b"\x03\x01", b"\x03\x02", b"\x03\x03"]
        assert len({head[3] for head in heads}) == 1
        parts = await world.conn.fetch("SELECT part FROM carrier_ids ORDER BY part")
        assert [row["part"] for row in parts] == [1, 2, 3]
        (attempt,) = await world.attempts(id_)
        assert attempt["parts"]["accepted"] == [1, 2, 3]


async def test_permanent_refusal_rejects(database_url: str, redis_url: str) -> None:
    carrier = _carrier(error_ratio=1.0, error_status=0x0B)
    async with open_world(database_url, redis_url, carrier, PolicyText) as world, world.egress():
        (id_,) = await world.put(["no such number"])
        await world.until_status([id_], "rejected")
        (row,) = await world.rows([id_])
        assert row["error"] == {"code": "ESME_RINVDSTADR", "permanent": True, "carrier_status": "0x0000000b"}
        assert row["sweep_at"] is None and row["final_at"] is not None


async def test_temporary_refusal_is_retried_through_the_due_table(database_url: str, redis_url: str) -> None:
    carrier = _carrier(error_ratio=1.0, error_status=0x14)
    async with open_world(database_url, redis_url, carrier, PolicyText) as world, world.egress():
        (id_,) = await world.put(["later"])

        async def is_due() -> bool:
            return bool(await world.conn.fetchval("SELECT count(*) FROM due"))

        await until(is_due)
        world.carrier.change(error_ratio=0.0)
        (row,) = await world.rows([id_])
        assert (row["status"], row["next_slot"], row["attempts_spent"]) == ("queued", 1, 1)
        assert row["error"]["carrier_status"] == "0x00000014"

        async def is_sent() -> bool:
            await world.promote()
            return await world.statuses([id_]) == {"sent"}

        await until(is_sent)
        assert [a["outcome"] for a in await world.attempts(id_)] == ["later", "accepted"]


async def test_exhausted_attempts_fail(database_url: str, redis_url: str) -> None:
    carrier = _carrier(error_ratio=1.0, error_status=0x64)

    def text(port: int) -> PolicyText:
        return PolicyText(port, max_attempts=2)

    async with open_world(database_url, redis_url, carrier, text) as world, world.egress():
        (id_,) = await world.put(["in vain"])

        async def failed() -> bool:
            await world.promote()
            return await world.statuses([id_]) == {"failed"}

        await until(failed)
        (row,) = await world.rows([id_])
        assert row["error"] == {"code": "attempts_exhausted", "permanent": True, "carrier_status": "0x00000064"}
        assert world.carrier.counters["submits"] == 2


async def test_throttled_messages_keep_their_place_and_attempts(database_url: str, redis_url: str) -> None:
    carrier = _carrier(throttle_per_s=40.0)
    async with open_world(database_url, redis_url, carrier, PolicyText) as world, world.egress():
        ids = await world.put([f"t {n}" for n in range(60)])
        await world.until_status(ids, "sent")
        assert world.carrier.counters["throttled"] > 0
        assert {row["attempts_spent"] for row in await world.rows(ids)} == {1}
        assert await world.conn.fetchval("SELECT count(*) FROM outbox") == 0


async def test_overdue_references_expire_as_wait_budget(database_url: str, redis_url: str) -> None:
    async with open_world(database_url, redis_url, _carrier(), PolicyText) as world:
        ids = await world.put(["too late"], ttl_ms=120_000)
        await world.conn.execute("UPDATE messages SET submit_by = created_at - 1")
        async with world.egress():
            await world.until_status(ids, "expired")
        (row,) = await world.rows(ids)
        assert (row["expiry"]["cause"], row["expiry"]["stage"]) == ("wait_budget", "queued")
        assert [(a["kind"], a["outcome"]) for a in await world.attempts(ids[0])] == [("expire", "closed")]
        assert world.carrier.counters["submits"] == 0


async def test_nothing_that_was_decided_elsewhere_is_sent(database_url: str, redis_url: str) -> None:
    """Invariant I12: who wins the slot decides; a stale reference changes nothing."""
    async with open_world(database_url, redis_url, _carrier(), PolicyText) as world:
        canceled, kept = await world.put(["canceled", "kept"])
        await world.conn.execute(
            "INSERT INTO attempts (day, id, slot, kind, claimed_at, outcome) "
            "SELECT day, id, 0, 'cancel', 0, 'closed' FROM messages WHERE id = $1",
            canceled,
        )
        await world.conn.execute("UPDATE messages SET status = 'canceled' WHERE id = $1", canceled)
        async with world.egress():
            await world.until_status([kept], "sent")
        assert world.carrier.counters["submits"] == 1
        assert await world.statuses([canceled]) == {"canceled"}


async def test_only_the_refused_part_is_sent_again(database_url: str, redis_url: str) -> None:
    """Invariant I6: a part that the carrier took never leaves twice."""
    async with open_world(database_url, redis_url, _carrier(throttle_per_s=2.0), PolicyText) as world, world.egress():
        (id_,) = await world.put(["y" * 400])
        await world.until_status([id_], "sent")
        taken = await world.conn.fetch("SELECT part FROM carrier_ids WHERE id = $1 ORDER BY part", id_)
        assert [row["part"] for row in taken] == [1, 2, 3]
        assert world.carrier.counters["accepted"] == 3
        assert world.carrier.counters["throttled"] > 0
        references = {pdu.short_message[3] for _, pdu in world.carrier.submits}
        assert len(references) == 1


async def test_parts_accepted_and_the_rest_refused_for_good_is_incomplete(database_url: str, redis_url: str) -> None:
    def text(port: int) -> PolicyText:
        return PolicyText(port, window=1)

    async with open_world(database_url, redis_url, _carrier(answer_delay_ms=300), text) as world, world.egress():
        (id_,) = await world.put(["z" * 400])

        async def begun() -> bool:
            return world.carrier.counters["accepted"] >= 1

        await until(begun)
        world.carrier.change(error_ratio=1.0, error_status=0x0B)
        await world.until_status([id_], "failed")
        (row,) = await world.rows([id_])
        assert row["error"]["code"] == "parts_incomplete"


async def test_what_waits_too_long_for_the_window_goes_back_unspent(database_url: str, redis_url: str) -> None:
    """Written within two seconds of the claim or given back (design section 1, hop 7)."""

    def text(port: int) -> PolicyText:
        return PolicyText(port, window=1, response_timeout="8s")

    async with open_world(database_url, redis_url, _carrier(answer_delay_ms=4_000), text) as world, world.egress():
        ids = await world.put([f"w {n}" for n in range(3)])

        async def given_back() -> bool:
            return bool(await world.conn.fetchval("SELECT count(*) FROM attempts WHERE outcome = 'given_back'"))

        await until(given_back)
        world.carrier.change(answer_delay_ms=0)
        await world.until_status(ids, "sent")
        assert {row["attempts_spent"] for row in await world.rows(ids)} == {1}
        assert world.carrier.counters["submits"] == 3


async def test_a_lost_ledger_keeps_outcomes_until_it_is_back(database_url: str, redis_url: str) -> None:
    async with open_world(database_url, redis_url, _carrier(answer_delay_ms=300), PolicyText) as world, world.egress():
        ids = await world.put([f"o {n}" for n in range(10)])

        async def written() -> bool:
            return world.carrier.counters["submits"] == 10

        await until(written)
        await world.conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND datname = current_database()"
        )
        await world.until_status(ids, "sent")
        assert world.carrier.counters["submits"] == 10
