"""Makes the recordings that the alert rules are tried against: `python -m tests.interop.alerts.record`.

Five to ten minutes, on a machine that is not needed for anything else. A real gateway between two simulated carriers
is looked at once a second, first in peace, then through one trouble after the other. What takes hours in life is
brought about in the ledger (rows are made older), and said so here; everything that is recorded is what the gateway
itself showed on /metrics. Run it again when a rule needs a metric that the recordings do not have.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from tests.integration.incident.scene import Scene, open_scene
from tests.interop.alerts.recording import FOLDER, Recording

BRITAIN, FRANCE = "+447700900{:03d}", "+336399800{:02d}"
_HOUR_MS = 3_600_000
# Loaded by every Python process that has this folder on its path: egress's wall clock is ahead while the flag is there.
_CLOCK = """
import os, sys, time
if "egress" in sys.orig_argv:
    _real = time.time
    time.time = lambda: _real() + (3.0 if os.path.exists({flag!r}) else 0.0)
"""


class Recorder:
    """Plays scenes, and looks once a second all the while."""

    def __init__(self, scene: Scene, tape: Recording) -> None:
        self.scene = scene
        self.tape = tape
        self._calm = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._talk, daemon=True)

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(10)

    def look(self, seconds: int) -> None:
        """So many samples."""
        for _ in range(seconds):
            began = time.monotonic()
            try:
                samples = self.scene.page().samples
            except (OSError, AssertionError):
                samples = None
            self.tape.take(samples)
            time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))

    def _talk(self) -> None:
        """A little traffic all the time."""
        number = 0
        while not self._ended.wait(0.5):
            number += 1
            kinds = ("otp", "transactional", "marketing")
            try:
                self.scene.send(BRITAIN.format(number % 90), **{"class": kinds[number % 3]})
                if number % 3 == 0:
                    self.scene.send(FRANCE.format(number % 90))
            except (OSError, AssertionError):
                continue  # the gateway is away: a scene of its own

    def command(self, *words: str) -> None:
        """What an operator types."""
        self.scene.gateway.command(*words)

    # -- the scenes ----------------------------------------------------------------------------------------------------

    def throttled(self) -> None:
        """The carrier takes one a second, then refuses half for now."""
        self.scene.north.order(set={"throttle_per_s": 1})
        self.look(15)
        self.scene.north.order(set={"throttle_per_s": 0, "error_ratio": 0.5, "error_status": 0x14})
        self.look(20)
        self.scene.north.order(set={"error_ratio": 0})
        self.look(5)

    def silent(self) -> None:
        """Answers are lost."""
        self.scene.north.order(set={"drop_ratio": 0.5})
        self.look(8)
        self.scene.north.order(set={"drop_ratio": 0})
        self.look(5)

    def flooded(self) -> None:
        """South takes two a second and is asked for more; then it is held with retries waiting."""
        self.scene.south.order(set={"rules": [{"destination": "*95", "status": 0x14, "times": 6}]})
        for _ in range(6):
            self.scene.send(FRANCE.format(95))
        for _ in range(16):
            for _ in range(8):
                self.scene.send(FRANCE.format(50), **{"class": "non_priority"})
            self.look(1)
        self.command("session", "pause", "s1")
        self.look(18)
        self.command("session", "resume", "s1")
        self.look(5)

    def gone(self) -> None:
        """A carrier's machine fails."""
        self.scene.south.stop()
        self.look(9)
        self.scene.south.start()
        self.look(8)

    def deaf(self) -> None:
        """The tenant's endpoint fails; what it is owed is made two hours older."""
        self.scene.sink.broken = True
        self.look(3)
        self.scene.sql("UPDATE callbacks SET created_at = created_at - $1", 2 * _HOUR_MS)
        self.look(20)
        self.scene.sink.broken = False
        self.look(10)

    def foreign(self) -> None:
        """Receipts that nobody knows, an hour old; afterwards they go as retention lets them go."""
        self.scene.north.order(do="backlog", count=300, age_s=3600)
        self.look(2)
        self.scene.sql("UPDATE receipts SET received_at = received_at - $1 WHERE merged_at IS NULL", _HOUR_MS)
        self.look(20)
        self.scene.sql("DELETE FROM receipts WHERE merged_at IS NULL")
        self.look(6)

    def refused(self) -> None:
        """Two policies that do not come into force."""
        path = self.scene.folder / "broken.yaml"
        path.write_text("providers: 7\n")
        self.command("policy", "apply", str(path))
        self.look(3)
        path.write_text(self.scene.policy_file.read_text().replace("BIRD_CALLBACK_SECRET", "NOBODY_HAS_THIS"))
        self.command("policy", "apply", str(path))
        self.look(3)

    def uncovered(self) -> None:
        """Nine hours ago a fifth had no receipt; delivery is killed four times, and looks at coverage as it starts."""
        older = "UPDATE coverage_hours SET hour_at = hour_at - $1, decided = decided * 4 / 5"
        self.scene.sql(older, 9 * _HOUR_MS)
        for _ in range(4):
            self._restart_delivery()
            self.look(3)
        self.look(10)
        self.scene.sql("UPDATE coverage_hours SET decided = sent")
        self._restart_delivery()
        self.look(8)

    def _restart_delivery(self) -> None:
        """Kills it; on a busy machine its start takes far longer than in life, and is not recorded whole."""
        self._kill("delivery")
        self.look(2)
        self.scene.until(lambda: self.scene.page().values("receipt_coverage_ratio", provider="north"))

    def _kill(self, role: str) -> None:
        for pid in self.scene.pids(role):
            os.kill(pid, signal.SIGKILL)

    def overdue(self) -> None:
        """A transaction that hangs holds the cut-off's lock, and a sent message is an hour past its cut-off."""
        self.scene.north.order(set={"receipts": False})
        self.scene.send(BRITAIN.format(99))
        self.scene.until(lambda: self.scene.number("SELECT count(*) FROM messages WHERE status = 'sent'") > 0)
        hold = threading.Thread(target=self._hold_cutoff, args=(30.0,), daemon=True)
        hold.start()
        time.sleep(0.5)
        self.scene.sql(f"UPDATE messages SET sweep_at = created_at - {_HOUR_MS} WHERE status = 'sent'")
        self.scene.north.order(set={"receipts": True})
        self.look(26)
        hold.join()
        self.look(18)

    def _hold_cutoff(self, seconds: float) -> None:
        lock = "SELECT pg_advisory_lock(hashtextextended('sluicegate.sweep.cutoff', 0))"
        self.scene.sql_all([lock, f"SELECT pg_sleep({seconds})"])

    def frozen(self) -> None:
        """Valkey hangs while answers that send messages back into the queue come in; these are made older."""
        (valkey,) = self.scene.pids("valkey")
        self.scene.north.order(set={"answer_delay_ms": 1500, "error_ratio": 1, "error_status": 0x58})
        time.sleep(1)
        os.kill(valkey, signal.SIGSTOP)
        self.look(4)
        self.scene.until(lambda: self.scene.number("SELECT count(*) FROM outbox") > 0)
        self.scene.sql("UPDATE outbox SET created_at = created_at - $1", _HOUR_MS)
        self.look(10)
        os.kill(valkey, signal.SIGCONT)
        self.scene.north.order(set={"answer_delay_ms": 5, "error_ratio": 0})
        self.look(10)

    def shut_out(self) -> None:
        """PostgreSQL takes no connection for a while."""
        name = self.scene.sql("SELECT current_database() AS name")[0]["name"]
        self.scene.sql_at("postgres", f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()"
        self.scene.sql_at("postgres", ended, name)
        self.look(8)
        self.scene.sql_at("postgres", f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")
        self.look(15)

    def unmade(self) -> None:
        """Tables that are no partitions stand where those of the coming days would be."""
        today = datetime.now(UTC).date()
        for day in range(2, 8):
            for parent in ("messages", "attempts"):
                name = f"{parent}_{today + timedelta(days=day):%Y%m%d}"
                self.scene.sql_all([f"DROP TABLE {name}", f"CREATE TABLE {name} ()"])

    def made(self) -> None:
        """They are taken away."""
        today = datetime.now(UTC).date()
        for day in range(2, 8):
            for parent in ("messages", "attempts"):
                self.scene.sql(f"DROP TABLE {parent}_{today + timedelta(days=day):%Y%m%d}")

    def off(self, flag: str) -> None:
        """The wall clock of egress is three seconds ahead."""
        with open(flag, "w", encoding="utf-8"):
            self.look(9)
        os.unlink(flag)
        self.look(3)

    def ended(self) -> None:
        """The gateway is stopped for a while."""
        self.scene.gateway.stop()
        self.look(4)
        self.scene.gateway.start()
        self.look(4)


@contextmanager
def shifted_scene() -> Iterator[tuple[Scene, str]]:
    """A scene whose egress has a clock that can be put ahead, and the flag that does it."""
    with open_scene(clock=_CLOCK) as scene:
        yield scene, str(scene.folder / "ahead")


def main() -> None:
    """Both recordings."""
    with shifted_scene() as (scene, flag), Recorder(scene, Recording()) as recorder:
        recorder.look(70)
        recorder.tape.write(FOLDER / "quiet.tsv")
        recorder.tape = tape = Recording()
        told: dict[str, int] = {}
        recorder.look(15)
        for name in (
            "throttled", "silent", "flooded", "gone", "unmade", "deaf", "foreign", "refused", "overdue", "made",
            "frozen", "shut_out", "uncovered",
        ):  # fmt: skip
            told[name] = tape.length
            print(name, tape.length, flush=True)  # noqa: T201 - it takes a while
            getattr(recorder, name)()
        recorder.off(flag)
        recorder.ended()
        recorder.look(30)
        tape.write(FOLDER / "incident.tsv")
        (FOLDER / "scenes.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
