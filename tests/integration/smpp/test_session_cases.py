"""Real cases of kind `session`, by id, over real sockets: a carrier made of raw octets, or the simulator.

What a status means for pace and queue (S01, S02, S30) is decided above the link; here stands what the link and the
status table give for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from smpp.link import BindRefused, LinkSettings
from smpp.protocol.codec import encode
from smpp.protocol.errors import NotPermitted
from smpp.protocol.pdu import (
    AlertNotification,
    BindTransceiver,
    DeliverSm,
    EnquireLink,
    EnquireLinkResp,
    GenericNack,
    SubmitSm,
    SubmitSmResp,
    Unbind,
    UnbindResp,
)
from smpp.protocol.status import consequence
from smpp.simulator import Simulator, SimulatorSettings
from smpp.text import Carriage, segment
from tests.integration.smpp.peers import Esme, RawCarrier, until

LOST = LinkSettings(window=10, enquire_link_s=0.2, response_timeout_s=0.3, inactivity_s=60)


@pytest.fixture
async def carrier() -> AsyncIterator[RawCarrier]:
    raw = RawCarrier()
    yield raw
    await raw.stop()


async def bound(carrier: RawCarrier, settings: LinkSettings | None = None, auto: bool = True) -> Esme:
    esme = Esme(auto)
    port = await carrier.start()
    link = await (esme.open(port, settings) if settings else esme.open(port))
    binding = asyncio.create_task(link.bind("transceiver", "acme", "pw"))
    await carrier.accept_bind()
    await binding
    return esme


async def pending(carrier: RawCarrier, esme: Esme, *sequences: int) -> None:
    """Submits with these sequence numbers are on the wire; the token is the number."""
    assert esme.link is not None
    for sequence in sequences:
        esme.link._session._window._next = sequence
        assert esme.submit(sequence) == sequence
        assert (await carrier.next()).sequence_number == sequence


async def test_s01_throttling_speaks_about_the_session(carrier: RawCarrier) -> None:
    esme = await bound(carrier)
    await pending(carrier, esme, 0x33, 0x34)
    carrier.write(bytes.fromhex("00000013800000040000000000000033413100" + "00000010800000040000005800000034"))
    await until(lambda: len(esme.answers) == 2)
    assert esme.results() == {0x33: 0, 0x34: 0x58}
    follows = consequence(0x58)
    assert (follows.kind, follows.delay_ms, follows.repeats_max) == ("throttle", 1_000, None)
    assert esme.link is not None and esme.link.bound and esme.link.unanswered == 0


async def test_s02_queue_full_is_tried_later(carrier: RawCarrier) -> None:
    """Read with the design's rule: the message waits, the session slows only when three destinations say so."""
    esme = await bound(carrier)
    await pending(carrier, esme, 0x35)
    carrier.write(bytes.fromhex("00000010800000040000001400000035"))
    await until(lambda: esme.answers)
    assert esme.results() == {0x35: 0x14}
    follows = consequence(0x14)
    assert (follows.kind, follows.holds, follows.stop) == ("later", None, False)
    assert esme.link is not None and esme.link.can_send


async def test_s04_a_carrier_counts_every_part() -> None:
    """Three parts at once at a carrier of one per second: two are throttled. One by one, a second apart: none is."""
    simulator = await Simulator(SimulatorSettings(port=0, receipts=False, throttle_per_s=5)).start()
    esme = Esme()
    await esme.bind(simulator.port)
    parts = segment("x" * 400, "auto", Carriage(), reference=1)
    assert len(parts) == 3
    for number, part in enumerate(parts):
        esme.submit(("burst", number), short_message=part.short_message, esm_class=part.esm_class)
    await until(lambda: len(esme.answers) == 3)
    assert list(esme.results().values()) == [0, 0x58, 0x58]
    for number, part in enumerate(parts):
        await asyncio.sleep(0.22)
        esme.submit(("spaced", number), short_message=part.short_message, esm_class=part.esm_class)
    await until(lambda: len(esme.answers) == 6)
    assert list(esme.results().values())[3:] == [0, 0, 0]
    await simulator.stop()


async def test_s05_the_window_is_never_exceeded() -> None:
    simulator = await Simulator(SimulatorSettings(port=0, receipts=False, answer_delay_ms=50, window_max=10)).start()
    esme = Esme()
    link = await esme.bind(simulator.port, LinkSettings(10, 15, 10, 60))
    for token in range(50):
        await until(lambda: link.window_free > 0)
        esme.submit(token)
        assert link.unanswered <= 10
    await until(lambda: len(esme.answers) == 50)
    assert set(esme.results().values()) == {0}, "never more than ten: nothing was refused"
    await simulator.stop()


