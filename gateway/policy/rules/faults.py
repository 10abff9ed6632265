"""What is wrong with a policy, all of it at once, each with its line and dotted path (contract section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault or warning; `line` is 1-based, `path` dotted, "" for the document itself."""

    line: int
    path: str
    message: str

    def __str__(self) -> str:
        where = [f"line {self.line}"] if self.line else []
        where += [self.path] if self.path else []
        # What shows nothing by itself or turns the line around (U+202E) is told by its number.
        said = ": ".join([*(where or ["policy"]), self.message])
        return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in said)


class PolicyInvalid(ValueError):
    """The policy cannot be used; `faults` are sorted by line. No fault quotes a password or secret."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(sorted(set(faults)))
        super().__init__("\n".join(map(str, self.faults)))
