"""`sluicegate carrier-sim` as a process: its first line, its refusals, its commands, its end."""

from __future__ import annotations

import json
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

from tests.integration.smpp.peers import Esme, until

ROOT = Path(__file__).resolve().parents[3]


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gateway.cli", "carrier-sim", *words],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def port_of(process: subprocess.Popen[str]) -> int:
    """The port of the first line; the port is open by then."""
    line = line_of(reading(process.stdout))
    assert line.startswith("carrier simulator on 127.0.0.1:"), line
    port = int(line.split(":")[1].split(",")[0])
    with socket.create_connection(("127.0.0.1", port), 2):
        pass
    return port


def line_of(stream: IO[str]) -> str:
    """The next line, once it comes; a process that says nothing is no reason to wait for ever."""
    assert select.select([stream], [], [], 60)[0], "it says nothing"
    return stream.readline()


def reading(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def test_a_taken_port_is_told_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = start("--port", str(port))
        told, faults = process.communicate(timeout=60)
    assert process.returncode == 1
    assert told == "", "nothing says that it is on"
    assert faults == (f"sluicegate: the carrier simulator cannot start on 127.0.0.1:{port}: Address already in use\n")


def test_every_fault_of_a_script_at_once(tmp_path: Path) -> None:
    script = tmp_path / "carrier.yaml"
    script.write_text("anser_delay_ms: 5\nreceipts: 1\nrules: [{destination: '*', staus: 8}]\n")
    process = start("--script", str(script))
    told, faults = process.communicate(timeout=60)
    assert (process.returncode, told) == (1, "")
    for fault in (
        "anser_delay_ms: unknown setting, did you mean answer_delay_ms?",
        "receipts: must be true or false",
        "rules[0].staus: unknown setting, did you mean status?",
    ):
        assert fault in faults


def test_a_certificate_that_is_not_there(tmp_path: Path) -> None:
    script = tmp_path / "carrier.yaml"
    script.write_text(f"{{port: 0, tls_certificate: {tmp_path}/none.pem}}")
    process = start("--script", str(script))
    _, faults = process.communicate(timeout=60)
    assert process.returncode == 1
    assert faults.endswith("No such file or directory\n") and len(faults.splitlines()) == 1


async def test_commands_on_standard_input(tmp_path: Path) -> None:
    script = tmp_path / "carrier.yaml"
    script.write_text("{port: 0, commands: true, receipts: false}")
    process = start("--script", str(script))
    orders, answers = process.stdin, reading(process.stdout)
    assert orders is not None
    esme = Esme()
    await esme.bind(port_of(process))

    def order(line: str) -> dict[str, object]:
        orders.write(line + "\n")
        orders.flush()
        return dict(json.loads(line_of(answers)))

    assert order("{tell: true}")["bound"] == 1
    assert order("{do: inboud}") == {
        "fault": "do: must be one of inbound, backlog, alert, probe, bad_pdu, cut, unbind, did you mean inbound?"
    }
    order('{do: inbound, source: "447700900123", destination: "60070", text: STOP}')
    await until(lambda: esme.requests)
    order("{set: {error_ratio: 1, error_status: 0x14}}")
    esme.submit("a")
    await until(lambda: esme.results() == {"a": 0x14})
    orders.close()
    process.send_signal(signal.SIGTERM)
    await until(lambda: esme.losses)
    assert esme.losses == [([], "unbound")], "it unbinds as it ends"
    assert process.wait(10) == 0
    answers.close()
    reading(process.stderr).close()
