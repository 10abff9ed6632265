import time

from gateway.clock import Clock
from gateway.egress.rounds import Rounds


async def test_a_quiet_loop_begins_at_once_and_a_busy_one_keeps_apart() -> None:
    rounds = Rounds(Clock(), apart_s=0.2)
    began_mono = time.monotonic()
    await rounds.begin()
    first_s = time.monotonic() - began_mono
    await rounds.begin()
    second_s = time.monotonic() - began_mono
    assert first_s < 0.2 <= second_s


async def test_time_between_rounds_counts() -> None:
    rounds = Rounds(Clock(), apart_s=0.0)
    for _ in range(100):
        await rounds.begin()
