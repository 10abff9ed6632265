"""When a callback is tried again and when it is given up (contract, "Callbacks")."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.callbacks.tries import CAP_MS, Answer, next_try, retry_after_ms
from gateway.ledger.callback_lines import Line
from gateway.policy.rules.snapshot import CallbackRules

RULES = CallbackRules(give_up_ms=3 * 86_400_000, timeout_ms=10_000, per_endpoint=16)


def line(tries: int = 0, created_at: int = 0) -> Line:
    return Line(7, "message.delivered", UUID(int=1), b"{}", created_at, tries)


@given(st.integers(0, 200), st.floats(0, 1, exclude_max=True))
def test_full_jitter_between_nothing_and_the_cap(tries: int, jitter: float) -> None:
    verdict = next_try(line(tries), Answer(500), RULES, 1_000, jitter)
    assert 0 <= verdict.due_at - 1_000 <= min(CAP_MS, 1_000 * 2**tries)
    assert verdict.gave_up_at is None and verdict.last_status == "500"


def test_retry_after_is_a_floor() -> None:
    verdict = next_try(line(), Answer(503, retry_after_ms=30_000), RULES, 1_000, 0.5)
    assert verdict.due_at == 31_000


def test_the_last_try_falls_on_the_end_of_patience() -> None:
    verdict = next_try(line(), Answer(503, retry_after_ms=30 * 86_400_000), RULES, 1_000, 0.5)
    assert verdict.due_at == RULES.give_up_ms
    over = next_try(line(), Answer(503), RULES, RULES.give_up_ms, 0.5)
    assert over.gave_up_at == RULES.give_up_ms


def test_gone_is_given_up_at_once() -> None:
    assert next_try(line(), Answer(410), RULES, 1_000, 0.5).gave_up_at == 1_000


@pytest.mark.parametrize(("status", "taken"), [(200, True), (204, True), (299, True), (302, False), (404, False)])
def test_any_2xx_is_taken_and_no_redirect(status: int, taken: bool) -> None:
    assert Answer(status).taken is taken


@pytest.mark.parametrize(
    ("value", "wait_ms"),
    [
        ("120", 120_000),
        (" 5 ", 5_000),
        ("Thu, 01 Jan 1970 00:01:00 GMT", 59_000),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("soon", None),
        ("-3", None),
        ("", None),
        (None, None),
        ("9" * 40, 999_999_999_000),
        ("9" * 100_000, 999_999_999_000),
        ("\u0661\u0662", None),
        ("1.5", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 253402300799_000 - 1_000),
        ("Fri, 31 Dec 99999999999999999999 23:59:59 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 +99999999999999", None),
        ("Fri, " * 100_000, None),
    ],
)
def test_retry_after_in_both_forms(value: str | None, wait_ms: int | None) -> None:
    assert retry_after_ms(value, 1_000) == wait_ms
