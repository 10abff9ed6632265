"""Lost answers, and the receipts that resolve them (design section 4, "Ambiguity is a state")."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from gateway.domain import outcomes
from gateway.domain.ids import day_of
from gateway.ledger import owners, sweeps
from gateway.ledger.merges import Merged, merge_batch
from gateway.ledger.outcomes import Bench, Closing, Stored, store_accepted, store_endings
from tests.integration.delivery.world import World

FAIR_MS = 2_000
OTHER = "+447700900999"


@asynccontextmanager
async def working(world: World) -> AsyncIterator[tuple[asyncpg.Connection[Any], Bench]]:
    async with world.pool.acquire() as conn, conn.transaction():
        yield conn, Bench(world.policy, b"p" * 32, world.clock.now_at(), lambda: 0.5)


def ending(world: World, message: UUID, outcome: str, **values: Any) -> Closing:
    now_at = world.clock.now_at()
    base: dict[str, Any] = {"slot": 0, "provider": "carrier-a", "recipient": "+447700900123", "parts_total": 1}
    return Closing(
        day_of(message), message, outcome=outcome, outcome_at=now_at, **(base | {"written_at": now_at} | values)
    )


async def end(world: World, *closings: Closing) -> Stored:
    async with working(world) as (conn, bench):
        return await store_endings(conn, closings, bench)


async def doubt(world: World, *, parts: dict[str, Any] | None = None, **values: Any) -> UUID:
    """A message whose answer was lost; what becomes of it is its class's policy."""
    message = await world.message(**values)
    await world.attempt(message)
    total = values.get("segments", 1)
    recipient = values.get("recipient", "+447700900123")
    accepted = len((parts or {}).get("accepted", ()))
    lost = ending(
        world,
        message,
        outcomes.UNCONFIRMED,
        parts_total=total,
        parts=parts,
        accepted_parts=accepted,
        recipient=recipient,
    )
    await end(world, lost)
    return message


async def merge(world: World, shift_ms: int = FAIR_MS) -> Merged:
    async with world.pool.acquire() as conn:
        return await merge_batch(conn, world.policy, world.clock.now_at() + shift_ms)


async def unnamed(world: World) -> int:
    return int(await world.pool.fetchval("SELECT count(*) FROM unnamed_submits"))


async def told(world: World, message: UUID) -> list[tuple[str, str]]:
    rows = await world.pool.fetch("SELECT type, cause FROM message_events WHERE id = $1 ORDER BY n", message)
    return [tuple(row) for row in rows]


@pytest.mark.parametrize(("word", "status"), [("delivered", "delivered"), ("undeliverable", "undelivered")])
async def test_a_receipt_under_an_id_that_nobody_told_us_resolves_the_doubt(
    world: World, word: str, status: str
) -> None:
    message = await doubt(world)
    assert await world.status(message) == "unconfirmed"
    await world.receipt(word, "X1")
    assert (await merge(world)).merged == 1
    row = await world.row(message)
    assert (row["status"], row["network_state"], row["possible_duplicate"]) == (status, word, False)
    assert row["sweep_at"] is None and row["final_at"] is not None
    assert await world.events(message) == [(f"message.{status}", 3)]
    assert await told(world, message) == [("receipt", "matched_by_address")]
    assert await world.pool.fetchval("SELECT carrier_id FROM carrier_ids WHERE id = $1", message) == "X1"
    assert await unnamed(world) == 0


async def test_the_ordinary_road_has_its_fair_chance_first(world: World) -> None:
    message = await doubt(world)
    await world.receipt("delivered", "X1")
    assert (await merge(world, 0)).unmatched == 1
    assert await world.status(message) == "unconfirmed"
    await merge(world, FAIR_MS + 300)
    assert await world.status(message) == "delivered"


async def test_a_receipt_without_any_id(world: World) -> None:
    message = await doubt(world)
    await world.receipt("enroute", None)
    assert (await merge(world)).merged == 0
    receipt = await world.receipt("delivered", None)
    await merge(world)
    assert await world.status(message) == "delivered"
    await merge(world, FAIR_MS + 1_000)
    assert await world.pool.fetchval("SELECT merged_at FROM receipts WHERE id = $1", receipt) is not None


