"""The wall clock of a process can be stepped from outside; its monotonic clock goes on."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

from loadtests.world import SHIFTED_CLOCK

_READ = """
import sys, time
for line in sys.stdin:
    print(time.time_ns(), time.time(), time.monotonic(), flush=True)
"""


def test_a_step_shows_in_the_wall_clock_alone(tmp_path: Path) -> None:
    shared = tmp_path / "clock"
    shared.write_bytes(bytes(8))
    env = {**os.environ, "PYTHONPATH": str(SHIFTED_CLOCK), "SHIFTED_CLOCK_FILE": str(shared)}
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _READ], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        readings = []
        for hours in (0, 5, 0):
            with shared.open("r+b") as file:
                file.write(struct.pack("<q", hours * 3_600 * 10**9))
            child.stdin.write("\n")
            child.stdin.flush()
            wall_ns, wall, mono = child.stdout.readline().split()
            readings.append((int(wall_ns) / 1e9, float(wall), float(mono)))
        child.stdin.close()
    (first, first_wall, first_mono), (second, second_wall, second_mono), (third, _, _) = readings
    # Hours apart, so that no slow machine can blur it.
    assert second - first > 4 * 3_600 and second_wall - first_wall > 4 * 3_600
    assert third < second - 4 * 3_600
    assert second_mono - first_mono < 3_600
