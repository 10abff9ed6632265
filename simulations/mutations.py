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
    """`old` must stand exactly once in the file; `what` says what is broken."""

    what: str
    caught_by: tuple[int, ...]
    file: str
    old: str
    new: str


MUTATIONS: Mapping[str, Mutation] = {
    "class-weights-upside-down": Mutation(
        "a class's virtual time grows with its weight instead of shrinking",
        (1,),
        "lease",
        "C.L.cv = C.L.cv + taken / C.weight",
        "C.L.cv = C.L.cv + taken * C.weight",
    ),
    "service-not-remembered": Mutation(
        "a flow's tag stays where it was, so the first in line is served again and again",
        (2, 4),
        "lease",
        "tag = tag + v.segments * tenant_record(f.line, f.tenant).m / weight_of(f.tenant)",
        "tag = tag",
    ),
    "weights-ignored": Mutation(
        "every tenant has the same weight",
        (3,),
        "lease",
        "tag = tag + v.segments * tenant_record(f.line, f.tenant).m / weight_of(f.tenant)",
        "tag = tag + v.segments * tenant_record(f.line, f.tenant).m",
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
