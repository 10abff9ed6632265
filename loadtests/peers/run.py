"""One gateway under one load: started, warmed, measured, ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from loadtests.peers.jasmin import Jasmin
from loadtests.peers.kannel import Kannel
from loadtests.peers.loads import Came, Load
from loadtests.peers.processes import NotStarted, Processes, busy_s, cpu_s, memory_mb
from loadtests.peers.sluicegate import Sluicegate
from loadtests.peers.tools import Tools, await_count, count_anew, loaded, told
from loadtests.world import free_port

GATEWAYS: Final = (Sluicegate, Kannel, Jasmin)
CONNECTIONS: Final = 50
RECEIPT_MS: Final = 200
OTP_SHARE: Final = 0.05
OTP_PER_S: Final = 20.0
_STARTS = 2
_WARM_COUNT = 200
_WARM_FIRST = 50_000_000
_OTP_FIRST = 60_000_000
_IDLE_S = 8.0
_MARKETING_ROOM_S = 600.0


class Gateway(Protocol):
    """What the bench needs of a gateway; made with a directory and the run's processes."""

    name: str
    tenants_max: int
    batches: bool

    def start(self, load: Load, carrier_port: int, callback_url: str, callbacks: int) -> None:
        """Brings it up for a load."""
        ...

    def door(self, traffic_class: str) -> list[str]:
        """How the client sends one message of a class."""
        ...

    def pids(self) -> list[int]:
        """All that counts as the gateway, its stores included."""
        ...

    def cpu_s_by_part(self) -> dict[str, float]:
        """CPU seconds so far of each part that can be told from the others; empty where none can."""
        ...

    def stop(self) -> None:
        """Ends it."""
        ...


class Bench:
    """How the runs of one bench are made."""

    def __init__(self, tools: Tools, *, callbacks: int = 1, drain_s: float = 60.0, load_s: float = 60.0) -> None:
        """`callbacks` per message; `drain_s`: the longest wait for what was accepted; `load_s`: longest load."""
        self._tools = tools
        self._callbacks = callbacks
        self._drain_s, self._load_s = drain_s, load_s

    def play(
        self, kind: type[Sluicegate] | type[Kannel] | type[Jasmin], load: Load, home: Path, rate_per_s: float
    ) -> Came:
        """One run; `rate_per_s` is what an overload is a multiple of. What cannot be run says why."""
        absent = kind.why_absent() or _unfit(kind, load)
        if absent:
            return Came(kind.name, load.name, why_not=absent)
        for n in range(1, _STARTS + 1):
            try:
                return self._play(kind, load, home / f"start-{n}", rate_per_s)
            except (NotStarted, TimeoutError) as fault:
                why = str(fault)  # a port may have been taken between the choice and the start
        return Came(kind.name, load.name, why_not=why)

    def _play(
        self, kind: type[Sluicegate] | type[Kannel] | type[Jasmin], load: Load, home: Path, rate_per_s: float
    ) -> Came:
        home.mkdir(parents=True)
        home.parent.chmod(0o755)
        home.chmod(0o755)
        processes = Processes(home)
        gateway = kind(home, processes)
        try:
            carrier_port, sink_port = free_port(), free_port()
            self._start_tools(processes, load, carrier_port, sink_port)
            gateway.start(load, carrier_port, f"http://127.0.0.1:{sink_port}/hooks", self._callbacks)
            return self._measure(gateway, processes, load, rate_per_s)
        finally:
            with suppress(KeyError):
                gateway.stop()
            processes.stop()

    def _start_tools(self, processes: Processes, load: Load, carrier_port: int, sink_port: int) -> None:
        receipts = ["--receipt-ms", str(RECEIPT_MS)] if load.receipts else []
        options = ["--port", str(carrier_port), "--answer-ms", str(load.answer_ms), *receipts]
        processes.start("carrier", self._tools.words("carrier", *options), port=carrier_port)
        words = self._tools.words("sink", "--port", str(sink_port), "--text", "ACK/Jasmin")
        processes.start("sink", words, port=sink_port)

    def _measure(self, gateway: Gateway, processes: Processes, load: Load, rate_per_s: float) -> Came:
        def carried() -> int:
            return int(told(processes, "carrier").get("answered", 0))

        def called() -> int:
            return int(told(processes, "sink").get("callbacks", 0))

        warm = _words(gateway, "transactional", load.batch) + _count(_WARM_COUNT, _WARM_FIRST)
        warmed = loaded(self._tools.load(warm))["accepted"]
        await_count(carried, warmed, idle_s=_IDLE_S, limit_s=30)
        if load.receipts:
            await_count(called, warmed * self._callbacks, idle_s=_IDLE_S, limit_s=30)
        if load.backlog:
            self._fill(gateway, load)
        called_before = called()
        count_anew(processes, "carrier")
        cpu_before, busy_before, began_mono = cpu_s(gateway.pids()), busy_s(), time.monotonic()
        parts_before = gateway.cpu_s_by_part()
        tools_before = cpu_s(processes.pids("carrier", "sink"))
        clients = [self._tools.load(words) for words in self._clients(gateway, load, rate_per_s)]
        found = [loaded(client) for client in clients]
        accepted = sum(one["accepted"] for one in found)
        memory = memory_mb(gateway.pids())
        wanted = accepted if not load.backlog else 1 << 40
        await_count(carried, wanted, idle_s=_IDLE_S, limit_s=5.0 if load.backlog else self._drain_s)
        if load.receipts:
            await_count(
                lambda: called() - called_before, accepted * self._callbacks, idle_s=_IDLE_S, limit_s=self._drain_s
            )
        took_s = time.monotonic() - began_mono
        used_s = cpu_s(gateway.pids()) - cpu_before
        by_part = {part: s - parts_before[part] for part, s in gateway.cpu_s_by_part().items()}
        tools_s = cpu_s(processes.pids("carrier", "sink")) - tools_before
        others = (busy_s() - busy_before - used_s - tools_s) / took_s
        gateway.stop()
        processes.stop("carrier")
        used = _Used(used_s, by_part, memory, others)
        return _came(gateway, load, found, told(processes, "carrier"), called() - called_before, used)

    def _fill(self, gateway: Gateway, load: Load) -> None:
        """The backlog that waits before the measured part begins."""
        batch = 500 if gateway.batches else 1
        words = _words(gateway, "marketing", batch) + _count(load.backlog, 0)
        loaded(
            self._tools.load([*words, "--connections", "4" if batch > 1 else "50", "--seconds", str(_MARKETING_ROOM_S)])
        )

    def _clients(self, gateway: Gateway, load: Load, rate_per_s: float) -> list[list[str]]:
        """The options of each client of the measured part."""
        if load.backlog:
            return [_paced(gateway, "otp", OTP_PER_S, load.seconds)]
        if load.overload:
            offered = load.overload * (rate_per_s or load.capacity_per_s)
            shares = {"otp": OTP_SHARE, "marketing": 1 - OTP_SHARE}
            return [_paced(gateway, name, offered * share, load.seconds) for name, share in shares.items()]
        words = _words(gateway, "transactional", load.batch)
        return [[*words, *_count(load.count, 0), "--connections", str(CONNECTIONS), "--seconds", str(self._load_s)]]


