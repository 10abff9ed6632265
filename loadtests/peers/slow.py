"""Carrier, client and callback sink of the bench in Python, for machines without a C compiler.

    python -m loadtests.peers.slow carrier --port 2775 --answer-ms 20

They take the options of carrier.c, client.c and sink.c and write the same lines of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import re
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from loadtests.http_line import read_reply
from smpp.protocol.pdu import DataSm, SubmitSm
from smpp.simulator import Simulator, SimulatorSettings
from smpp.simulator.esme import Esme
from smpp.simulator.journal import text_prefix

_TICK_S = 0.2
_ANSWER_S = 30.0
_MARK: Final = re.compile(r"b\d+\.([a-z]+)\.(\d+) ")
_FIELD: Final = re.compile(r"\{([a-z]+)\}")
_TEXT: Final = "b{seq}.{name}.{us} of the bench, about as long as what a bank or a shop tells people every day"


def spread(waits_ms: Sequence[float]) -> dict[str, float] | None:
    """Count, median, 99th percentile and the longest."""
    if not waits_ms:
        return None
    ordered = sorted(waits_ms)
    at = {"p50": ordered[len(ordered) // 2], "p99": ordered[len(ordered) * 99 // 100], "max": ordered[-1]}
    return {"count": len(ordered), **{name: round(ms, 3) for name, ms in at.items()}}


class Carrier(Simulator):
    """The simulator, counting as carrier.c does."""

    def __init__(self, settings: SimulatorSettings) -> None:
        super().__init__(settings)
        self.count_anew()

    def count_anew(self) -> None:
        """Forgets what was counted."""
        self.counters.clear()
        self.waits_ms: dict[str, list[float]] = defaultdict(list)
        self.first_mono = self.last_mono = 0.0
        self.window_max = 0

    def take_submit(self, esme: Esme, request: SubmitSm | DataSm, pdu: SubmitSm) -> None:
        """Notes it, then treats it as ever."""
        self.last_mono = time.monotonic()
        self.first_mono = self.first_mono or self.last_mono
        self.window_max = max(self.window_max, esme.unanswered + 1)
        if found := _MARK.match(text_prefix(pdu, 60)):
            self.waits_ms[found[1]].append(time.time() * 1000 - int(found[2]) / 1000)
        super().take_submit(esme, request, pdu)

    def told(self, *, last: bool) -> dict[str, Any]:
        """One line of JSON."""
        submits, took_s = self.counters["submits"], self.last_mono - self.first_mono
        line: dict[str, Any] = {
            "submits": submits,
            "answered": submits - sum(esme.unanswered for esme in self.esmes),
            "per_s": round((submits - 1) / took_s, 1) if took_s > 0 else 0.0,
            "window_max": self.window_max,
            "receipts_sent": self.counters["receipts_sent"],
            "receipts_taken": self.counters["receipts_taken"],
        }
        return line | ({"wait_ms": {name: spread(ms) for name, ms in self.waits_ms.items()}} if last else {})


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def _until_ended(tell: Any) -> None:
    """Calls `tell(last)` now and then until SIGTERM, and once more."""
    ended, before = asyncio.Event(), None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    while not ended.is_set():
        now = tell(False)
        if now != before:
            _say(now)
        before = now
        try:
            await asyncio.wait_for(ended.wait(), _TICK_S)
        except TimeoutError:
            continue
    _say(tell(True))


async def carrier(asked: argparse.Namespace) -> None:
    """Until SIGTERM; SIGUSR1 counts anew."""
    settings = SimulatorSettings(
        port=asked.port,
        answer_delay_ms=asked.answer_ms,
        receipts=asked.receipt_ms >= 0,
        receipt_delay_ms=max(0.0, asked.receipt_ms),
    )
    one = Carrier(settings)
    await one.start()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, one.count_anew)
    await _until_ended(lambda last: one.told(last=last))
    await one.stop()


async def sink(asked: argparse.Namespace) -> None:
    """Until SIGTERM."""
    taken = itertools.count(1)
    count = 0
    text = asked.text.encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n\r\n".encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        try:
            while True:
                asking = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = re.search(r"\r\ncontent-length: *(\d+)", asking)
                await reader.readexactly(int(length[1]) if length else 0)
                count = next(taken)
                writer.write(head + text)
        except (OSError, EOFError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", asked.port)
    await _until_ended(lambda _: {"callbacks": count})
    server.close()


class Client:
    """One load, as client.c makes it."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        self._keys = Path(asked.keys).read_text().split() if asked.keys else [""]
        self._seqs = iter(range((asked.count + asked.batch - 1) // asked.batch))
        self.answers: Counter[int] = Counter()
        self.took_ms: list[float] = []
        self.accepted = self.begun = self.broken = 0
        self._start_mono = self._last_mono = time.monotonic()

    def _filled(self, template: str, seq: int, *, in_path: bool = False) -> str:
        def value(found: re.Match[str]) -> str:
            name = found[1]
            if name == "items":
                size = self._asked.batch
                return ",".join(self._filled(self._asked.item, seq * size + n) for n in range(size))
            text = _TEXT.format(seq=seq, name=self._asked.class_name, us=time.time_ns() // 1000)
            values = {
                "seq": str(seq),
                "to": f"4477{seq % 100_000_000:08d}",
                "class": self._asked.class_name,
                "key": self._keys[seq % len(self._keys)],
                "text": text.replace(" ", "+") if in_path else text,
            }
            return values[name]

        return _FIELD.sub(value, template)

    def _request(self, seq: int) -> bytes:
        asked = self._asked
        body = self._filled(asked.body, seq).encode() if asked.body else b""
        lines = [f"{'POST' if body else 'GET'} {self._filled(asked.path, seq, in_path=True)} HTTP/1.1"]
        lines += ["Host: 127.0.0.1", *(self._filled(header, seq) for header in asked.header)]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + body

    async def _work(self) -> None:
        stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        asked = self._asked
        for n in self._seqs:
            due_mono = self._start_mono + n / asked.rate if asked.rate else time.monotonic()
            await asyncio.sleep(max(0.0, due_mono - time.monotonic()))
            if time.monotonic() - self._start_mono > asked.seconds:
                break
            self.begun += 1
            try:
                async with asyncio.timeout(_ANSWER_S):
                    stream = stream or await asyncio.open_connection("127.0.0.1", asked.port)
                    stream[1].write(self._request(asked.first // asked.batch + n))
                    reply = await read_reply(stream[0])
            except (OSError, EOFError):
                self.broken += 1
                stream = None
                continue
            self._last_mono = time.monotonic()
            self.answers[reply.status] += 1
            if reply.status in (200, 202) and asked.accepted.encode() in reply.body:
                self.accepted += reply.body.count(b'"status":202') if asked.batch > 1 else 1
                self.took_ms.append((self._last_mono - due_mono) * 1000)
        if stream is not None:
            stream[1].close()

    async def run(self) -> dict[str, Any]:
        """Sends everything; what it came to."""
        await asyncio.gather(*(self._work() for _ in range(self._asked.connections)))
        took_s = self._last_mono - self._start_mono
        return {
            "asked": self.begun * self._asked.batch,
            "accepted": self.accepted,
            "broken": self.broken,
            "took_s": round(took_s, 3),
            "accepted_per_s": round(self.accepted / took_s, 1) if took_s > 0 else 0.0,
            "answers": {str(status): count for status, count in self.answers.items()},
            "http_ms": spread(self.took_ms),
        }


async def client(asked: argparse.Namespace) -> None:
    """One line of JSON at the end."""
    _say(await Client(asked).run())


def main() -> int:
    """Runs one of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    one = kinds.add_parser("carrier")
    one.add_argument("--answer-ms", type=float, default=0.0)
    one.add_argument("--receipt-ms", type=float, default=-1.0)
    two = kinds.add_parser("sink")
    two.add_argument("--text", default="OK")
    three = kinds.add_parser("client")
    for name in ("path", "body", "keys", "item", "accepted"):
        three.add_argument(f"--{name}", default="/" if name == "path" else "")
    three.add_argument("--header", action="append", default=[])
    three.add_argument("--class", dest="class_name", default="x")
    for name, given in (("count", 20_000), ("connections", 50), ("batch", 1), ("first", 0)):
        three.add_argument(f"--{name}", type=int, default=given)
    three.add_argument("--rate", type=float, default=0.0)
    three.add_argument("--seconds", type=float, default=600.0)
    for kind in (one, two, three):
        kind.add_argument("--port", type=int, required=True)
    asked = parser.parse_args()
    asyncio.run({"carrier": carrier, "sink": sink, "client": client}[asked.kind](asked))
    return 0


if __name__ == "__main__":
    sys.exit(main())
