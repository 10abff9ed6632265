"""A wall clock that can be stepped from outside: put this folder on PYTHONPATH and name a file in SHIFTED_CLOCK_FILE.

The file holds one signed 64-bit number, little-endian: nanoseconds that `time.time` and `time.time_ns` are off. The
monotonic clock is left alone, as a step of a machine's clock leaves it. Python reads a module of this name when it
starts.
"""

import mmap
import os
import struct
import time

_path = os.environ.get("SHIFTED_CLOCK_FILE")
if _path:
    with open(_path, "r+b") as _file:
        _shared = mmap.mmap(_file.fileno(), 8)
    _unpack, _true_ns = struct.Struct("<q").unpack, time.time_ns

    def _shifted_ns() -> int:
        return _true_ns() + int(_unpack(_shared[:8])[0])

    def _shifted() -> float:
        return _shifted_ns() / 1e9

    time.time_ns, time.time = _shifted_ns, _shifted
