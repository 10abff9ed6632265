"""Sections `inbound`, `receipts`, `privacy` and `callbacks`: words of handsets, times to wait and keep."""

from __future__ import annotations

from gateway.policy.rules.document import Section
from gateway.policy.rules.scalars import BadValue, duration_ms
from gateway.policy.rules.snapshot import CallbackRules, Inbound, LogRules, Privacy, ReceiptRules

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
STOP_WORDS = ("STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT", "ARRET", "BAJA")
START_WORDS = ("START", "UNSTOP")


def read_inbound(root: Section) -> Inbound:
    """Stop and start words, and how long parts of an inbound text are waited for."""
    section = root.section("inbound")
    found = Inbound(
        stop_words=section.texts("stop_words", STOP_WORDS, _word),
        start_words=section.texts("start_words", START_WORDS, _word),
        join_timeout_ms=section.value("join_timeout", 10 * _MINUTE, _positive),
    )
    section.finish()
    both = sorted(set(found.stop_words) & set(found.start_words))
    if both:
        section.fault(f"{', '.join(both)} is a stop word too", "start_words")
    return found


def read_receipts(root: Section) -> ReceiptRules:
    """How long a final receipt is waited for, and how long the inbox keeps them."""
    section = root.section("receipts")
    found = ReceiptRules(
        cutoff_ms=section.value("cutoff", 72 * _HOUR, _positive),
        inbox_retention_ms=section.value("inbox_retention", 14 * _DAY, _positive),
    )
    section.finish()
    return found


def read_privacy(root: Section) -> Privacy:
    """How long texts and numbers stay readable."""
    section = root.section("privacy")
    found = Privacy(
        keep_text_ms=section.value("keep_text", 7 * _DAY, duration_ms),
        keep_otp_text_ms=section.value("keep_otp_text", 10 * _MINUTE, duration_ms),
        hash_numbers_after_ms=section.value("hash_numbers_after", 30 * _DAY, duration_ms),
        keep_messages_ms=section.value("keep_messages", 90 * _DAY, _at_least_a_day),
        log_numbers=section.choice("log_numbers", "hashed", ("hashed", "full")),
    )
    section.finish()
    return found


def read_callbacks(root: Section) -> CallbackRules:
    """How callbacks are tried: for how long, how long each, how many at once per endpoint."""
    section = root.section("callbacks")
    found = CallbackRules(
        give_up_ms=section.value("give_up", 3 * _DAY, _positive),
        timeout_ms=section.value("timeout", 10 * _SECOND, _positive),
        per_endpoint=section.number("per_endpoint", 16, 1, 1_000),
    )
    section.finish()
    return found


def read_logs(root: Section) -> LogRules:
    """How much processes tell in their logs."""
    section = root.section("logs")
    level = None
    if section.has("level") and not section.is_null("level"):
        level = section.choice("level", "info", ("debug", "info", "warning", "error"))
    section.finish()
    return LogRules(level)


def _positive(text: str) -> int:
    value = duration_ms(text)
    if value < 1:
        raise BadValue("expects more than 0")
    return value


def _at_least_a_day(text: str) -> int:
    value = duration_ms(text)
    if value < _DAY:
        raise BadValue("expects a day or more: days are dropped as a whole")
    return value


def _word(text: str) -> str:
    word = text.strip().upper()
    if not word or len(word) > 40 or not word.isprintable():
        raise BadValue("expects a word of up to 40 characters")
    return word
