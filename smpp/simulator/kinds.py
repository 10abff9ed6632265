"""What values a script may hold: small checkers that convert a value or name its fault, all faults at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import exp, log
from typing import Any, Final

Check = Callable[[Any, str, list[str]], Any]
"""(value, its place in the script, faults so far) -> the value to use; a fault is appended, never raised."""

_P99_DEVIATIONS: Final = 2.326


@dataclass(frozen=True, slots=True)
class Distribution:
    """A random duration in ms; `draw` never goes below 0."""

    shape: str
    first: float
    second: float = 0.0

    def draw(self, rng: random.Random) -> float:
        """One duration in ms."""
        if self.shape == "uniform":
            return rng.uniform(self.first, self.second)
        if self.shape == "normal":
            return max(0.0, rng.gauss(self.first, self.second))
        if self.shape == "exponential":
            return rng.expovariate(1 / self.first) if self.first else 0.0
        spread = log(self.second / self.first) / _P99_DEVIATIONS
        return self.first * exp(rng.gauss(0.0, spread))


Delay = float | Distribution
"""A duration in ms, fixed or drawn anew each time."""

_SHAPES: Final = {"uniform": 2, "normal": 2, "exponential": 1, "lognormal": 2}


def seconds_of(delay: Delay, rng: random.Random) -> float:
    """The delay in seconds."""
    return (delay.draw(rng) if isinstance(delay, Distribution) else delay) / 1000


def number(least: float, most: float) -> Check:
    """Any number in these bounds."""
    return _bounded(least, most, whole=False)


def whole(least: int, most: int) -> Check:
    """A whole number in these bounds."""
    return _bounded(least, most, whole=True)


def _bounded(least: float, most: float, *, whole: bool) -> Check:
    kinds = (int,) if whole else (int, float)

    def check(value: Any, place: str, faults: list[str]) -> Any:
        if isinstance(value, kinds) and not isinstance(value, bool) and least <= value <= most:
            return value
        noun = "whole number" if whole else "number"
        faults.append(f"{place}: must be a {noun} from {least:.15g} to {most:.15g}")
        return None

    return check


def flag(value: Any, place: str, faults: list[str]) -> Any:
    """true or false."""
    if not isinstance(value, bool):
        faults.append(f"{place}: must be true or false")
    return value


def word(value: Any, place: str, faults: list[str]) -> Any:
    """A text."""
    if not isinstance(value, str):
        faults.append(f"{place}: must be a text")
    return value


def hexadecimal(value: Any, place: str, faults: list[str]) -> Any:
    """Octets, written as hexadecimal digits."""
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        faults.append(f"{place}: must be octets as hexadecimal digits, in quotes")
        return None


def optional(check: Check) -> Check:
    """The same, or null."""
    return lambda value, place, faults: None if value is None else check(value, place, faults)


def choice(words: Collection[str]) -> Check:
    """One of these words."""

    def check(value: Any, place: str, faults: list[str]) -> Any:
        if not isinstance(value, str) or value not in words:
            near = get_close_matches(str(value), list(words), n=1)
            hint = f", did you mean {near[0]}?" if near else ""
            faults.append(f"{place}: must be one of {', '.join(words)}{hint}")
        return value

    return check


def delay(most_ms: float) -> Check:
    """Milliseconds, or a distribution of them."""

    def check(value: Any, place: str, faults: list[str]) -> Any:
        if isinstance(value, Distribution):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most_ms:
            return value
        made = _distribution(value, most_ms)
        if made is None:
            faults.append(
                f"{place}: must be ms from 0 to {most_ms:.15g}, or uniform: [least, most], normal: [mean, deviation], "
                f"exponential: mean, lognormal: [median, p99]"
            )
        return made

    return check


def _distribution(value: Any, most_ms: float) -> Distribution | None:
    if not isinstance(value, dict) or len(value) != 1:
        return None
    ((shape, given),) = value.items()
    numbers = given if isinstance(given, list) else [given]
    if len(numbers) != _SHAPES.get(shape) or not all(
        isinstance(one, int | float) and not isinstance(one, bool) and 0 <= one <= most_ms for one in numbers
    ):
        return None
    made = Distribution(shape, *map(float, numbers))
    rising = shape in ("uniform", "lognormal")
    if (rising and made.first > made.second) or (shape == "lognormal" and made.first <= 0):
        return None
    return made


def list_of(check: Check) -> Check:
    """A list, as a tuple."""

    def check_all(value: Any, place: str, faults: list[str]) -> Any:
        if not isinstance(value, list | tuple):
            faults.append(f"{place}: must be a list")
            return ()
        return tuple(check(one, f"{place}[{at}]", faults) for at, one in enumerate(value))

    return check_all


def mapping_of(check: Check) -> Check:
    """Texts to values."""

    def check_all(value: Any, place: str, faults: list[str]) -> Any:
        if not isinstance(value, Mapping):
            faults.append(f"{place}: must be a mapping")
            return {}
        return {str(name): check(one, f"{place}.{name}", faults) for name, one in value.items()}

    return check_all


@dataclass(frozen=True, slots=True)
class Record:
    """A mapping with known names that becomes an object; unknown names are faults with the nearest known one."""

    make: Callable[..., Any]
    checks: Mapping[str, Check]
    required: tuple[str, ...] = ()

    def __call__(self, value: Any, place: str, faults: list[str]) -> Any:
        if self.make is not dict and type(value) is self.make:
            return value
        if not isinstance(value, Mapping):
            faults.append(f"{place}: must be a mapping")
            return None
        before = len(faults)
        values = self.values(value, place, faults)
        faults += [f"{place}.{name}: is missing" for name in self.required if name not in value]
        return self.make(**values) if len(faults) == before else None

    def values(self, value: Mapping[Any, Any], place: str, faults: list[str]) -> dict[str, Any]:
        """The converted values by name; those at fault may be anything."""
        values = {}
        for name, given in value.items():
            where = f"{place}.{name}" if place else str(name)
            check = self.checks.get(name) if isinstance(name, str) else None
            if check is None:
                near = get_close_matches(str(name), list(self.checks), n=1)
                faults.append(f"{where}: unknown setting" + (f", did you mean {near[0]}?" if near else ""))
            else:
                values[name] = check(given, where, faults)
        return values