async def test_s06_answers_in_another_order(carrier: RawCarrier) -> None:
    esme = await bound(carrier)
    await pending(carrier, esme, 71, 72, 73)
    carrier.write(
        bytes.fromhex(
            "000000158000000400000000000000494944373300"
            "000000158000000400000000000000474944373100"
            "00000010800000040000000b00000048"
        )
    )
    await until(lambda: len(esme.answers) == 3)
    assert {token: (response.command_status, response.message_id) for token, response, _ in esme.answers} == {
        71: (0, "ID71"), 72: (0x0B, ""), 73: (0, "ID73"),
    }  # fmt: skip
    assert consequence(0x0B).kind == "never"


@pytest.mark.parametrize(
    ("octets", "sequence", "status", "message_id"),
    [
        pytest.param("00000010800000040000004500000036", 0x36, 0x45, "", id="s08"),
        pytest.param(
            "00000021800000040000000b000000373041303030303030413344333030413100",
            0x37, 0x0B, "0A000000A3D300A1", id="s09",
        ),
        pytest.param(
            "0000002880000004000000000000003a33346630616331622d613131642d34303030000428000100",
            0x3A, 0, "34f0ac1b-a11d-4000", id="s11",
        ),
    ],
)  # fmt: skip
async def test_s08_s09_s11_answers_of_every_shape(
    carrier: RawCarrier, octets: str, sequence: int, status: int, message_id: str
) -> None:
    esme = await bound(carrier)
    await pending(carrier, esme, sequence)
    carrier.write(bytes.fromhex(octets))
    await until(lambda: esme.answers)
    ((token, response, late),) = esme.answers
    assert (token, response.command_status, response.message_id, late) == (sequence, status, message_id, False)
    assert esme.link is not None and esme.link.bound


async def test_s13_a_nack_with_our_sequence(carrier: RawCarrier) -> None:
    esme = await bound(carrier)
    await pending(carrier, esme, 90)
    carrier.write(bytes.fromhex("0000001080000000000000010000005a"))
    await until(lambda: esme.answers)
    ((token, response, _),) = esme.answers
    assert token == 90 and isinstance(response, GenericNack) and response.command_status == 1
    assert consequence(1).kind == "never"
    assert esme.link is not None and esme.link.bound and esme.link.unanswered == 0


async def test_s15_an_unknown_command(carrier: RawCarrier) -> None:
    esme = await bound(carrier)
    carrier.write(bytes.fromhex("000000120000009900000000000000210102"))
    assert encode(await carrier.next()).hex() == "00000010800000000000000300000021"
    assert esme.link is not None and esme.link.bound


async def test_s16_a_length_that_cannot_be_true(carrier: RawCarrier) -> None:
    esme = await bound(carrier)
    await pending(carrier, esme, 5)
    carrier.write(bytes.fromhex("80000009000000000000000100"))
    nack = await carrier.next()
    assert isinstance(nack, GenericNack) and nack.command_status == 2
    assert await carrier.at_end()
    assert esme.losses == [([(5, True)], "command_length is out of bounds")]


async def test_s17_pieces(carrier: RawCarrier) -> None:
    esme = await bound(carrier)
    await pending(carrier, esme, 95)
    for piece in ("000000", "17800000040000", "00000000005f46524147393500"):
        carrier.write(bytes.fromhex(piece))
        await asyncio.sleep(0.02)
    await until(lambda: esme.answers)
    assert esme.answers[0][1] == SubmitSmResp("FRAG95", sequence_number=95)


async def test_s19_two_and_the_head_of_a_third(carrier: RawCarrier) -> None:
    esme = await bound(carrier)
    await pending(carrier, esme, 95, 96)
    carrier.write(
        bytes.fromhex("0000001680000004000000000000006054574f39360000000010000000150000000000000005000000178000")
    )
    assert encode(await carrier.next()).hex() == "00000010800000150000000000000005"
    assert list(esme.results()) == [96]
    carrier.write(bytes.fromhex("0004000000000000005f46524147393500"))
    await until(lambda: len(esme.answers) == 2)
    assert esme.answers[1][1].message_id == "FRAG95"


async def test_s20_already_bound(carrier: RawCarrier) -> None:
    port = await carrier.start()
    link = await Esme().open(port)
    binding = asyncio.create_task(link.bind("transceiver", "acme", "pw"))
    bind = await carrier.next()
    assert isinstance(bind, BindTransceiver) and bind.sequence_number == 1
    carrier.write(bytes.fromhex("00000010800000090000000500000001"))
    with pytest.raises(BindRefused) as caught:
        await binding
    assert caught.value.command_status == 5
    follows = consequence(5)
    assert (follows.kind, follows.holds, follows.stop) == ("hold", "session", False), "never as bad credentials"
    assert await carrier.at_end(), "the socket is closed, the next try takes a new one"


async def test_s20_our_end_waits_for_its_unbind(carrier: RawCarrier) -> None:
    esme = await bound(carrier)
    assert esme.link is not None
    leaving = asyncio.create_task(esme.link.unbind(1.0))
    unbind = await carrier.next()
    assert isinstance(unbind, Unbind)
    await asyncio.sleep(0.1)
    assert not leaving.done()
    carrier.write(encode(UnbindResp(sequence_number=unbind.sequence_number)))
    await leaving