async def test_two_that_it_could_be_about_stay_as_they_are(world: World) -> None:
    """Never a guess: two messages in doubt to one handset."""
    messages = [await doubt(world), await doubt(world)]
    await world.receipt("delivered", "X1")
    assert (await merge(world)).unmatched == 1
    assert [await world.status(message) for message in messages] == ["unconfirmed", "unconfirmed"]
    assert await unnamed(world) == 2


async def test_one_of_two_whose_answer_comes_after_all_frees_the_other(world: World) -> None:
    first, second = await doubt(world), await doubt(world)
    await world.receipt("delivered", "X2")
    await merge(world)
    late = ending(world, first, outcomes.ACCEPTED, accepted_parts=1, carrier_ids=[(1, "X1")], late=True)
    await end(world, late)
    await merge(world, FAIR_MS + 1_000)
    assert (await world.status(first), await world.status(second)) == ("sent", "delivered")


@pytest.mark.parametrize("word", ["delivered", "undeliverable", "enroute"])
async def test_a_late_answer_with_another_id_undoes_the_match(world: World, word: str) -> None:
    """The receipt was another message's: it goes back into the inbox, the message waits for its own."""
    message = await doubt(world)
    await world.receipt(word, "X1")
    await merge(world)
    assert await world.status(message) != "unconfirmed"
    before = (await world.row(message))["version"]
    late = ending(world, message, outcomes.ACCEPTED, accepted_parts=1, carrier_ids=[(1, "Y1")], late=True)
    await end(world, late)
    row = await world.row(message)
    assert (row["status"], row["delivery"], row["network_state"], row["final_at"]) == ("sent", None, None, None)
    assert row["sweep_at"] > world.clock.now_at()
    if word != "enroute":
        assert row["version"] == before + 1
        assert (await world.events(message))[-1] == ("message.corrected", before + 1)
    bound = await world.pool.fetch("SELECT carrier_id FROM carrier_ids WHERE id = $1", message)
    assert [one["carrier_id"] for one in bound] == ["Y1"]
    stray = await world.pool.fetchrow("SELECT message_id, merged_at, next_try_at FROM receipts")
    assert (stray["message_id"], stray["merged_at"]) == (None, None) and stray["next_try_at"] is not None
    await world.receipt("undeliverable", "Y1")
    await merge(world)
    row = await world.row(message)
    assert (row["status"], row["delivery"]["conflict"]) == ("undelivered", False)
    assert await world.pool.fetchval("SELECT message_id FROM receipts WHERE carrier_id = 'X1'") is None


async def test_the_receipt_that_was_given_back_finds_its_own_message(world: World) -> None:
    first = await doubt(world)
    await world.receipt("delivered", "X1")
    await merge(world)
    second = await world.sent("X1", recipient="+447700900123")
    late = ending(world, first, outcomes.ACCEPTED, accepted_parts=1, carrier_ids=[(1, "Y1")], late=True)
    await end(world, late)
    await merge(world, FAIR_MS + 1_000)
    assert (await world.status(first), await world.status(second)) == ("sent", "delivered")


async def test_a_late_answer_with_the_same_id_changes_nothing(world: World) -> None:
    message = await doubt(world)
    await world.receipt("delivered", "X1")
    await merge(world)
    late = ending(world, message, outcomes.ACCEPTED, accepted_parts=1, carrier_ids=[(1, "X1")], late=True)
    await end(world, late)
    row = await world.row(message)
    assert (row["status"], row["version"]) == ("delivered", 3)


async def test_a_late_refusal_ends_the_doubt_too(world: World) -> None:
    message = await doubt(world)
    await end(world, ending(world, message, outcomes.NEVER, late=True, command_status=0x45))
    assert (await world.status(message), await unnamed(world)) == ("rejected", 0)
    await world.receipt("delivered", "X1")
    assert (await merge(world)).unmatched == 1


async def test_a_submit_without_its_answer_yet_may_own_the_receipt(world: World) -> None:
    """The other message's carrier id is on its way into the ledger: wait for it, then it is that one's."""
    message = await doubt(world)
    other = await world.message()
    await world.attempt(other)
    await world.receipt("delivered", "X1")
    assert (await merge(world)).unmatched == 1
    await end(world, ending(world, other, outcomes.ACCEPTED, accepted_parts=1, carrier_ids=[(1, "X1")]))
    await merge(world, FAIR_MS + 1_000)
    assert (await world.status(message), await world.status(other)) == ("unconfirmed", "delivered")
    assert await told(world, message) == []


