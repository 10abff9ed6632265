"""A session that leaves: what is delivered meanwhile is kept or comes again (I28), and nothing holds it back."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress

import pytest

from gateway.policy import versions
from scheduler.core.asks import LeaseAsk, Leased
from scheduler.store.scheduler import Scheduler
from smpp.protocol.codec import encode
from smpp.protocol.pdu import DeliverSm, DeliverSmResp, EnquireLink, EnquireLinkResp, Unbind, UnbindResp
from smpp.simulator import SimulatorSettings
from tests.integration.egress.world import PolicyText, World, open_world, until
from tests.integration.smpp.peers import RawCarrier


def _receipt(number: int) -> bytes:
    text = f"id:{number} sub:001 dlvrd:001 submit date:2611300900 done date:2611300901 stat:DELIVRD err:000 text:"
    return encode(
        DeliverSm(
            source_addr="393331234567",
            destination_addr="ACME",
            esm_class=0x04,
            short_message=text.encode(),
            sequence_number=number,
        )
    )


class _Carrier(RawCarrier):
    """Delivers receipts, and again on the next session what was not acknowledged; sequence numbers are their ids."""

    def __init__(self) -> None:
        super().__init__()
        self.owed: set[int] = set()
        self.acknowledged: set[int] = set()
        self._unbind: Unbind | None = None
        self._numbers = itertools.count(1)

    def receipt(self) -> bytes:
        """A new one, to be written."""
        self.owed.add(number := next(self._numbers))
        return _receipt(number)

    async def begin(self) -> None:
        """Takes a bind and delivers what it owes."""
        await self.accept_bind()
        self._unbind = None
        self.write(b"".join(map(_receipt, sorted(self.owed))))

    async def unbound(self) -> bytes:
        """Waits for the ESME's unbind; its response, to be written."""
        while self._unbind is None:
            await self._look()
        return encode(UnbindResp(sequence_number=self._unbind.sequence_number))

    async def settled(self) -> None:
        """Returns once nothing is owed."""
        while self.owed:
            await self._look()

    async def closed(self) -> None:
        """Reads what is still answered until the ESME has closed."""
        with suppress(EOFError, ConnectionError):
            while True:
                await self._look()
        self.accepted.clear()

    async def _look(self) -> None:
        pdu = await self.next()
        if isinstance(pdu, DeliverSmResp) and pdu.command_status == 0:
            self.owed.discard(pdu.sequence_number)
            self.acknowledged.add(pdu.sequence_number)
        elif isinstance(pdu, Unbind):
            self._unbind = pdu
        elif isinstance(pdu, EnquireLink):
            self.write(encode(EnquireLinkResp(sequence_number=pdu.sequence_number)))


async def _around_the_unbind(carrier: _Carrier) -> None:
    unbound = asyncio.create_task(carrier.unbound())
    while not unbound.done():
        carrier.write(carrier.receipt())
        await asyncio.sleep(0.02)
    carrier.write(await unbound)


async def _between_unbind_and_its_response(carrier: _Carrier) -> None:
    response = await carrier.unbound()
    carrier.write(carrier.receipt())
    with suppress(EOFError, ConnectionError):  # the ESME's patience may be over before a slow ledger has it
        await carrier.settled()
    carrier.write(response)


async def _in_front_of_the_response(carrier: _Carrier) -> None:
    response = await carrier.unbound()
    carrier.write(carrier.receipt() + response)


async def _behind_the_response(carrier: _Carrier) -> None:
    carrier.write(await carrier.unbound() + carrier.receipt())


async def _cut_in_two(carrier: _Carrier) -> None:
    response, cut = await carrier.unbound(), carrier.receipt()
    carrier.write(carrier.receipt() + cut[:20])
    await asyncio.sleep(0.1)
    carrier.write(cut[20:] + response + carrier.receipt())


async def _instead_of_a_response(carrier: _Carrier) -> None:
    await carrier.unbound()
    carrier.write(carrier.receipt())


async def _while_both_sides_unbind(carrier: _Carrier) -> None:
    response = await carrier.unbound()
    carrier.write(carrier.receipt() + encode(Unbind(sequence_number=900)) + carrier.receipt() + response)


_STEPS = (
    _around_the_unbind, _between_unbind_and_its_response, _in_front_of_the_response, _behind_the_response, _cut_in_two,
    _instead_of_a_response, _while_both_sides_unbind,
)  # fmt: skip


@pytest.mark.parametrize("slow_ledger", [False, True], ids=["", "slow-ledger"])
async def test_what_comes_while_a_session_leaves_is_kept_or_comes_again(
    database_url: str, redis_url: str, slow_ledger: bool
) -> None:
    """I28 at each step of a stop: what is acknowledged is a row, and the rest comes again on the next session."""
    carrier = _Carrier()
    port = await carrier.start()
    async with open_world(database_url, redis_url, SimulatorSettings(port=0), lambda _: PolicyText(port)) as world:
        for turn, step in enumerate((*_STEPS, None)):
            async with world.egress(str(turn)):
                await carrier.begin()
                await carrier.settled()
                playing = asyncio.create_task(step(carrier) if step else _say_goodbye(carrier))
                await asyncio.sleep(0.1)
                held_up = asyncio.create_task(_hold_up(world)) if slow_ledger else None
            await playing
            await carrier.closed()
            if held_up is not None:
                await held_up
            kept = {int(row["raw_id"]) for row in await world.conn.fetch("SELECT raw_id FROM receipts")}
            assert carrier.acknowledged <= kept, step
        assert not carrier.owed and carrier.acknowledged == kept
    await carrier.stop()


async def _say_goodbye(carrier: _Carrier) -> None:
    carrier.write(await carrier.unbound())


async def _hold_up(world: World) -> None:
    """Nobody can store a receipt for a moment: what is delivered now is still on its way when the link ends."""
    async with world.conn.transaction():
        await world.conn.execute("LOCK TABLE receipts IN EXCLUSIVE MODE")
        await asyncio.sleep(0.5)


async def test_a_session_leaves_and_comes_back_although_a_cancellation_was_swallowed(
    database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `asyncio.wait_for` in the client of Redis does: its lock stayed with us, and nobody bound it ever again."""
    swallowed = []
    wait, lease = Scheduler.wait, Scheduler.lease

    async def deaf_wait(self: Scheduler, provider: str, session: str, timeout_s: float) -> bool:
        try:
            return await wait(self, provider, session, timeout_s)
        except asyncio.CancelledError:
            swallowed.append(session)
            return False

    async def deaf_lease(self: Scheduler, ask: LeaseAsk) -> Leased:
        try:
            return await lease(self, ask)
        except asyncio.CancelledError:
            swallowed.append(ask.session)
            return Leased(bytes(8))

    async with open_world(
        database_url, redis_url, SimulatorSettings(port=0), lambda port: PolicyText(port, sessions=2)
    ) as world:
        monkeypatch.setattr(Scheduler, "wait", deaf_wait)
        monkeypatch.setattr(Scheduler, "lease", deaf_lease)
        async with world.egress():

            async def bound(number: int) -> bool:
                return world.carrier.bound == number

            await until(lambda: bound(2))
            for round_, sessions in enumerate((1, 2, 1, 2)):
                text = PolicyText(world.carrier.port, sessions=sessions).yaml() + f"# {round_}\n"
                version = await versions.insert(world.conn, text, "test", "", world.clock.now_at())
                await versions.activate(world.conn, version)
                await until(lambda sessions=sessions: bound(sessions))  # type: ignore[misc]
            ids = await world.put([f"after {n}" for n in range(20)])
            await world.until_status(ids, "sent")
    assert swallowed
