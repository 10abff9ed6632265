"""Kannel for the bench: bearerbox and smsbox with a spool store, the receipt map in a Redis of the run."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from urllib.parse import quote

from loadtests.peers.loads import Load
from loadtests.peers.processes import Processes
from loadtests.world import free_port

BEARERBOX, SMSBOX = "/usr/sbin/bearerbox", "/usr/sbin/smsbox"

_CORE = """\
group = core
admin-port = {admin}
admin-interface = 127.0.0.1
admin-password = bench
status-password = bench
smsbox-port = {smsbox}
smsbox-interface = 127.0.0.1
box-allow-ip = 127.0.0.1
log-file = {home}/bearerbox-own.log
log-level = 3
store-type = spool
store-location = {home}/spool
{dlr}
group = smsc
smsc = smpp
smsc-id = carrier
host = 127.0.0.1
port = {carrier}
transceiver-mode = true
smsc-username = load
smsc-password = secret
system-type = ""
interface-version = 34
max-pending-submits = {window}
reconnect-delay = 1

group = smsbox
bearerbox-host = 127.0.0.1
sendsms-port = {door}
sendsms-interface = 127.0.0.1
log-file = {home}/smsbox-own.log
log-level = 3

group = sendsms-user
username = bench
password = bench
max-messages = 1

group = sms-service
keyword = default
text = "none"
max-messages = 0
"""

_MAP = """
group = redis-connection
id = map
host = 127.0.0.1
port = {redis}
database = 0
max-connections = 4

group = dlr-db
id = map
table = dlr
field-smsc = smsc
field-timestamp = ts
field-source = source
field-destination = destination
field-service = service
field-url = url
field-mask = mask
field-boxc-id = boxc
field-status = status
"""


class Kannel:
    """One Kannel of a run."""

    name = "Kannel"
    tenants_max = 1
    batches = False

    def __init__(self, home: Path, processes: Processes) -> None:
        self._home, self._processes = home, processes
        self._door = free_port()
        self._names: list[str] = []
        self._callback = ""

    @staticmethod
    def why_absent() -> str:
        """Empty where it can be run."""
        if not Path(BEARERBOX).exists():
            return "Kannel is not here: loadtests/peers/install.sh"
        return "" if shutil.which("redis-server") else "redis-server is not here: loadtests/peers/install.sh"

    def start(self, load: Load, carrier_port: int, callback_url: str, callbacks: int) -> None:
        """Brings it up for a load; two callbacks per message where asked: the carrier's answer, then the receipt."""
        (self._home / "spool").mkdir()
        ports = {"admin": free_port(), "smsbox": free_port(), "redis": free_port()}
        dlr = "dlr-storage = redis\n" if load.receipts else ""
        text = _CORE.format(
            **ports, home=self._home, carrier=carrier_port, window=load.window, door=self._door, dlr=dlr
        )
        path = self._home / "kannel.conf"
        path.write_text(text + (_MAP.format(**ports) if load.receipts else ""))
        self._names = ["bearerbox", "smsbox"]
        if load.receipts:
            words = ["redis-server", "--port", str(ports["redis"]), "--bind", "127.0.0.1", "--save", ""]
            self._processes.start("redis", words, port=ports["redis"])
            self._names.append("redis")
            # 1 delivered, 2 failed, 8 taken by the carrier.
            self._callback = (
                f"&dlr-mask={3 if callbacks == 1 else 11}&dlr-url={quote(callback_url + '?state=%d', safe='')}"
            )
        self._processes.start("bearerbox", [BEARERBOX, "-v", "4", str(path)], port=ports["smsbox"])
        self._processes.start("smsbox", [SMSBOX, "-v", "4", str(path)], port=self._door)
        time.sleep(1.5)

    def door(self, traffic_class: str) -> list[str]:
        """How the client sends one message of a class; codes carry the highest priority that there is."""
        hint = "&priority=3" if traffic_class == "otp" else ""
        path = (
            f"/cgi-bin/sendsms?username=bench&password=bench&from=60070&to={{to}}&text={{text}}{hint}{self._callback}"
        )
        return ["--port", str(self._door), "--path", path, "--accepted", "0: Accepted"]

    def pids(self) -> list[int]:
        """All that counts as the gateway."""
        return self._processes.pids(*self._names)

    def cpu_s_by_part(self) -> dict[str, float]:
        """Not asked of it."""
        return {}

    def stop(self) -> None:
        """Ends it."""
        self._processes.stop(*reversed(self._names))