@pytest.mark.parametrize(
    ("carrier_id", "known"), [("255", "ff"), ("ff", "255"), ("10", "16")], ids=["decimal", "hexadecimal", "both"]
)
async def test_an_id_known_in_the_other_base_is_a_wrong_dialect_not_a_doubt(
    world: World, carrier_id: str, known: str
) -> None:
    message = await doubt(world)
    await world.sent(known)
    await world.receipt("delivered", carrier_id)
    assert (await merge(world)).unmatched == 1
    assert await world.status(message) == "unconfirmed"


@pytest.mark.parametrize(
    "differs",
    [
        {"provider": "carrier-b"},
        {"recipient": "447700900124"},
        {"recipient": "60070"},
        {"recipient": None},
        {"sender": "OTHER"},
        {"sender": ""},
        {"state": None},
    ],
    ids=str,
)
async def test_what_does_not_fit_is_not_taken(world: World, differs: dict[str, Any]) -> None:
    message = await doubt(world)
    values = {"carrier_id": "X1", **differs}
    await world.receipt(values.pop("state", "delivered"), **values)
    assert (await merge(world)).merged == 0
    assert await world.status(message) == "unconfirmed"


@pytest.mark.parametrize(
    ("column", "shift_ms"), [("received_at", -60_000), ("submitted_at", -3_600_000), ("done_at", -3_600_000)]
)
async def test_a_receipt_of_another_time_is_not_taken(world: World, column: str, shift_ms: int) -> None:
    message = await doubt(world)
    await world.receipt("delivered", "X1", **{column: world.clock.now_at() + shift_ms})
    assert (await merge(world)).merged == 0
    assert await world.status(message) == "unconfirmed"


@pytest.mark.parametrize("status", ["expired", "canceled", "rejected", "suppressed"])
async def test_our_own_ends_are_never_touched_and_still_count(world: World, status: str) -> None:
    """I2, I3: such a message cannot be told, but the receipt may be about it all the same."""
    ended = await doubt(world)
    await world.pool.execute("UPDATE messages SET status = $2, final_at = 1 WHERE id = $1", ended, status)
    receipt = await world.receipt("delivered", "X1")
    assert (await merge(world)).unmatched == 1
    row = await world.row(ended)
    assert (row["status"], row["delivery"], await told(world, ended)) == (status, None, [])
    held = await doubt(world)
    await merge(world, FAIR_MS + 1_000)
    assert await world.status(held) == "unconfirmed"
    assert await world.pool.fetchval("SELECT message_id FROM receipts WHERE id = $1", receipt) is None


async def test_failed_in_doubt_is_corrected(world: World) -> None:
    message = await doubt(world, **{"class": "marketing"})
    row = await world.row(message)
    assert (row["status"], row["error"]["code"]) == ("failed", "outcome_unknown")
    await world.receipt("enroute", "X1")
    await merge(world)
    assert await world.status(message) == "failed"
    await world.receipt("delivered", "X1")
    await merge(world)
    row = await world.row(message)
    assert (row["status"], row["error"]) == ("delivered", None)
    assert (await world.events(message))[-1] == ("message.corrected", 3)
    assert await told(world, message) == [("receipt", "matched_by_address"), ("corrected", "failed")]


async def test_a_resend_that_waits_is_not_sent_any_more(world: World) -> None:
    """The receipt wins the slot that the resend waits for; the flag stays."""
    message = await doubt(world, **{"class": "otp"})
    row = await world.row(message)
    assert (row["status"], row["possible_duplicate"], row["next_slot"]) == ("queued", True, 1)
    await world.receipt("delivered", "X1")
    await merge(world)
    row = await world.row(message)
    assert (row["status"], row["possible_duplicate"]) == ("delivered", True)
    assert await world.pool.fetchval("SELECT kind FROM attempts WHERE id = $1 AND slot = 1", message) == "adopt"
    assert await world.events(message) == [("message.sent", 3), ("message.delivered", 4)]


async def test_a_resend_under_way_is_waited_for(world: World) -> None:
    message = await doubt(world, **{"class": "otp"})
    await world.attempt(message, slot=1)
    await world.receipt("delivered", "X1")
    assert (await merge(world)).unmatched == 1
    taken = ending(world, message, outcomes.ACCEPTED, slot=1, accepted_parts=1, carrier_ids=[(1, "X2")])
    await end(world, taken)
    await merge(world, FAIR_MS + 1_000)
    row = await world.row(message)
    assert (row["status"], row["possible_duplicate"]) == ("delivered", True)
    assert await world.pool.fetchval("SELECT slot FROM receipts WHERE message_id = $1", message) == 0


