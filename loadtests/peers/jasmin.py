"""Jasmin for the bench: jasmind, dlrlookupd and dlrd with a RabbitMQ and a Redis of the run.

Version 0.11.1 as it comes reads an attribute that a message of one part does not have, so that no receipt can be
matched; the bench runs a copy with that one word put right, else its full job would have no callbacks at all.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from loadtests.peers.loads import Load
from loadtests.peers.processes import NotStarted, Processes
from loadtests.peers.tools import PLACE
from loadtests.world import free_port

VENV = PLACE / "jasmin"
_WRONG, _RIGHT = "_pdu.response.", "r.response."
_PROMPT = b"jcli : "

_CONFIG = """\
[smpp-server]
bind = 127.0.0.1
port = {smpp_server}
[smpp-server-pb]
bind = 127.0.0.1
port = {server_pb}
[smpp-server-pb-client]
host = 127.0.0.1
port = {server_pb}
[client-management]
bind = 127.0.0.1
port = {management}
[router]
bind = 127.0.0.1
port = {router}
[http-api]
bind = 127.0.0.1
port = {door}
[jcli]
bind = 127.0.0.1
port = {jcli}
authentication = False
[amqp-broker]
host = 127.0.0.1
port = {amqp}
[redis-client]
host = 127.0.0.1
port = {redis}
"""


def _rabbit_home() -> Path | None:
    found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin"))
    return found[-1] if found else None


class Jasmin:
    """One Jasmin of a run."""

    name = "Jasmin"
    tenants_max = 1
    batches = False

    def __init__(self, home: Path, processes: Processes) -> None:
        self._home, self._processes = home, processes
        names = ("smpp_server", "server_pb", "management", "router", "door", "jcli", "amqp", "redis", "dist", "epmd")
        self._ports = {name: free_port() for name in names}
        self._callback = ""

    @staticmethod
    def why_absent() -> str:
        """Empty where it can be run."""
        if not (VENV / "bin/jasmind.py").exists():
            return "Jasmin is not here: loadtests/peers/install.sh"
        missing = "RabbitMQ" if _rabbit_home() is None else "" if shutil.which("redis-server") else "redis-server"
        return f"{missing} is not here: loadtests/peers/install.sh" if missing else ""

    def start(self, load: Load, carrier_port: int, callback_url: str, callbacks: int) -> None:
        """Brings it up for a load; two callbacks per message where asked: the carrier's answer, then the receipt."""
        if load.receipts:
            level = 2 if callbacks == 1 else 3
            url = quote(callback_url, safe="")
            self._callback = f"&dlr=yes&dlr-level={level}&dlr-method=GET&dlr-url={url}"
        environment = self._write()
        ports = self._ports
        words = [
            "redis-server",
            "--port",
            str(ports["redis"]),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "yes",
        ]
        self._processes.start("redis", words, port=ports["redis"])
        self._start_rabbit()
        (Path(tempfile.gettempdir()) / "jasmind.lock").unlink(missing_ok=True)
        python = str(VENV / "bin/python")
        words = [python, str(VENV / "bin/jasmind.py"), "--username", "bench", "--password", "bench"]
        self._processes.start("jasmind", words, port=ports["door"], environment=environment)
        self._configure(carrier_port)
        for name in ("dlrlookupd", "dlrd"):
            self._processes.start(name, [python, str(VENV / f"bin/{name}.py")], environment=environment)
        time.sleep(3)

    def _write(self) -> dict[str, str]:
        """Its directories and files; the environment that names them."""
        home = self._home
        for name in ("etc/store", "etc/resource", "log", "rabbit", "copy"):
            (home / name).mkdir(parents=True)
        for name in ("jasmin.cfg", "dlr.cfg", "dlrlookupd.cfg"):
            (home / "etc" / name).write_text(_CONFIG.format(**self._ports))
        packages = next(VENV.glob("lib/python3*/site-packages"))
        protocol = packages / "txamqp/specs/standard/amqp0-9-1.stripped.xml"
        shutil.copy(protocol, home / "etc/resource/amqp0-9-1.xml")
        shutil.copytree(packages / "jasmin", home / "copy/jasmin")
        listeners = home / "copy/jasmin/managers/listeners.py"
        listeners.write_text(listeners.read_text().replace(_WRONG, _RIGHT))
        return {
            "ROOT_PATH": str(home),
            "CONFIG_PATH": str(home / "etc"),
            "LOG_PATH": str(home / "log"),
            "RESOURCE_PATH": str(home / "etc/resource"),
            "STORE_PATH": str(home / "etc/store"),
            "HOME": str(home),
            "PYTHONPATH": str(home / "copy"),
        }

    def _start_rabbit(self) -> None:
        ports, home, programs = self._ports, self._home, _rabbit_home()
        (home / "plugins").write_text("[].\n")
        settings = {
            "HOME": str(home),
            "RABBITMQ_NODENAME": f"bench{ports['amqp']}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(ports["amqp"]),
            "RABBITMQ_DIST_PORT": str(ports["dist"]),
            "RABBITMQ_MNESIA_BASE": str(home / "rabbit"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_PID_FILE": str(home / "rabbit.pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(home / "none"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_PORT": str(ports["epmd"]),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
        words = [str(programs / "rabbitmq-server")] if programs else []
        self._processes.start("rabbitmq", words, port=ports["amqp"], environment=settings, within_s=180)
        time.sleep(2)

    def _configure(self, carrier_port: int) -> None:
        """Connector, account and route, through its console."""
        with Console(self._ports["jcli"]) as console:
            connector = [
                *("cid carrier", "host 127.0.0.1", f"port {carrier_port}", "username load", "password secret"),
                *("submit_throughput 0", "con_fail_delay 1", "con_loss_delay 1", "requeue_delay 1"),
            ]
            console.fill("smppccm -a", connector)
            console.ask("smppccm -1 carrier")
            console.fill("group -a", ["gid bench"])
            console.fill("user -a", ["uid bench", "gid bench", "username bench", "password bench"])
            console.fill("mtrouter -a", ["type DefaultRoute", "connector smppc(carrier)", "rate 0.0"])
            console.ask("persist")

    def door(self, traffic_class: str) -> list[str]:
        """How the client sends one message of a class; codes carry the highest priority that there is."""
        hint = "&priority=3" if traffic_class == "otp" else ""
        path = f"/send?username=bench&password=bench&from=60070&to={{to}}&content={{text}}{hint}{self._callback}"
        return ["--port", str(self._ports["door"]), "--path", path, "--accepted", "Success"]

    def pids(self) -> list[int]:
        """All that counts as the gateway."""
        return self._processes.pids("redis", "rabbitmq", "jasmind", "dlrlookupd", "dlrd")

    def cpu_s_by_part(self) -> dict[str, float]:
        """Not asked of it."""
        return {}

    def stop(self) -> None:
        """Ends it, and the port mapper that its broker has started."""
        self._processes.stop("dlrd", "dlrlookupd", "jasmind", "rabbitmq", "redis")
        subprocess.run(["epmd", "-port", str(self._ports["epmd"]), "-kill"], capture_output=True, check=False)


class Console:
    """Jasmin's own console: one line, one prompt back."""

    def __init__(self, port: int) -> None:
        self._port = port

    def __enter__(self) -> Console:
        end_mono = time.monotonic() + 30
        while True:
            try:
                self._socket = socket.create_connection(("127.0.0.1", self._port), 5)
                break
            except OSError:
                if time.monotonic() > end_mono:
                    raise
                time.sleep(0.2)
        self._read(b"Session ref")  # it greets, and prompts only once it is spoken to
        self.ask("")
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _read(self, prompt: bytes) -> str:
        held, end_mono = b"", time.monotonic() + 15
        self._socket.settimeout(0.3)
        while time.monotonic() < end_mono:
            try:
                octets = self._socket.recv(4096)
            except TimeoutError:
                if prompt.strip() in held:
                    return held.decode(errors="replace")
                continue
            if not octets:
                break
            held += octets
        raise NotStarted(f"Jasmin's console did not answer: {held.decode(errors='replace')[-200:]}")

    def ask(self, line: str, prompt: bytes = _PROMPT) -> str:
        """One command and what it says."""
        self._socket.sendall(line.encode() + b"\r\n")
        return self._read(prompt)

    def fill(self, first: str, lines: list[str]) -> str:
        """A command that asks for fields; raises NotStarted where it does not take them."""
        self.ask(first, b"> ")
        for line in lines:
            self.ask(line, b"> ")
        answer = self.ask("ok")
        if "Successfully" not in answer:
            raise NotStarted(f"Jasmin did not take {first}: {answer.strip()[-200:]}")
        return answer
