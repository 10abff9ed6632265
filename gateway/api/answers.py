"""What a call is answered: status, headers and body octets, made once and sent as they are."""

from __future__ import annotations

from typing import Any, Final

import orjson

from gateway.admission.problems import MEDIA_TYPE, Problem
from scheduler.core.values import valueclass

Headers = tuple[tuple[bytes, bytes], ...]

_JSON: Final = (b"content-type", b"application/json")
_PROBLEM: Final = (b"content-type", MEDIA_TYPE.encode("ascii"))
_CHALLENGE: Final = (b"www-authenticate", b"Bearer")
REPLAYED: Final = (b"idempotent-replayed", b"true")


@valueclass
class Answer:
    """An HTTP answer; Content-Length and X-Request-Id are added where it is sent."""

    status: int
    headers: Headers
    body: bytes


def json_answer(status: int, value: Any, headers: Headers = ()) -> Answer:
    """An answer with a JSON body."""
    return raw_answer(status, orjson.dumps(value), headers)


def raw_answer(status: int, body: bytes, headers: Headers = ()) -> Answer:
    """An answer whose JSON body is made already."""
    return Answer(status, (_JSON, *headers), body)


def problem_answer(problem: Problem, headers: Headers = ()) -> Answer:
    """A refusal as `application/problem+json`, with Retry-After where repeating may help."""
    shown = [_PROBLEM, *headers]
    if problem.retry_after_s is not None:
        shown.append((b"retry-after", str(problem.retry_after_s).encode("ascii")))
    if problem.status == 401:
        shown.append(_CHALLENGE)
    return Answer(problem.status, tuple(shown), problem.body())