async def test_a_word_on_the_way_proves_that_the_carrier_has_it(world: World) -> None:
    message = await doubt(world)
    await world.receipt("enroute", "X1")
    await merge(world)
    row = await world.row(message)
    assert (row["status"], row["delivery"]["state"], row["final_at"]) == ("sent", "enroute", None)
    await world.receipt("delivered", "X1")
    await merge(world)
    assert await world.status(message) == "delivered"


@pytest.mark.parametrize("word", ["unknown", "skipped"])
async def test_a_word_that_proves_nothing_leaves_the_doubt(world: World, word: str) -> None:
    message = await doubt(world)
    await world.receipt(word, "X1")
    await merge(world)
    assert await world.status(message) == "unconfirmed"


async def test_the_doubtful_part_of_a_long_message(world: World) -> None:
    parts = {"reference": 1, "total": 2, "accepted": [1], "doubt": [2], "refused": {}}
    message = await doubt(world, segments=2, parts=parts)
    await world.carrier_id(message, "X1", part=1)
    await world.receipt("delivered", "X2")
    await merge(world)
    row = await world.row(message)
    assert (row["status"], row["delivery"]["state"]) == ("sent", "enroute")
    await world.receipt("delivered", "X1")
    await merge(world)
    assert await world.status(message) == "delivered"


async def test_two_parts_in_doubt_are_two_that_it_could_be_about(world: World) -> None:
    parts = {"reference": 1, "total": 2, "accepted": [], "doubt": [1, 2], "refused": {}}
    message = await doubt(world, segments=2, parts=parts)
    await world.receipt("delivered", "X2")
    assert (await merge(world)).unmatched == 1
    late = ending(
        world, message, outcomes.ACCEPTED, parts_total=2, accepted_parts=1, carrier_ids=[(1, "X1")], late=True
    )
    await end(world, late)
    assert await world.status(message) == "unconfirmed"
    await merge(world, FAIR_MS + 1_000)
    row = await world.row(message)
    assert (row["status"], row["delivery"]["state"]) == ("sent", "enroute")


async def test_a_late_answer_and_a_receipt_make_all_parts_known(world: World) -> None:
    """The receipt of one part came first: the late answer for the other ends the doubt before the sweep."""
    parts = {"reference": 1, "total": 2, "accepted": [], "doubt": [1, 2], "refused": {}}
    message = await doubt(world, segments=2, parts=parts)
    await world.carrier_id(message, "X1", part=1)
    await world.receipt("delivered", "X1")
    await merge(world)
    assert await world.status(message) == "unconfirmed"
    late = ending(
        world,
        message,
        outcomes.ACCEPTED,
        parts_total=2,
        accepted_parts=1,
        carrier_ids=[(2, "X2")],
        late=True,
        late_part=2,
    )
    await end(world, late)
    assert await world.status(message) == "sent"
    await world.receipt("delivered", "X2")
    await merge(world, FAIR_MS + 1_000)
    assert await world.status(message) == "delivered"


async def test_claims_of_a_dead_process_are_resolved_by_receipts_too(world: World) -> None:
    """Nobody knows which parts left: of a long message all may have, a single one is found by its address."""
    dead = await world.pool.fetchval(
        "INSERT INTO processes (role, worker, pid, host, started_at, heartbeat_at, ended_at)"
        " VALUES ('egress', '1', 1, 'here', 0, 0, 1) RETURNING id"
    )
    single, long = await world.message(), await world.message(segments=2, recipient=OTHER)
    for message in (single, long):
        await world.attempt(message, owner=dead)
    async with world.pool.acquire() as conn:
        bench = Bench(world.policy, b"p" * 32, world.clock.now_at() + 1, lambda: 0.5)
        assert (await owners.close_dead(conn, bench, 0)).owners == [dead]
    parts = await world.pool.fetchval("SELECT parts FROM attempts WHERE id = $1", long)
    assert (parts["accepted"], parts["doubt"], await unnamed(world)) == ([], [1, 2], 3)
    await world.receipt("delivered", "X1")
    await world.receipt("delivered", "X2", recipient=OTHER[1:])
    await merge(world, FAIR_MS + 100)
    assert (await world.status(single), await world.status(long)) == ("delivered", "unconfirmed")


