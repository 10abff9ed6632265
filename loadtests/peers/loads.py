"""The standard loads of the bench (design section 6), and what one run of one gateway under one load came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Load:
    """One load.

    `count` messages of one segment over 50 keep-alive connections, one bind with `window`. `receipts`: the carrier
    sends one 200 ms later and the gateway calls back. `overload`: codes and marketing at so many times what passed at
    `capacity_per_s`, for `seconds`. `backlog`: so many marketing messages wait, then codes are sent for `seconds`.
    """

    name: str
    what: str
    count: int
    window: int = 100
    answer_ms: int = 0
    receipts: bool = False
    batch: int = 1
    overload: float = 0.0
    backlog: int = 0
    seconds: float = 15.0
    tenants: int = 1

    @property
    def capacity_per_s(self) -> float:
        """What the carrier's answers and the window let through at most; 0: no such limit."""
        return self.window * 1000 / self.answer_ms if self.answer_ms else 0.0


@dataclass(slots=True)
class Came:
    """What it came to. Milliseconds, MiB, CPU seconds per 1,000 accepted over all processes and stores.

    `others_cores`: CPU that the rest of the machine used meanwhile, tools not counted; above 0.3 the rates say little.
    """

    gateway: str
    load: str
    why_not: str = ""
    accepted: int = 0
    refused: int = 0
    accepted_per_s: float = 0.0
    carrier_per_s: float = 0.0
    cpu_s_per_1k: float = 0.0
    cpu_s_per_1k_by_part: dict[str, float] = field(default_factory=dict)
    http_ms_p50: float | None = None
    http_ms_p99: float | None = None
    waits_ms: dict[str, dict[str, float]] = field(default_factory=dict)
    window_max: int = 0
    memory_mb: float = 0.0
    callbacks: int = 0
    missing: int = 0
    others_cores: float = 0.0
    rounds: int = 1
    answers: list[dict[str, int]] = field(default_factory=list)


FULL: Final = "full job"
OFF: Final = "receipts off"
BATCHES: Final = "batches of 100"
WINDOW: Final = "20 ms carrier, window 10"
MIXED: Final = "mixed overload"
BACKLOG: Final = "codes behind marketing"


def standard(count: int, backlog: int, tenants: tuple[int, ...]) -> list[Load]:
    """The loads in the order in which they are run."""
    slow = {"window": 10, "answer_ms": 20}
    loads = [
        Load(FULL, "receipts after 200 ms, one callback each", count, receipts=True),
        Load(OFF, "one message per call", count),
        Load(BATCHES, "receipts off", count, batch=100),
        Load(WINDOW, "receipts off; 500/s at most", min(count, 5_000), **slow),
        Load(MIXED, "codes and marketing at twice its own rate of the load before", 0, overload=2.0, **slow),
        Load(BACKLOG, f"20 codes a second, {backlog:,} waiting", 0, backlog=backlog, **slow),
    ]
    for number in tenants:
        loads.append(Load(f"{number:,} tenants", "the full job, keys in turn", count, receipts=True, tenants=number))
    return loads