def _unfit(kind: type[Sluicegate] | type[Kannel] | type[Jasmin], load: Load) -> str:
    if load.batch > 1 and not kind.batches:
        return "has no call for many texts"
    return "one account here: nothing to share between" if load.tenants > kind.tenants_max else ""


def _words(gateway: Gateway, traffic_class: str, batch: int) -> list[str]:
    if isinstance(gateway, Sluicegate):
        return gateway.door(traffic_class, batch)
    return [*gateway.door(traffic_class), "--class", traffic_class]


def _count(count: int, first: int) -> list[str]:
    return ["--count", str(count), "--first", str(first)]


def _paced(gateway: Gateway, traffic_class: str, per_s: float, seconds: float) -> list[str]:
    first = _OTP_FIRST if traffic_class == "otp" else 0
    words = [*_words(gateway, traffic_class, 1), *_count(max(1, int(per_s * seconds)), first)]
    return [*words, "--rate", f"{per_s:.3f}", "--connections", str(CONNECTIONS), "--seconds", str(seconds + 10)]


@dataclass(frozen=True, slots=True)
class _Used:
    """What the measured part took: CPU seconds, MiB, cores that others used."""

    cpu_s: float
    cpu_s_by_part: dict[str, float]
    memory_mb: float
    others_cores: float


def _came(
    gateway: Gateway, load: Load, found: Sequence[dict[str, Any]], carrier: dict[str, Any], callbacks: int, used: _Used
) -> Came:
    accepted = sum(one["accepted"] for one in found)
    http = max((one["http_ms"] for one in found if one["http_ms"]), key=lambda ms: ms["count"], default=None)
    waits = {name: ms for name, ms in carrier.get("wait_ms", {}).items() if ms}
    submits = int(carrier.get("submits", 0))
    codes = int(waits.get("otp", {}).get("count", 0))
    return Came(
        gateway.name,
        load.name,
        accepted=accepted,
        refused=sum(one["asked"] for one in found) - accepted,
        accepted_per_s=sum(one["accepted_per_s"] for one in found),
        carrier_per_s=carrier.get("per_s", 0.0),
        cpu_s_per_1k=used.cpu_s * 1000 / max(1, accepted, submits),
        cpu_s_per_1k_by_part={
            part: round(s * 1000 / max(1, accepted, submits), 3) for part, s in used.cpu_s_by_part.items()
        },
        http_ms_p50=http and http["p50"],
        http_ms_p99=http and http["p99"],
        waits_ms=waits,
        window_max=carrier.get("window_max", 0),
        memory_mb=used.memory_mb,
        callbacks=callbacks,
        missing=accepted - codes if load.backlog else max(0, accepted - submits),
        others_cores=used.others_cores,
        answers=[one["answers"] for one in found],
    )