async def test_an_answer_that_names_no_id_is_matched_by_address(world: World) -> None:
    message = await world.message()
    await world.attempt(message)
    async with working(world) as (conn, bench):
        await store_accepted(conn, [ending(world, message, outcomes.ACCEPTED, accepted_parts=1)], bench)
    assert (await world.status(message), await unnamed(world)) == ("sent", 1)
    await world.receipt("delivered", "X1")
    await merge(world)
    assert (await world.status(message), await unnamed(world)) == ("delivered", 0)


async def test_the_plain_road_leaves_nothing_behind(world: World) -> None:
    message = await world.message()
    await world.attempt(message)
    async with working(world) as (conn, bench):
        taken = ending(world, message, outcomes.ACCEPTED, accepted_parts=1, carrier_ids=[(1, "X1")])
        await store_accepted(conn, [taken], bench)
    assert (await world.status(message), await unnamed(world)) == ("sent", 0)


@pytest.mark.parametrize("seed", range(3))
async def test_no_receipt_ever_goes_to_the_wrong_message(world: World, seed: int) -> None:
    """Random lives on a few numbers: what a receipt is bound to is what the carrier meant by it, or nothing.

    The truth is known here: message n has the carrier id `c<n>`, told or not.
    """
    chance = random.Random(seed)
    numbers = ["+447700900123", "+447700900124", OTHER]
    truth: dict[str, UUID] = {}
    waiting: list[tuple[str, UUID]] = []
    for n in range(24):
        number, carrier_id = chance.choice(numbers), f"c{n}z"
        fate = chance.choice(["lost", "lost", "told", "open"])
        if fate == "lost":
            message = await doubt(
                world, recipient=number, **{"class": chance.choice(["otp", "transactional", "marketing"])}
            )
        elif fate == "told":
            message = await world.sent(carrier_id, recipient=number)
        else:
            message = await world.message(recipient=number)
            await world.attempt(message)
            waiting.append((carrier_id, message))
        truth[carrier_id] = message
        if chance.random() < 0.7:
            await world.receipt(chance.choice(["delivered", "undeliverable"]), carrier_id, recipient=number[1:])
        if chance.random() < 0.3:
            await merge(world, FAIR_MS)
        if waiting and chance.random() < 0.3:
            told_id, answered = waiting.pop()
            await end(world, ending(world, answered, outcomes.ACCEPTED, accepted_parts=1, carrier_ids=[(1, told_id)]))
    for round_ in itertools.count(1):
        if (await merge(world, FAIR_MS + round_ * 20_000)).merged == 0 or round_ > 8:
            break
    bound = await world.pool.fetch("SELECT carrier_id, message_id FROM receipts WHERE message_id IS NOT NULL")
    assert bound
    lost = {row["carrier_id"]: row["message_id"] for row in bound if truth[row["carrier_id"]] != row["message_id"]}
    # A carrier that reports only one of two doubtful submits leaves nothing by which to tell them apart later.
    assert lost == {}


async def test_what_is_past_retention_goes_in_bounded_batches(world: World) -> None:
    old_at = world.clock.now_at() - 30 * 86_400_000
    old, new = await world.sent("OLD"), await world.sent("NEW")
    scheduled = await doubt(world)
    world.clock.shift_ms = -30 * 86_400_000
    async with world.pool.acquire() as conn:
        await sweeps.keep_partitions(conn, world.clock.now_at(), 1)
    aged = await world.sent("AGED")
    lost = await doubt(world)
    world.clock.shift_ms = 0
    await world.carrier_id(aged, "LATER", part=2)
    async with world.pool.acquire() as conn:
        assert await sweeps.forget_carrier_ids(conn, old_at + 86_400_000) == 1
        assert await sweeps.forget_carrier_ids(conn, old_at + 86_400_000) == 0
    kept = await world.pool.fetch("SELECT carrier_id FROM carrier_ids ORDER BY carrier_id")
    assert [row["carrier_id"] for row in kept] == ["LATER", "NEW", "OLD"]
    assert await world.pool.fetchval("SELECT id FROM unnamed_submits") == scheduled
    assert old != new != lost
