"""smpplib's client, which is not ours, against the simulator."""

from __future__ import annotations

import asyncio
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
import smpplib.client
import smpplib.consts

from smpp.simulator import Simulator, SimulatorSettings
from tests.integration.smpp.authority import Authority


def _converse(port: int, seen: dict[str, Any], tls: ssl.SSLContext | None) -> None:
    client = smpplib.client.Client("127.0.0.1", port, timeout=5, allow_unknown_opt_params=True, ssl_context=tls)
    client.connect()
    client.bind_transceiver(system_id="acme", password="pw")
    client.set_message_sent_handler(lambda pdu: seen.update(message_id=pdu.message_id))

    def receipt(pdu: Any) -> int:
        seen.update(receipt=pdu.short_message, receipted=pdu.receipted_message_id, state=pdu.message_state)
        return 0

    client.set_message_received_handler(receipt)
    client.send_message(
        source_addr="ACME",
        source_addr_ton=smpplib.consts.SMPP_TON_ALNUM,
        destination_addr="447700900123",
        short_message=b"Hi",
        registered_delivery=1,
    )
    while "receipt" not in seen or "message_id" not in seen:
        client.read_once()
    client.unbind()
    client.disconnect()


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
async def test_smpplib_binds_submits_and_reads_the_receipt(encrypted: bool, tmp_path: Path) -> None:
    settings = SimulatorSettings(port=0, receipt_delay_ms=20)
    tls = None
    if encrypted:
        authority = Authority(tmp_path)
        pem, key = map(str, authority.certificate("server"))
        settings = SimulatorSettings(port=0, receipt_delay_ms=20, tls_certificate=pem, tls_key=key)
        tls = ssl.create_default_context(cafile=str(authority.pem))
        tls.check_hostname = False  # smpplib gives no server_hostname; the chain is checked all the same
    simulator = await Simulator(settings).start()
    seen: dict[str, Any] = {}
    peer = threading.Thread(target=_converse, args=(simulator.port, seen, tls), daemon=True)
    peer.start()
    await asyncio.wait_for(asyncio.to_thread(peer.join), 20)
    await simulator.stop()
    message_id = seen["message_id"].rstrip(b"\0")
    assert seen["receipt"].startswith(b"id:" + message_id + b" sub:001 dlvrd:001 ")
    assert seen["receipted"].rstrip(b"\0") == message_id
    assert seen["state"] == 2
    assert simulator.counters["receipts_taken"] == 1