async def test_s22_unbind_with_work_in_flight(carrier: RawCarrier) -> None:
    esme = await bound(carrier)
    await pending(carrier, esme, 100, 101)
    carrier.write(bytes.fromhex("00000010000000060000000000000384" + "000000158000000400000000000000645531303000"))
    assert encode(await carrier.next()).hex() == "00000010800000060000000000000384"
    await until(lambda: esme.answers)
    assert esme.answers[0][1] == SubmitSmResp("U100", sequence_number=100)
    with pytest.raises(NotPermitted):
        esme.submit("new")
    assert carrier.writer is not None
    carrier.writer.close()
    await until(lambda: esme.losses)
    assert esme.losses[0][0] == [(101, True)], "in doubt, not given back"


async def test_s23_probes_with_a_full_window(carrier: RawCarrier) -> None:
    esme = await bound(carrier, LinkSettings(2, 15, 10, 60))
    await pending(carrier, esme, 1001, 1002)
    assert esme.link is not None and esme.link.window_free == 0
    carrier.write(bytes.fromhex("0000001000000015000000000000004d"))
    assert encode(await carrier.next()).hex() == "0000001080000015000000000000004d"


async def test_s23_a_link_cut_without_fin_is_noticed(carrier: RawCarrier) -> None:
    esme = await bound(carrier, LOST)
    await pending(carrier, esme, 7)
    begun_mono = time.monotonic()
    await until(lambda: esme.losses)
    assert esme.losses[0][1] == "enquire_link unanswered"
    assert time.monotonic() - begun_mono < 3 * (LOST.enquire_link_s + LOST.response_timeout_s)
    assert esme.timeouts == [7] or esme.losses[0][0] == [(7, True)], "in doubt exactly once"


async def test_s24_the_counter_wraps_to_one_and_past_what_waits(carrier: RawCarrier) -> None:
    esme = await bound(carrier)
    await pending(carrier, esme, 1)
    await pending(carrier, esme, 0x7FFFFFFF)
    assert esme.submit("after") == 2


async def test_s25_alert_notification(carrier: RawCarrier) -> None:
    esme = await bound(carrier)
    carrier.write(
        bytes.fromhex("0000002c00000102000000000000002801013434373730303930303132330000013630303730000422000100")
    )
    carrier.write(encode(EnquireLink(sequence_number=9)))
    assert await carrier.next() == EnquireLinkResp(sequence_number=9), "nothing answers the alert"
    (alert,) = esme.requests
    assert isinstance(alert, AlertNotification) and alert.source_addr == "447700900123"


async def test_s27_receipts_are_answered(carrier: RawCarrier) -> None:
    esme = await bound(carrier)
    carrier.write(
        bytes.fromhex(
            "000000930000000500000000000012670001013434373730303930303132330000013630303730000400000000000000006169643a3930303"
            "031207375623a30303120646c7672643a303031207375626d697420646174653a3234303130313031303120646f6e6520646174653a323430"
            "3130313031303220737461743a44454c49565244206572723a30303020746578743a"
        )
    )
    assert encode(await carrier.next()).hex() == "0000001180000005000000000000126700"
    assert isinstance(esme.requests[0], DeliverSm)


async def test_s29_parts_have_sequences_of_their_own(carrier: RawCarrier) -> None:
    esme = await bound(carrier)
    parts = segment("x" * 400, "auto", Carriage(), reference=1)
    for part in parts:
        esme.submit(part, short_message=part.short_message, esm_class=part.esm_class)
    seen = [await carrier.next() for _ in parts]
    assert all(isinstance(pdu, SubmitSm) for pdu in seen)
    assert len({pdu.sequence_number for pdu in seen}) == len(parts) == 3


async def test_s30_a_lost_link_refuses_quietly_and_the_next_one_is_free() -> None:
    """The pause after a throttle answer belongs above; a link that is gone must not raise anything unknown at it."""
    simulator = await Simulator(SimulatorSettings(port=0, receipts=False, error_ratio=1, error_status=0x58)).start()
    esme = Esme()
    link = await esme.bind(simulator.port)
    esme.submit("a")
    await until(lambda: esme.answers)
    assert esme.results() == {"a": 0x58}
    simulator.cut()
    await until(lambda: esme.losses)
    assert not link.can_send and not link.writable and link.unanswered == 0
    with pytest.raises(NotPermitted):
        esme.submit("b")
    link.answer(DeliverSm(sequence_number=1))  # an answer that is due on a gone link is dropped
    await link.unbind(1.0)
    simulator.change(error_ratio=0)
    again = Esme()
    await again.bind(simulator.port)
    again.submit("b")
    await until(lambda: again.results() == {"b": 0})
    await simulator.stop()
