"""Lost answers: held, sent once more with a flag, or failed; late answers resolve them (design section 4)."""

from __future__ import annotations

from gateway.ledger.merges import merge_batch
from smpp.simulator import SimulatorSettings
from tests.integration.egress.world import PolicyText, open_world, until


def _carrier(**settings: object) -> SimulatorSettings:
    return SimulatorSettings(port=0, receipts=False, keep_submits=1_000, seed=7, **settings)  # type: ignore[arg-type]


async def test_a_lost_answer_is_held_and_never_sent_again(database_url: str, redis_url: str) -> None:
    def text(port: int) -> PolicyText:
        return PolicyText(port, response_timeout="300ms")

    async with open_world(database_url, redis_url, _carrier(drop_ratio=1.0), text) as world:
        async with world.egress():
            (id_,) = await world.put(["who knows"])
            await world.until_status([id_], "unconfirmed")
        (row,) = await world.rows([id_])
        assert row["sweep_at"] == row["expires_at"] + 600_000
        assert (row["next_slot"], row["possible_duplicate"]) == (1, False)
        assert [a["outcome"] for a in await world.attempts(id_)] == ["unconfirmed"]
        assert world.carrier.counters["submits"] == 1


async def test_lost_answers_are_resolved_by_the_receipts_of_what_the_carrier_has(
    database_url: str, redis_url: str
) -> None:
    """The carrier took all and answered nothing: each receipt finds the one message to its number."""

    def text(port: int) -> PolicyText:
        return PolicyText(port, response_timeout="300ms")

    taken = {"receipts": True, "drop_ratio": 1.0, "dropped_delivered": True, "receipt_delay_ms": 100}
    carrier = SimulatorSettings(port=0, keep_submits=100, seed=7, **taken)  # type: ignore[arg-type]
    async with open_world(database_url, redis_url, carrier, text) as world, world.egress():
        ids = await world.put([f"who knows {n}" for n in range(5)])
        await world.until_status(ids, "unconfirmed")

        async def delivered() -> bool:
            await merge_batch(world.conn, world.policy, world.clock.now_at())
            return await world.statuses(ids) == {"delivered"}

        await until(delivered)
        assert world.carrier.counters["submits"] == 5
        named = await world.conn.fetch("SELECT carrier_id FROM carrier_ids")
        assert len({row["carrier_id"] for row in named}) == 5
        assert await world.conn.fetchval("SELECT count(*) FROM unnamed_submits") == 0


async def test_an_otp_is_sent_once_more_with_the_flag_and_then_held(database_url: str, redis_url: str) -> None:
    def text(port: int) -> PolicyText:
        return PolicyText(port, response_timeout="300ms")

    async with open_world(database_url, redis_url, _carrier(drop_ratio=1.0), text) as world, world.egress():
        (id_,) = await world.put(["1234"], class_name="otp", ttl_ms=60_000)
        await world.until_status([id_], "unconfirmed")
        (row,) = await world.rows([id_])
        assert row["possible_duplicate"] is True
        assert [a["outcome"] for a in await world.attempts(id_)] == ["unconfirmed", "unconfirmed"]
        assert world.carrier.counters["submits"] == 2
        assert await world.conn.fetchval("SELECT type FROM message_events WHERE id = $1", id_) == "resent"


async def test_class_policy_fail_ends_as_outcome_unknown_and_a_late_answer_corrects(
    database_url: str, redis_url: str
) -> None:
    def text(port: int) -> PolicyText:
        return PolicyText(port, response_timeout="300ms", unconfirmed="fail")

    async with open_world(database_url, redis_url, _carrier(answer_delay_ms=1_500), text) as world, world.egress():
        (id_,) = await world.put(["slow carrier"])
        await world.until_status([id_], "failed")
        (row,) = await world.rows([id_])
        assert row["error"] == {"code": "outcome_unknown", "permanent": False}
        await world.until_status([id_], "sent")
        (row,) = await world.rows([id_])
        assert row["error"] is None and row["final_at"] is None
        assert await world.conn.fetchval("SELECT count(*) FROM carrier_ids WHERE id = $1", id_) == 1


async def test_a_late_answer_keeps_a_waiting_resend_from_leaving(database_url: str, redis_url: str) -> None:
    """The adopter wins the slot that the resend waits for: one submit, no double."""

    def text(port: int) -> PolicyText:
        return PolicyText(port, response_timeout="300ms", window=1)

    async with open_world(database_url, redis_url, _carrier(answer_delay_ms=900), text) as world, world.egress():
        (id_,) = await world.put(["4321"], class_name="otp", ttl_ms=60_000)
        await world.until_status([id_], "sent")

        async def all_closed() -> bool:
            open_slots = "SELECT count(*) FROM attempts WHERE outcome IS NULL"
            return not await world.conn.fetchval(open_slots)

        await until(all_closed)
        outcomes = [(a["kind"], a["outcome"]) for a in await world.attempts(id_)]
        assert outcomes[0] == ("submit", "unconfirmed")
        assert len(await world.conn.fetch("SELECT * FROM carrier_ids WHERE id = $1", id_)) >= 1


async def test_a_cut_leaves_written_messages_in_doubt_and_the_session_comes_back(
    database_url: str, redis_url: str
) -> None:
    async with open_world(database_url, redis_url, _carrier(drop_ratio=1.0), PolicyText) as world, world.egress():
        ids = await world.put([f"cut {n}" for n in range(5)])

        async def written() -> bool:
            return world.carrier.counters["submits"] == 5

        await until(written)
        world.carrier.change(drop_ratio=0.0)
        world.carrier.cut()
        await world.until_status(ids, "unconfirmed")
        more = await world.put(["after the cut"])
        await world.until_status(more, "sent")
        assert world.carrier.counters["submits"] == 6


async def test_a_drain_settles_everything_and_ends_the_process(database_url: str, redis_url: str) -> None:
    """Invariant I34: a stop under load loses nothing, doubles nothing, leaves nothing open."""
    async with open_world(database_url, redis_url, _carrier(answer_delay_ms=100), PolicyText) as world:
        async with world.egress() as rt:
            ids = await world.put([f"drain {n}" for n in range(300)])

            async def under_way() -> bool:
                return world.carrier.counters["submits"] >= 50

            await until(under_way)
        assert await world.conn.fetchval("SELECT count(*) FROM attempts WHERE outcome IS NULL") == 0
        assert await world.statuses(ids) == {"sent", "queued"}
        assert world.carrier.counters["submits"] == await world.conn.fetchval("SELECT count(*) FROM carrier_ids")
        ended = await world.conn.fetchval("SELECT ended_at FROM processes WHERE id = $1", rt.process_id)
        assert ended is not None

        async def unlocked() -> bool:  # the server notices the end of a connection a moment later
            return await world.conn.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0

        await until(unlocked)
        async with world.egress("2"):
            await world.until_status(ids, "sent")
        assert world.carrier.counters["submits"] == 300
