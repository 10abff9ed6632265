"""Ctrl-C under `make`: the terminal's signals go to us alone, so that make sees an orderly end and no interrupt."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def foreground() -> Iterator[None]:
    """Makes us the terminal's foreground process group where make or the like started us; gives it back at the end."""
    try:
        terminal = sys.stdin.fileno()
        inherited = os.getpgrp()
        takes = os.isatty(terminal) and os.tcgetpgrp(terminal) == inherited and inherited != os.getpid()
    except (OSError, ValueError):
        takes = False
    if not takes:
        yield
        return
    # Setting the terminal from the background would stop us; so would Ctrl-Z, and make would not notice.
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTTOU, signal.SIGTSTP)}
    os.setpgid(0, 0)
    os.tcsetpgrp(terminal, os.getpid())
    try:
        yield
    finally:
        with suppress(OSError):
            os.tcsetpgrp(terminal, inherited)
        for number, handler in before.items():
            signal.signal(number, handler)
