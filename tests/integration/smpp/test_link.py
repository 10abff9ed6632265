"""The asyncio link on real sockets: binds, windows, cuts at every place, TLS, and what comes back when it ends."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from smpp.link import BindRefused, Connection, LinkLost, LinkSettings, connect, serve
from smpp.protocol.codec import encode, encode_bare
from smpp.protocol.errors import NotPermitted, PduInvalid
from smpp.protocol.pdu import DeliverSm, EnquireLink, GenericNack, SubmitSm, SubmitSmResp, Unbind, UnbindResp
from smpp.simulator import Simulator, SimulatorSettings
from tests.integration.smpp.peers import SETTINGS, Esme, RawCarrier, until


@pytest.fixture
async def carrier() -> AsyncIterator[RawCarrier]:
    raw = RawCarrier()
    yield raw
    await raw.stop()


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    running = await Simulator(SimulatorSettings(port=0, receipt_delay_ms=0)).start()
    yield running
    await running.stop()


async def bound(carrier: RawCarrier, settings: LinkSettings = SETTINGS, auto: bool = True) -> tuple[Esme, Connection]:
    esme = Esme(auto)
    port = await carrier.start()
    binding = asyncio.create_task(esme.bind(port, settings))
    await carrier.accept_bind()
    return esme, await binding


async def test_bind_submit_receipt_unbind(simulator: Simulator) -> None:
    esme = Esme()
    link = await esme.open(simulator.port)
    assert await link.bind("transceiver", "acme", "pw", "VMA") == "simulator"
    assert link.bound and link.can_send and link.writable
    assert (link.window_free, esme.submit("a")) == (10, 2)
    assert link.window_free == 9
    await until(lambda: esme.requests and esme.answers)
    assert esme.results() == {"a": 0}
    assert isinstance(esme.requests[0], DeliverSm)
    assert esme.rooms >= 1
    await link.unbind(2.0)
    assert not link.bound
    assert esme.losses == [([], "unbound")]
    assert simulator.bound == 0


async def test_bind_refused(simulator: Simulator) -> None:
    simulator.change(bind_status=0x0E)
    esme = Esme()
    link = await esme.open(simulator.port)
    with pytest.raises(BindRefused) as caught:
        await link.bind("transceiver", "acme", "wrong")
    assert caught.value.command_status == 0x0E
    await link.wait_closed()
    assert esme.losses == [([], "bind refused")]


async def test_s20_already_bound_is_a_refusal_of_its_own(carrier: RawCarrier) -> None:
    esme = Esme()
    binding = asyncio.create_task(esme.bind(await carrier.start()))
    await carrier.next()
    carrier.write(bytes.fromhex("00000010800000090000000500000001"))
    with pytest.raises(BindRefused) as caught:
        await binding
    assert caught.value.command_status == 0x05


async def test_bind_that_is_never_answered(carrier: RawCarrier) -> None:
    settings = LinkSettings(10, 15, 10, 60, bind_timeout_s=0.05)
    with pytest.raises(TimeoutError):
        await Esme().bind(await carrier.start(), settings)
    await carrier.accepted.wait()
    assert await carrier.at_end()


async def test_peer_closes_instead_of_answering_the_bind(carrier: RawCarrier) -> None:
    esme = Esme()
    binding = asyncio.create_task(esme.bind(await carrier.start()))
    await carrier.next()
    assert carrier.writer is not None
    carrier.writer.close()
    with pytest.raises(LinkLost):
        await binding
    assert len(esme.losses) == 1


async def test_a_password_that_does_not_fit_is_refused_before_it_is_sent(carrier: RawCarrier) -> None:
    esme = Esme()
    link = await esme.open(await carrier.start())
    with pytest.raises(PduInvalid):
        await link.bind("transceiver", "acme", "much-too-long")
    await carrier.accepted.wait()
    assert await carrier.at_end()


async def test_connect_refused_and_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(OSError):
            await Esme().open(port)


async def test_window_is_never_exceeded(carrier: RawCarrier) -> None:
    esme, link = await bound(carrier, LinkSettings(3, 15, 10, 60))
    sequences = [esme.submit(token) for token in "abc"]
    assert link.window_free == 0
    assert [(await carrier.next()).sequence_number for _ in range(3)] == sequences
    carrier.write(encode(SubmitSmResp("x", sequence_number=sequences[1])))
    await until(lambda: esme.answers)
    assert link.window_free == 1
    assert esme.rooms == 1
    link.close()


async def test_s23_enquire_link_is_answered_with_a_full_window(carrier: RawCarrier) -> None:
    esme, link = await bound(carrier, LinkSettings(1, 15, 10, 60))
    esme.submit("a")
    await carrier.next()
    carrier.write(bytes.fromhex("0000001000000015000000000000004d"))
    assert encode(await carrier.next()).hex() == "0000001080000015000000000000004d"
    link.close()


async def test_i21_a_silent_carrier_is_noticed_and_its_messages_are_in_doubt_once(carrier: RawCarrier) -> None:
    esme, link = await bound(carrier, LinkSettings(10, 0.05, 0.4, 60))
    esme.submit("a")
    await until(lambda: esme.losses)
    tokens, reason = esme.losses[0]
    assert reason == "enquire_link unanswered"
    handed_back = [token for token, written in tokens] + esme.timeouts
    assert handed_back == ["a"]
    assert all(written for _, written in tokens)
    assert not link.bound
    assert len(esme.losses) == 1


async def test_a_lone_timeout_keeps_the_link_and_takes_the_late_answer(carrier: RawCarrier) -> None:
    esme, link = await bound(carrier, LinkSettings(10, 30, 0.05, 60))
    sequence = esme.submit("a")
    assert isinstance(await carrier.next(), SubmitSm)
    probe = await carrier.next()
    assert isinstance(probe, EnquireLink)
    carrier.write(encode_bare(0x80000015, 0, probe.sequence_number))
    await until(lambda: esme.timeouts == ["a"])
    assert link.window_free == 10
    carrier.write(encode(SubmitSmResp("A1", sequence_number=sequence)))
    await until(lambda: esme.answers)
    assert esme.answers[0][0] == "a" and esme.answers[0][2] is True
    assert link.bound
    link.close()
    await link.wait_closed()
    assert esme.losses == [([], "connection closed")]


async def test_a_cut_hands_back_what_was_written(carrier: RawCarrier) -> None:
    esme, link = await bound(carrier)
    esme.submit("a")
    esme.submit("b")
    await carrier.next()
    assert carrier.writer is not None
    carrier.writer.transport.abort()
    await until(lambda: esme.losses)
    assert [token for token, _ in esme.losses[0][0]] == ["a", "b"]
    assert all(written for _, written in esme.losses[0][0])
    with pytest.raises(NotPermitted):
        esme.submit("c")
    link.close()
    assert len(esme.losses) == 1


async def test_what_never_left_is_told_apart(carrier: RawCarrier) -> None:
    """A socket that takes nothing: what is submitted after the pause provably never left."""
    esme, link = await bound(carrier, LinkSettings(100_000, 60, 60, 120))
    assert carrier.reader is not None and carrier.writer is not None
    carrier.writer.transport.pause_reading()
    number = 0
    while link.writable:
        for _ in range(500):
            esme.submit(number, short_message=b"x" * 200)
            number += 1
        await asyncio.sleep(0)
    for late in range(5):
        esme.submit(("unwritten", late))
    await asyncio.sleep(0)
    assert not link.writable
    carrier.writer.transport.abort()
    await until(lambda: esme.losses)
    flags = dict(esme.losses[0][0])
    assert len(flags) == number + 5
    assert [flags[("unwritten", late)] for late in range(5)] == [False] * 5
    assert flags[0] is True


async def test_submits_of_one_turn_that_is_cut_before_it_ends_never_left(carrier: RawCarrier) -> None:
    esme, link = await bound(carrier)
    esme.submit("a")
    link.close()
    await link.wait_closed()
    assert esme.losses == [([("a", False)], "connection closed")]


async def test_s22_unbind_of_the_carrier_with_work_in_flight(carrier: RawCarrier) -> None:
    esme, link = await bound(carrier)
    first, _ = esme.submit("a"), esme.submit("b")
    await carrier.next()
    await carrier.next()
    carrier.write(encode(Unbind(sequence_number=900)))
    assert await carrier.next() == UnbindResp(sequence_number=900)
    assert not link.can_send
    carrier.write(encode(SubmitSmResp("U100", sequence_number=first)))
    await until(lambda: esme.answers)
    assert carrier.writer is not None
    carrier.writer.close()
    await until(lambda: esme.losses)
    assert esme.results() == {"a": 0}
    assert esme.losses[0][0] == [("b", True)]


async def test_unbind_of_the_carrier_waits_two_seconds_at_most(carrier: RawCarrier) -> None:
    esme, _ = await bound(carrier)
    esme.submit("a")
    await carrier.next()
    begun = asyncio.get_running_loop().time()
    carrier.write(encode(Unbind(sequence_number=9)))
    await until(lambda: esme.losses)
    assert 1.9 < asyncio.get_running_loop().time() - begun < 4
    assert esme.losses == [([("a", True)], "unbound")]
    assert await carrier.at_end()


async def test_i34_our_unbind_waits_for_answers(carrier: RawCarrier) -> None:
    esme, link = await bound(carrier)
    sequence = esme.submit("a")
    await carrier.next()
    leaving = asyncio.create_task(link.unbind(5.0))
    await asyncio.sleep(0)
    assert not link.can_send
    carrier.write(encode(SubmitSmResp("A1", sequence_number=sequence)))
    unbind = await carrier.next()
    assert isinstance(unbind, Unbind)
    carrier.write(encode_bare(0x80000006, 0, unbind.sequence_number))
    await leaving
    assert esme.results() == {"a": 0}
    assert esme.losses == [([], "unbound")]


async def test_our_unbind_gives_up_on_a_silent_carrier(carrier: RawCarrier) -> None:
    esme, link = await bound(carrier, LinkSettings(10, 15, 0.2, 60))
    esme.submit("a")
    await asyncio.wait_for(link.unbind(0.05), 5)
    assert len(esme.losses) == 1
    assert [token for token, _ in esme.losses[0][0]] + esme.timeouts == ["a"]
    await link.unbind(0.05)
    assert len(esme.losses) == 1


async def test_s16_lying_length_is_nacked_and_the_link_closed(carrier: RawCarrier) -> None:
    esme, _ = await bound(carrier)
    carrier.write(bytes.fromhex("80000009000000000000000100"))
    assert await carrier.next() == GenericNack(command_status=2)
    assert await carrier.at_end()
    await until(lambda: esme.losses)
    assert esme.losses == [([], "command_length is out of bounds")]


async def test_answers_wait_for_whoever_gives_them(carrier: RawCarrier) -> None:
    esme, link = await bound(carrier, auto=False)
    for sequence in (5, 6):
        carrier.write(encode(DeliverSm(short_message=b"id", sequence_number=sequence)))
    await until(lambda: len(esme.requests) == 2)
    link.answer(esme.requests[1])
    link.answer(esme.requests[0], 0x64)
    second, first = await carrier.next(), await carrier.next()
    assert (second.sequence_number, second.command_status) == (6, 0)
    assert (first.sequence_number, first.command_status) == (5, 0x64)
    link.close()
    link.answer(esme.requests[0])


async def test_a_peer_that_asks_and_never_reads_is_not_read_either(carrier: RawCarrier) -> None:
    """Memory stays bounded: responses that the socket does not take stop the reading."""
    _, link = await bound(carrier, LinkSettings(10, 60, 60, 120))
    assert carrier.writer is not None
    carrier.writer.transport.pause_reading()
    probes = encode_bare(0x15, 0, 1) * 4096
    sent = 0
    loop = asyncio.get_running_loop()
    quiet_since = loop.time()
    while loop.time() - quiet_since < 0.3 and sent < 200 * 1024 * 1024:
        if carrier.writer.transport.get_write_buffer_size() < 1024 * 1024:
            carrier.write(probes)
            sent += len(probes)
            quiet_since = loop.time()
        await asyncio.sleep(0)
    assert sent < 100 * 1024 * 1024, "the peer was stopped by its own socket"
    assert link._session.queued_octets < 1024 * 1024
    link.close()


async def test_a_handler_that_fails_does_not_tear_the_link(simulator: Simulator) -> None:
    class Failing(Esme):
        def answered(self, token: object, response: object, late: bool) -> None:
            super().answered(token, response, late)
            raise RuntimeError("handler fault")

    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
    esme = Failing()
    link = await esme.bind(simulator.port)
    for token in range(5):
        esme.submit(token, registered_delivery=0)
    await until(lambda: len(esme.answers) == 5)
    assert link.bound
    assert reported == ["smpp link handler failed"] * 5
    await link.unbind(1.0)


def _certificate(directory: Path, name: x509.GeneralName) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "smsc")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, secret = directory / "cert.pem", directory / "key.pem"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return pem, secret


@pytest.mark.parametrize(
    ("name", "trusted"),
    [(x509.IPAddress(ipaddress.ip_address("127.0.0.1")), True), (x509.DNSName("elsewhere.example"), False)],
)
async def test_tls_checks_the_host(tmp_path: Path, name: x509.GeneralName, trusted: bool) -> None:
    pem, secret = _certificate(tmp_path, name)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(pem, secret)
    mc = Esme()

    def attach(connection: Connection) -> Esme:
        mc.link = connection
        return mc

    server = await serve("127.0.0.1", 0, tls=theirs, settings=SETTINGS, attach=attach)
    port = server.sockets[0].getsockname()[1]
    ours = ssl.create_default_context(cafile=str(pem))
    esme = Esme()
    if trusted:
        link = await connect("127.0.0.1", port, tls=ours, settings=SETTINGS, handler=esme)
        binding = asyncio.create_task(link.bind("transmitter", "acme", "pw"))
        await until(lambda: mc.requests)
        assert mc.link is not None
        mc.link.answer(mc.requests[0])
        await binding
        assert link.bound
        await link.unbind(1.0)
    else:
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect("127.0.0.1", port, tls=ours, settings=SETTINGS, handler=esme)
        assert esme.losses == []
    server.close()
