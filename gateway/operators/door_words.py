"""What a headline says of a door that does not take messages in (pure; the command line uses it too)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_VERBS = {"refuse": "refuses", "defer": "defers"}


def turned_away(class_name: str, one: Mapping[str, Any]) -> str | None:
    """A class of `look` whose door refuses or defers, as words without a full stop; None where it does neither.

    A tenant's own limit (`slow_down`) is that tenant's business and no headline.
    """
    said = _said(one)
    return None if said is None else f"the door {said[0]} {class_name}: {said[1]}"


def all_turned_away(classes: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The same of all classes in one line: those with one reason together, how many more have another."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, one in classes.items():
        if (said := _said(one)) is not None:
            alike.setdefault(said, []).append(name)
    if not alike:
        return None
    (verb, why), names = next(iter(alike.items()))
    more = sum(map(len, alike.values())) - len(names)
    together = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"the door {verb} {together}: {why}" + (f" ({more} more)" if more else "")


def _said(one: Mapping[str, Any]) -> tuple[str, str] | None:
    """Verb and reason where the door does not take a class in."""
    door = one.get("door")
    verb = None if door is None else _VERBS.get(door["verdict"])
    if door is None or verb is None:
        return None
    scope = door["scope"]
    held = "" if scope is None else f", held by {scope['kind']} {scope['name']}"
    if door["cause"] == "storage":
        why = "the queue is being rebuilt"
    elif door["cause"] == "paused":
        why = (
            "it is paused or cannot be sent" if scope is None else f"{scope['kind']} {scope['name']} is paused or away"
        )
    elif door["cause"] == "age":
        why = f"nothing goes out, or too little{held}"
    else:
        why = f"predicted wait {_short(door['predicted_wait_ms'])}, door limit {_short(one['door_limit_ms'])}{held}"
    return verb, why


def _short(milliseconds: float) -> str:
    for size, unit in ((172_800_000, "d"), (7_200_000, "h"), (600_000, "min")):
        if milliseconds >= size:
            whole = {"d": 86_400_000, "h": 3_600_000, "min": 60_000}[unit]
            return f"{milliseconds / whole:.3g} {unit}"
    return f"{milliseconds / 1000:.3g} s" if milliseconds < 100_000 else f"{milliseconds / 1000:.0f} s"
