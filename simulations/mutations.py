"""Rules of the scripts, broken on purpose: each must be caught by the scenario that guards the rule.

A mutation replaces one fragment in a copy of the scripts; the scheduler then reads that copy. Only the process that
plays it is touched.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scheduler.store import scripts


@dataclass(frozen=True, slots=True)
class Mutation:
    """`old` must stand exactly once in the file; `what` says what is broken, `check` which number then is not reached.

    `size` is enough messages for the first scenario of `caught_by` to notice.
    """

    what: str
    caught_by: tuple[int, ...]
    check: str
    file: str
    old: str
    new: str
    size: int = 10_000


MUTATIONS: Mapping[str, Mutation] = {
    "class-weights-upside-down": Mutation(
        "a class's virtual time grows with its weight instead of shrinking",
        (1,),
        "OTP queue p99",
        "lease",
        "C.L.cv = C.L.cv + taken / C.weight",
        "C.L.cv = C.L.cv + taken * C.weight",
    ),
    "service-not-remembered": Mutation(
        "a flow's tag stays where it was: the first in line is served again and again",
        (2, 4),
        "quiet p99 over alone",
        "lease",
        "tag = tag + price_of(C, f, q, v)",
        "tag = tag + 0 * price_of(C, f, q, v)",
    ),
    "weights-ignored": Mutation(
        "every tenant has the same weight",
        (3,),
        "largest error of a share",
        "lease",
        "* (f.retry and 2 or 1) / weight_of(f.tenant)",
        "* (f.retry and 2 or 1)",
    ),
    "quantum-ignored": Mutation(
        "a visit takes all that a flow has",
        (4,),
        "largest less smallest",
        "lease",
        "alone and left or min(C.quantum, left)",
        "left",
    ),
    "absence-unnoticed": Mutation(
        "a carrier without a session counts as away only after minutes",
        (5,),
        "refusals name the pause",
        "estimate",
        "local DOWN_GRACE_MS = 2000",
        "local DOWN_GRACE_MS = 600000",
    ),
    "destination-limit-ignored": Mutation(
        "limits of a flow's own scopes are not looked at",
        (6,),
        "slow one over rate x t + burst",
        "lease",
        "if s.Te > 0 and s.name ~= provider_scope then all[#all + 1] = s end",
        "if s.Te > 0 and s.name == 'no scope' then all[#all + 1] = s end",
    ),
    "door-always-open": Mutation(
        "whatever the wait, the door says yes",
        (7,),
        "expired after accept",
        "estimate",
        "v.ok = not v.hard and not v.silent and v.wait <= ask.limit and v.age <= ask.limit",
        "v.ok, v.wait = true, 0",
        4_000,
    ),
    "drain-never-learned": Mutation(
        "the measured drain moves a thousand times too slowly",
        (8,),
        "drain after the fall",
        "records",
        "local DRAIN_MS = 2000",
        "local DRAIN_MS = 2000000",
        4_400,
    ),
    "no-waiting-line": Mutation(
        "Retry-After is what is over the limit, without the others that wait at the door",
        (9,),
        "requests per accepted",
        "admit",
        "min(base + (own - q.passed) * 1000 / q.rate,",
        "min(base,",
        1_500,
    ),
    "retries-not-capped": Mutation(
        "the retry share lets everything through",
        (10,),
        "first attempts with the cap",
        "flows",
        "1000 / max(1, r * tuning.retry_share / (1 + tuning.retry_share))",
        "1000 / 1e9",
    ),
    "batches-not-remembered": Mutation(
        "a batch that comes twice is queued twice",
        (11,),
        "leased twice",
        "enqueue",
        "if call('EXISTS', marker) == 1 then return 0 end",
        "call('EXISTS', marker)",
    ),
    "leases-for-ever": Mutation(
        "a lease that nobody ends does not lapse",
        (11,),
        "lost",
        "lease",
        "call('ZADD', P .. 'leases', now + lease_ms, lease_id)",
        "call('ZADD', P .. 'leases', now + lease_ms * 1e6, lease_id)",
    ),
    "open-while-loading": Mutation(
        "classes that are not loaded yet are open",
        (12,),
        "let in before its class was loaded",
        "records",
        "return state == 'ready' or (state == 'loading' and",
        "return state == 'ready' or state == 'loading' or (state == 'loading' and",
    ),
    "flows-count-as-tenants": Mutation(
        "a tenant's weight is not divided among its flows",
        (13,),
        "100 flows",
        "lease",
        "local price = v.segments * tenant_record(f.line, f.tenant).m *",
        "local price = v.segments *",
        20_000,
    ),
    "late-flows-wait-their-turn": Mutation(
        "a flow that was promised more than its share gives now gets no more than its share",
        (13,),
        "promises to the first broken",
        "lease",
        "LATE_PART, LATE_SHARE, LATE_PRICE = 0.5, 0.65, 0.001",
        "LATE_PART, LATE_SHARE, LATE_PRICE = 0.5, 0.65, 1",
        40_000,
    ),
    "silence-unnoticed": Mutation(
        "a carrier that answers nothing is never called silent",
        (14,),
        "refusals that name the carrier",
        "estimate",
        "local SILENT_MIN_MS = 1000",
        "local SILENT_MIN_MS = 1e12",
        5_000,
    ),
    "reload-fills-buckets": Mutation(
        "a reload gives every limit its whole burst again",
        (15,),
        "halved limit: over the integral + burst",
        "tune",
        "local left = min(burst, s.burst - owed)",
        "local left = burst",
    ),
}


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """The scripts with one rule broken, until the end of the block; ValueError where the fragment has moved."""
    if name is None:
        yield
        return
    mutation = MUTATIONS[name]
    directory = Path(tempfile.mkdtemp(prefix="sluicegate-lua-"))
    original = scripts.LUA
    try:
        shutil.copytree(original, directory, dirs_exist_ok=True)
        path = directory / f"{mutation.file}.lua"
        text = path.read_text(encoding="utf-8")
        if text.count(mutation.old) != 1:
            raise ValueError(f"mutation {name}: its fragment stands {text.count(mutation.old)} times in {path.name}")
        path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
        scripts.LUA = directory
        scripts.script.cache_clear()
        yield
    finally:
        scripts.LUA = original
        scripts.script.cache_clear()
        shutil.rmtree(directory, ignore_errors=True)
