"""A batch as a tenant writes it, `{"defaults": {...}, "messages": [...]}`, and what it is answered (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gateway.admission.fields import DEFAULTS_POINTER, FieldFault, MessageRequest, Place, pointer_part, read_message
from gateway.admission.problems import Problem
from scheduler.core.values import valueclass

MESSAGES_MAX: Final = 1_000
_REPEATABLE: Final = frozenset({429, 503})


@valueclass
class BatchRequest:
    """A batch whose frame is right; its items may still be anything."""

    defaults: dict[str, Any]
    items: list[Any]

    def item(self, index: int) -> tuple[MessageRequest, list[FieldFault], Place]:
        """One message with the defaults folded in, what is wrong with it, and where it stands."""
        pointer = f"/messages/{index}"
        given = self.items[index]
        if not isinstance(given, dict):
            return MessageRequest(), [FieldFault(pointer, "must be an object")], Place(pointer)
        inherited = frozenset(self.defaults) - frozenset(given)
        place = Place(pointer, inherited)
        request, faults = read_message({**self.defaults, **given} if inherited else given, place)
        return request, faults, place


def read_batch(given: dict[str, Any]) -> BatchRequest | list[FieldFault]:
    """The batch that an object holds, or what is wrong with its frame."""
    faults = [
        FieldFault(f"/{pointer_part(name)}", "is not a field of a batch")
        for name in given
        if name not in ("defaults", "messages")
    ]
    defaults, items = given.get("defaults"), given.get("messages")
    if defaults is not None and not isinstance(defaults, dict):
        faults.append(FieldFault(DEFAULTS_POINTER, "must be an object"))
    if not isinstance(items, list) or not 1 <= len(items) <= MESSAGES_MAX:
        faults.append(FieldFault("/messages", f"must be an array of 1 to {MESSAGES_MAX} messages"))
    if faults or not isinstance(items, list):
        return faults
    return BatchRequest(defaults if isinstance(defaults, dict) else {}, items)


def refused_item(problem: Problem) -> dict[str, Any]:
    """The result of an item that was not accepted."""
    return {"status": problem.status, "problem": problem.as_object()}


def accepted_item(message: dict[str, Any]) -> dict[str, Any]:
    """The result of an item that was accepted."""
    return {"status": 202, "message": message}


def all_refused(problems: Sequence[Problem], results: Sequence[dict[str, Any]]) -> Problem:
    """The answer of a call of which nothing was accepted: the one common status, else 503 if any may be repeated
    (with the largest Retry-After), else 422; always with `results[]`, the items of `problems`."""
    statuses = {problem.status for problem in problems}
    codes = {problem.code for problem in problems}
    status = statuses.pop() if len(statuses) == 1 else 503 if statuses & _REPEATABLE else 422
    waits = [problem.retry_after_s for problem in problems if problem.retry_after_s is not None]
    return Problem(
        codes.pop() if len(codes) == 1 else "batch.refused",
        "None of the messages was accepted; see results.",
        members={"results": results},
        retry_after_s=max(waits) if waits and status in _REPEATABLE else None,
        status_override=status,
    )
