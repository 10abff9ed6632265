"""What one try of a callback came to, and when the next one is: pure (contract, "Callbacks")."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from gateway.ledger.callback_lines import Line, Verdict
from gateway.policy.rules.snapshot import CallbackRules
from scheduler.core.values import valueclass

BASE_MS: Final = 1_000
CAP_MS: Final = 3_600_000
GONE: Final = 410
ADDRESS_REFUSED: Final = "address_refused"  # the fault of a try that was not begun: see addresses.py
_DATE_MAX: Final = 64  # characters; the longest form of an HTTP date has 33


@valueclass
class Answer:
    """How an endpoint answered: an HTTP status, or the name of what went wrong."""

    status: int | None
    fault: str | None = None
    retry_after_ms: int | None = None

    @property
    def taken(self) -> bool:
        """Whether the notice is done: any 2xx."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def word(self) -> str:
        """For the ledger and the operators."""
        return str(self.status) if self.status is not None else self.fault or "fault"


def next_try(line: Line, answer: Answer, rules: CallbackRules, now_at: int, jitter: float) -> Verdict:
    """When a notice that was not taken is tried again (full jitter, 0 <= `jitter` < 1), or that it is given up."""
    ceiling_ms = min(CAP_MS, BASE_MS << min(line.tries, 30))
    wait_ms = max(int(ceiling_ms * jitter), answer.retry_after_ms or 0)
    last_at = line.created_at + rules.give_up_ms
    gone = answer.status == GONE or now_at >= last_at
    # The last try falls on the end of the patience, not beyond it.
    due_at = now_at if gone else min(now_at + wait_ms, max(last_at, now_at + 1))
    return Verdict(line.id, due_at, answer.word, now_at if gone else None)


def retry_after_ms(value: str | None, now_at: int) -> int | None:
    """The wait that Retry-After asks for (seconds or an HTTP date, RFC 9110 section 10.2.3); None if unreadable."""
    if value is None:
        return None
    text = value.strip()[:_DATE_MAX]
    if text.isascii() and text.isdigit():
        return int(text[:9]) * 1000
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):  # a year or zone of any number of digits is read as one
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000) - now_at)
