"""From the octets of a submit call to its JSON object."""

from __future__ import annotations

from typing import Any

from gateway.admission import strict_json
from gateway.admission.fields import FieldFault
from gateway.admission.problems import Problem, invalid


class BodyRefused(Exception):
    """A body that cannot be read as an object."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.code)
        self.problem = problem


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; raises BodyRefused."""
    try:
        given = strict_json.parse(body)
    except strict_json.Malformed as malformed:
        raise BodyRefused(Problem("request.malformed", str(malformed))) from None
    if not isinstance(given, dict):
        raise BodyRefused(invalid([FieldFault("", "must be an object")]))
    return given
