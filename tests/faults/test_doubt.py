"""A lost answer, end to end: each class decides as its policy says, and late evidence puts the word right."""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from loadtests.evidence import read_journal
from loadtests.world import Shape, World

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

CLASSES = ("otp", "transactional", "marketing")
TIMEOUT_MS = 400
# Evidence comes late enough for the resend of a busy machine to be out before it.
LATE_MS = 6_000
SHAPE = Shape(sessions=1, response_timeout_ms=TIMEOUT_MS, answer_delay_ms=TIMEOUT_MS + LATE_MS)
Messages = dict[str, dict[str, Any]]


async def test_doubt_is_decided_by_class_and_resolved_by_evidence() -> None:
    with tempfile.TemporaryDirectory(prefix="sluicegate-doubt-") as scratch:
        world = World(Path(scratch), dataclasses.replace(SHAPE, carrier=(("receipts", "false"),)))
        await world.start()
        try:
            async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {world.key}"}) as client:
                await _late_answers(world, client)
                await _receipts_alone(world, client)
                await _silence(world, client)
        finally:
            code = await world.stop()
        assert code == 0


async def _late_answers(world: World, client: aiohttp.ClientSession) -> None:
    """The answer comes after the response timer: it resolves the doubt, whatever the class has made of it."""
    refs = await _send(world, client, "late")
    doubtful = await _until(world, client, refs, lambda found: found["marketing"]["status"] == "failed")
    assert doubtful["marketing"]["error"]["code"] == "outcome_unknown"
    found = await _until(world, client, refs, lambda found: {m["status"] for m in found.values()} == {"sent"})
    assert [found[name]["possible_duplicate"] for name in CLASSES] == [True, False, False]
    assert {"unconfirmed", "resent"} <= _events(found["otp"])
    assert "unconfirmed" in _events(found["transactional"])
    assert "corrected" in _events(found["marketing"])
    assert _submits(world, "late") == {"otp": 2, "transactional": 1, "marketing": 1}


async def _receipts_alone(world: World, client: aiohttp.ClientSession) -> None:
    """No answer at all, but receipts under ids that nobody told us: matched by number and time of the submit."""
    await _change_carrier(world, drop_ratio="1", dropped_delivered="true", receipt_delay_ms=str(LATE_MS))
    refs = await _send(world, client, "quiet")
    found = await _until(world, client, refs, lambda found: {m["status"] for m in found.values()} == {"delivered"})
    assert [found[name]["possible_duplicate"] for name in CLASSES] == [True, False, False]
    assert "resent" in _events(found["otp"])
    assert "corrected" in _events(found["marketing"])
    assert _submits(world, "quiet") == {"otp": 2, "transactional": 1, "marketing": 1}


async def _silence(world: World, client: aiohttp.ClientSession) -> None:
    """Neither answer nor receipt: held in doubt or failed, with an end that is known; nothing is sent a third time."""
    await _change_carrier(world, drop_ratio="1")
    refs = await _send(world, client, "gone")
    expected = {"otp": "unconfirmed", "transactional": "unconfirmed", "marketing": "failed"}
    found = await _until(
        world, client, refs, lambda found: {name: message["status"] for name, message in found.items()} == expected
    )
    assert found["marketing"]["error"]["code"] == "outcome_unknown"
    assert found["otp"]["possible_duplicate"]
    ledger = await world.ledger()
    try:
        ends = await ledger.fetch("SELECT sweep_at - expires_at AS later_ms FROM messages WHERE status = 'unconfirmed'")
    finally:
        await ledger.close()
    assert [row["later_ms"] for row in ends] == [600_000, 600_000]
    assert _submits(world, "gone") == {"otp": 2, "transactional": 1, "marketing": 1}


async def _change_carrier(world: World, **settings: str) -> None:
    """Another carrier on the same port; returns once the session is bound again."""
    await world.stop_carrier()
    world.shape = dataclasses.replace(world.shape, carrier=tuple(settings.items()))
    world.start_carrier()
    end_mono = time.monotonic() + 30
    while not world.ready():
        assert time.monotonic() < end_mono, "the session is not bound again"
        await asyncio.sleep(0.1)


async def _send(world: World, client: aiohttp.ClientSession, word: str) -> dict[str, str]:
    """One message of each class; class -> id. Every message has a number of its own."""
    ids = {}
    for n, name in enumerate(CLASSES):
        ref = f"{word}-{name}"
        number = f"+4477009{sum(word.encode()):04d}{n}"
        body = {"to": number, "text": f"{ref} of the day", "class": name, "client_ref": ref}
        ids[name] = (await _accepted(world, client, body, ref))["id"]
    return ids


async def _accepted(world: World, client: aiohttp.ClientSession, body: dict[str, str], key: str) -> dict[str, Any]:
    """The message once the door takes it: a carrier that was silent before is refused for a while, and asked again."""
    end_mono = time.monotonic() + 60
    while True:
        async with client.post(f"{world.url}/v1/messages", json=body, headers={"Idempotency-Key": key}) as answer:
            told: dict[str, Any] = await answer.json()
            if answer.status == 202:
                return told
            assert answer.status == 503 and time.monotonic() < end_mono, told
            await asyncio.sleep(int(answer.headers["Retry-After"]))


async def _until(
    world: World, client: aiohttp.ClientSession, ids: dict[str, str], holds: Callable[[Messages], bool]
) -> Messages:
    """The messages once a condition holds."""
    end_mono = time.monotonic() + 60
    while True:
        found: Messages = {}
        for name, message_id in ids.items():
            async with client.get(f"{world.url}/v1/messages/{message_id}") as answer:
                found[name] = await answer.json()
        if holds(found):
            return found
        assert time.monotonic() < end_mono, {name: (m["status"], m.get("error")) for name, m in found.items()}
        await asyncio.sleep(0.05)


def _events(message: dict[str, Any]) -> set[str]:
    return {event["type"] for event in message["events"]}


def _submits(world: World, word: str) -> dict[str, int]:
    """How often the carrier saw the message of each class."""
    seen = [submit.client_ref for submit in read_journal(world.journal_path)]
    return {name: seen.count(f"{word}-{name}") for name in CLASSES}
