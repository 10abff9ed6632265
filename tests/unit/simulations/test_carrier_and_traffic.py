"""Carrier and clients of the simulations do what scenarios rely on."""

from __future__ import annotations

import random

import pytest

from scheduler.core.records import Flow
from simulations.carrier import Carrier
from simulations.ledger import Ledger, Message
from simulations.traffic import Clients, Kind, Stream

KIND = Kind("t", "otp")


def test_paced_carrier_answers_at_its_rate() -> None:
    carrier = Carrier(random.Random(1), rate_per_s=100, round_trip_ms=(10, 10))
    answers = [carrier.submit(0, 1) for _ in range(10)]
    assert [answer for answer, _ in answers] == ["taken"] * 10
    assert answers[-1][1] == pytest.approx(100 + 10)
    carrier.change_rate(50, 0)
    assert carrier.submit(0, 1)[1] == pytest.approx(2 * 100 + 20 + 10)


def test_throttling_carrier_refuses_above_its_rate() -> None:
    carrier = Carrier(random.Random(1), rate_per_s=100, paced=False, burst=5)
    kinds = [carrier.submit(at, 1)[0] for at in range(0, 1_000, 2)]
    assert 100 <= kinds.count("taken") <= 107
    assert carrier.throttled == kinds.count("throttled") == 500 - kinds.count("taken")


def test_silent_carrier_answers_nothing() -> None:
    carrier = Carrier(random.Random(1), silent=True)
    assert carrier.submit(0, 1)[0] == "silent"


def test_streams_offer_their_rate_and_no_more_than_their_amount() -> None:
    clients = Clients(random.Random(1), 0)
    clients.streams = [
        Stream([KIND], 100, end_s=10),
        Stream([KIND, Kind("u", "otp")], 1_000, amount=50, pattern="even", in_turn=True),
    ]
    found = [request for at in range(0, 20_000, 10) for request in clients.due(at)]
    assert 900 < clients.streams[0].offered < 1_100
    assert clients.streams[1].offered == 50
    assert sum(1 for request in found if request.kind.tenant == "u") == 25
    assert len({request.place for request in found}) == len(found)


def test_an_obedient_message_comes_back_when_it_was_told_to() -> None:
    clients = Clients(random.Random(1), 0)
    clients.streams = [Stream([KIND], 1, amount=1, pattern="even", manner="obedient")]
    (request,) = clients.due(2_000)
    clients.come_again(request, 5_000)
    assert clients.due(4_990) == []
    assert clients.due(5_000) == [request]


def test_arbiter_lets_a_slot_be_claimed_once() -> None:
    ledger = Ledger()
    message = Message(0, KIND, Flow("p", "otp", "t", (), 1), 0, 0)
    ledger.messages.append(message)
    reference = message.entry().reference
    assert ledger.claim(reference) is message
    assert ledger.claim(reference) is None
    message.slot += 1
    message.closing = False
    assert ledger.claim(reference) is None, "an old slot"
    assert ledger.claim(message.entry().reference) is message
    assert ledger.doubles == 2


def test_abandoned_batches_wait_for_the_sweep() -> None:
    ledger = Ledger()
    message = Message(0, KIND, Flow("p", "otp", "t", (), 1), 0, 0)
    ledger.commit([message.entry()], 0, told=False)
    ledger.commit([message.entry()], 0)
    assert len(ledger.to_enqueue(10)) == 1
    assert ledger.to_enqueue(1_990) == []
    assert len(ledger.to_enqueue(2_000)) == 1
