"""docs/carrier-simulator.md, first half: answers, silence, cuts, bad PDUs, binds."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from pathlib import Path

import pytest

from smpp.link import BindRefused, LinkLost, LinkSettings, connect
from smpp.protocol.pdu import BindResp, CancelSm, DataSm, DataSmResp, Outbind, QuerySm, QuerySmResp
from smpp.simulator import Simulator
from smpp.simulator.script import load_script
from tests.integration.smpp.authority import Authority
from tests.integration.smpp.page import EXAMPLES, example, of, stats
from tests.integration.smpp.peers import Esme, until

WIDE = LinkSettings(window=100, enquire_link_s=15, response_timeout_s=10, inactivity_s=60)
HASTY = LinkSettings(window=10, enquire_link_s=0.2, response_timeout_s=0.3, inactivity_s=60)


def test_every_example_is_run_and_every_setting_is_explained() -> None:
    run = set()
    for path in Path(__file__).parent.glob("test_page_*.py"):
        run |= set(re.findall(r'(?:example|receipt_of)\("(.+?)"', path.read_text(encoding="utf-8")))
    assert run == set(EXAMPLES)


@pytest.mark.parametrize("title", EXAMPLES)
def test_every_example_is_valid(title: str) -> None:
    load_script(EXAMPLES[title])


async def test_slow_answers() -> None:
    async with example("Slow answers, out of order") as carrier:
        esme = Esme()
        await esme.bind(carrier.port, WIDE)
        for token in range(30):
            esme.submit(token)
        await until(lambda: len(esme.answers) == 30)
        order = [token for token, _, _ in esme.answers]
        assert order != sorted(order), "answers overtake each other"
        assert sorted(order) == list(range(30))


async def test_throttling() -> None:
    async with example("Too fast for this carrier") as carrier:
        esme = Esme()
        await esme.bind(carrier.port, WIDE)
        for token in range(40):
            esme.submit(token)
        await until(lambda: len(esme.answers) == 40)
        answers = list(esme.results().values())
        assert answers[:5] == [0] * 5, "a tenth may burst"
        assert answers.count(0x58) >= 20
        assert carrier.counters["throttled"] == answers.count(0x58)


async def test_a_fate_by_number() -> None:
    async with example("Numbers with a fate of their own") as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        await esme.submit_all(["4477000011", "4477000014", "4477000045", "4477000099", "4477000001"])
        esme.submit("source", source_addr="Forbidden1")
        await until(lambda: len(esme.answers) == 6)
        assert esme.results() == {
            "4477000011": 0x0B, "4477000014": 0x14, "4477000045": 0, "4477000099": 0, "4477000001": 0, "source": 0x0A,
        }  # fmt: skip
        await until(lambda: len(esme.requests) == 2)
        await asyncio.sleep(0.05)
        assert stats(esme) == ["UNDELIV", "DELIVRD"], "no receipt for *0099"


async def test_refused_twice() -> None:
    async with example("Refused twice, then taken") as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        for token in range(4):
            esme.submit(token)
        await until(lambda: len(esme.answers) == 4)
        assert list(esme.results().values()) == [0x58, 0x58, 0, 0]


async def test_never_answered() -> None:
    async with example("Some numbers are never answered") as carrier:
        esme = Esme()
        await esme.bind(carrier.port, HASTY)
        await esme.submit_all(["447700900007", "447700900008"])
        await until(lambda: esme.timeouts == ["447700900007"])
        assert list(esme.results()) == ["447700900008"]
        await until(lambda: len(esme.requests) == 2)
        assert esme.link is not None and esme.link.bound, "a lone silence does not end the link"


async def test_a_narrow_window() -> None:
    async with example("A narrow window") as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        for token in range(5):
            esme.submit(token)
        await until(lambda: len(esme.answers) == 5)
        assert [token for token, _, _ in esme.answers[:2]] == [3, 4], "the fourth and fifth are refused at once"
        assert esme.results() == {3: 0x58, 4: 0x58, 0: 0, 1: 0, 2: 0}
        esme.submit("next")
        await until(lambda: len(esme.answers) == 6)
        assert esme.results()["next"] == 0, "answers free the window"
        carrier.change(window_status=0)
        for token in range(4):
            esme.submit(("silent", token))
        await until(lambda: len(esme.answers) == 9)
        await asyncio.sleep(0.3)
        assert esme.link is not None and esme.link.unanswered == 1


async def test_queries_and_cancels() -> None:
    async with example("Queries and cancels") as carrier:
        esme = Esme()
        link = await esme.bind(carrier.port)
        esme.submit("a")
        esme.submit("b")
        await until(lambda: len(esme.answers) == 2)
        first, second = (response.message_id for _, response, _ in esme.answers)
        link.submit(QuerySm(message_id=first), "query")
        link.submit(CancelSm(message_id=second), "cancel")
        link.submit(CancelSm(message_id="unknown"), "cancel unknown")
        link.submit(QuerySm(message_id="unknown"), "query unknown")
        await until(lambda: len(esme.answers) == 6)
        results = esme.results()
        assert (results["query"], results["cancel"], results["cancel unknown"], results["query unknown"]) == (
            0, 0, 0x11, 0x67,
        )  # fmt: skip
        queried = next(response for token, response, _ in esme.answers if token == "query")
        assert isinstance(queried, QuerySmResp)
        assert (queried.message_state, queried.final_date) == (1, "")
        await until(lambda: sorted(stats(esme)) == ["DELETED", "DELIVRD"])
        link.submit(QuerySm(message_id=first), "again")
        link.submit(CancelSm(message_id=first), "too late")
        await until(lambda: len(esme.answers) == 8)
        again = esme.answers[6][1]
        assert again.message_state == 2 and re.fullmatch(r"\d{12}000\+", again.final_date)
        assert esme.results()["too late"] == 0x11


async def test_data_sm() -> None:
    async with example("data_sm") as carrier:
        esme = Esme()
        link = await esme.bind(carrier.port)
        link.submit(DataSm(destination_addr="447700900123", registered_delivery=1, tlvs=((0x0424, b"Hi"),)), "data")
        await until(lambda: esme.answers and esme.requests)
        answer = esme.answers[0][1]
        assert isinstance(answer, DataSmResp) and answer.message_id
        (receipt,) = of(esme, DataSm)
        assert (receipt.tlv(0x0424) or b"").startswith(f"id:{answer.message_id} ".encode())
        await until(lambda: carrier.counters["receipts_taken"] == 1)


# -- silence, cuts, slow reading ---------------------------------------------------------------------------------------


async def test_black_hole() -> None:
    async with example("A link that dies without a word") as carrier:
        esme, patient = Esme(), Esme()
        await esme.bind(carrier.port, HASTY)
        await patient.bind(carrier.port)
        await until(lambda: carrier.settings.black_hole)
        patient.submit("a")
        await until(lambda: esme.losses)
        assert esme.losses[0][1] == "enquire_link unanswered"
        with pytest.raises((TimeoutError, LinkLost)):
            await Esme().bind(carrier.port, LinkSettings(10, 15, 1, 60, bind_timeout_s=0.2))
        assert patient.answers == [] and patient.losses == []
        await until(lambda: not carrier.settings.black_hole)
        await until(lambda: patient.answers)
        await Esme().bind(carrier.port)


async def test_cut_mid_answer() -> None:
    async with example("Cut in the middle of an answer") as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        for token in range(5):
            esme.submit(token, registered_delivery=0)
        await until(lambda: esme.losses)
        tokens, reason = esme.losses[0]
        assert [token for token, _, _ in esme.answers] == [0, 1], "the bind response was the first of three"
        assert [token for token, written in tokens if written] == [2, 3, 4]
        assert reason.startswith("connection")


async def test_cut_inside_the_bind_response() -> None:
    async with example("Cut inside the bind response") as carrier:
        with pytest.raises(LinkLost):
            await Esme().bind(carrier.port)


async def test_slow_reader() -> None:
    async with example("A carrier that reads slowly") as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        begun_mono = time.monotonic()
        for token in range(3):
            esme.submit(token)
            await until(lambda token=token: len(esme.answers) == token + 1)
        assert time.monotonic() - begun_mono > 0.15


async def test_maintenance() -> None:
    async with example("Maintenance") as carrier:
        esme = Esme()
        link = await esme.bind(carrier.port)
        esme.submit("a")
        await until(lambda: esme.losses)
        assert esme.losses == [([], "unbound")]
        assert not link.can_send
        await Esme().bind(carrier.port)


# -- bad PDUs ----------------------------------------------------------------------------------------------------------


async def test_doubled_answers() -> None:
    async with example("Every third answer comes twice") as carrier:
        esme = Esme()
        link = await esme.bind(carrier.port)
        for token in range(7):
            esme.submit(token, registered_delivery=0)
        await until(lambda: len(esme.answers) == 7)
        await until(lambda: link.counts["stray_response"] == 2)
        assert link.bound


async def test_lying_receipt() -> None:
    async with example("A receipt whose length lies") as carrier:
        esme = Esme()
        link = await esme.bind(carrier.port)
        esme.submit("a", registered_delivery=0)
        await until(lambda: esme.answers)
        assert link.counts["malformed"] == 1 and link.bound and esme.requests == []


async def test_stream_goes_wrong() -> None:
    async with example("The stream goes wrong") as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        for token in range(3):
            esme.submit(token, registered_delivery=0)
        await until(lambda: esme.losses)
        assert list(esme.results()) == [0]
        assert esme.losses == [([(1, True), (2, True)], "command_length is out of bounds")]


@pytest.mark.parametrize(
    ("kind", "answers", "ends"),
    [
        ("unknown_command", {"a": 0, "b": 0}, False),
        ("tlv_length", {"a": 0, "b": 0}, False),
        ("no_nul", {"a": 0, "b": 0}, False),
        ("stray_answer", {"a": 0, "b": 0}, False),
        ("wrong_answer", {"a": 0, "b": 0}, False),
        ("nack", {"a": 2, "b": 2}, False),
        ("bare_answer", {"a": 0, "b": 0}, False),
        ("error_with_body", {"a": 0x0B, "b": 0x0B}, False),
        ("nack_zero", {}, True),
        ("short_length", {}, True),
        ("garbage", {}, True),
    ],
)
async def test_each_kind_of_bad_pdu(kind: str, answers: dict[str, int], ends: bool) -> None:
    carrier = await Simulator(load_script(f"{{port: 0, bad_pdu: {kind}, receipts: false, seed: 1}}")).start()
    esme = Esme()
    await esme.bind(carrier.port)
    esme.submit("a")
    esme.submit("b")
    await until(lambda: esme.losses if ends else len(esme.answers) == 2)
    assert esme.results() == answers
    assert carrier.counters["bad_pdus"] >= 1
    await carrier.stop()


# -- binds -------------------------------------------------------------------------------------------------------------


async def test_two_refusals() -> None:
    async with example("Two refusals, then welcome") as carrier:
        for _ in range(2):
            with pytest.raises(BindRefused) as caught:
                await Esme().bind(carrier.port)
            assert caught.value.command_status == 0x0D
        await Esme().bind(carrier.port)


async def test_s20_the_old_session_is_still_there() -> None:
    async with example("The old session is still there") as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        esme.submit("a")
        esme.submit("b")
        await until(lambda: esme.losses)
        with pytest.raises(BindRefused) as caught:
            await Esme().bind(carrier.port)
        assert caught.value.command_status == 0x05
        await Esme().bind(carrier.port, system_id="other")
        await asyncio.sleep(1.5)
        link = await Esme().bind(carrier.port)
        await link.unbind(1.0)
        await Esme().bind(carrier.port)  # an unbind leaves nothing behind


async def test_accounts() -> None:
    async with example("Accounts") as carrier:
        for system_id, password, kind, status in [
            ("stranger", "x", "transceiver", 0x0F),
            ("acme", "wrong", "transceiver", 0x0E),
            ("acme", "secret12", "receiver", 0x0D),
        ]:
            link = await Esme().open(carrier.port)
            with pytest.raises(BindRefused) as caught:
                await link.bind(kind, system_id, password)
            assert caught.value.command_status == status
        two = [Esme(), Esme()]
        for esme in two:
            await (await esme.open(carrier.port)).bind("transceiver", "acme", "secret12")
        for token in range(6):
            two[0].submit(token)
        await until(lambda: len(two[0].requests) + len(two[1].requests) == 6)
        assert len(two[1].requests) == 3, "binds of an account share its receipts"


async def test_sc_interface_version_is_told_or_not() -> None:
    async with example("Accounts") as carrier:
        from smpp.protocol.pdu import BindTransceiver
        from smpp.simulator.doorkeeper import Doorkeeper

        response = Doorkeeper.response(carrier.settings, BindTransceiver(), 0)
        assert isinstance(response, BindResp) and response.tlvs == ()
        carrier.change(sc_interface_version=0x50)
        assert Doorkeeper.response(carrier.settings, BindTransceiver(), 0).tlvs == ((0x0210, b"\x50"),)


async def test_binds_that_are_slow_or_never_answered() -> None:
    carrier = await Simulator(load_script("{port: 0, bind_delay_ms: 150}")).start()
    begun_mono = time.monotonic()
    await Esme().bind(carrier.port)
    assert time.monotonic() - begun_mono >= 0.15
    carrier.change(bind_silent=True)
    with pytest.raises(TimeoutError):
        await Esme().bind(carrier.port, LinkSettings(10, 15, 1, 60, bind_timeout_s=0.2))
    await carrier.stop()


async def test_tls_with_client_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    servers, clients = Authority(tmp_path, "servers"), Authority(tmp_path, "clients")
    servers.certificate("server")
    pem, key = clients.certificate("esme")
    async with example("TLS") as carrier:
        ours = ssl.create_default_context(cafile=str(servers.pem))
        ours.load_cert_chain(pem, key)
        esme = Esme()
        link = await connect("127.0.0.1", carrier.port, tls=ours, settings=WIDE, handler=esme)
        esme.link = link
        await link.bind("transceiver", "acme", "pw")
        esme.submit("a")
        await until(lambda: esme.answers and esme.requests)
        await link.unbind(1.0)
        nobody = Esme()
        with pytest.raises((OSError, LinkLost)):
            bare = ssl.create_default_context(cafile=str(servers.pem))
            refused = await connect("127.0.0.1", carrier.port, tls=bare, settings=WIDE, handler=nobody)
            await refused.bind("transceiver", "acme", "pw")


async def test_outbind() -> None:
    async with example("An outbind for everybody") as carrier:
        esme = Esme()
        await esme.bind(carrier.port)
        (outbind,) = of(esme, Outbind)
        assert isinstance(outbind, Outbind) and outbind.system_id == "simulator"
