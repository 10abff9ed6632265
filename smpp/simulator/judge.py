"""What becomes of a submit_sm: its answer, its delay, its receipts. Everything random about a carrier is here."""

from __future__ import annotations

import random
import re
import secrets
import time
from collections import Counter
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from uuid import UUID

from smpp.protocol import errors as e
from smpp.protocol.pdu import SubmitSm
from smpp.simulator.dialect import INTERMEDIATE
from smpp.simulator.kinds import Delay, seconds_of
from smpp.simulator.settings import Rule, SimulatorSettings


@dataclass(slots=True)
class Verdict:
    """`status` None is silence. `message_id` is empty when nothing was accepted."""

    status: int | None
    delay_s: float = 0.0
    message_id: str = ""
    stat: str | None = "DELIVRD"
    """State of the final receipt; None: no receipt."""
    receipt_delay_s: float = 0.0
    cut: bool = False


class Judge:
    """One carrier's judgement; `rng` is seeded by the script."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._id_prefix = secrets.token_hex(3)
        self._id_number = 0
        self._taken_by: Counter[Rule] = Counter()
        self._tokens = 0.0
        self._tokens_mono = 0.0

    def judge(self, settings: SimulatorSettings, pdu: SubmitSm, unanswered: int) -> Verdict:
        """`unanswered` counts this session's submits without an answer, this one included."""
        if settings.window_max and unanswered > settings.window_max:
            return Verdict(settings.window_status or None)
        rule = self._rule(settings, pdu) if settings.rules else None
        verdict = self._verdict(settings, rule)
        if verdict.cut:
            return verdict
        if rule is not None and rule.answer_delay_ms is not None:
            verdict.delay_s = seconds_of(rule.answer_delay_ms, self._rng)
        else:
            verdict.delay_s = seconds_of(settings.answer_delay_ms, self._rng)
        if verdict.status == e.ROK or (verdict.status is None and settings.dropped_delivered):
            verdict.message_id = self._new_id(settings)
            self._plan(settings, rule, verdict)
        return verdict

    def _verdict(self, settings: SimulatorSettings, rule: Rule | None) -> Verdict:
        if rule is not None and (rule.cut or rule.silent or rule.status is not None):
            return Verdict(None if rule.silent or rule.cut else rule.status, cut=rule.cut)
        if self._chance(settings.drop_ratio):
            return Verdict(None)
        if settings.throttle_per_s > 0 and not self._token(settings.throttle_per_s):
            return Verdict(e.RTHROTTLED)
        return Verdict(settings.error_status if self._chance(settings.error_ratio) else e.ROK)

    def _rule(self, settings: SimulatorSettings, pdu: SubmitSm) -> Rule | None:
        for rule in settings.rules:
            if not (_matches(rule.destination, pdu.destination_addr) and _matches(rule.source, pdu.source_addr)):
                continue
            if rule.ratio < 1 and not self._chance(rule.ratio):
                continue
            if rule.times:
                if self._taken_by[rule] >= rule.times:
                    continue
                self._taken_by[rule] += 1
            return rule
        return None

    def _token(self, per_s: float) -> bool:
        now_mono = time.monotonic()
        burst = max(1.0, per_s / 10)
        self._tokens = min(burst, self._tokens + (now_mono - self._tokens_mono) * per_s)
        self._tokens_mono = now_mono
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _plan(self, settings: SimulatorSettings, rule: Rule | None, verdict: Verdict) -> None:
        delay: Delay = settings.receipt_delay_ms
        verdict.stat = self.outcome(settings)
        if rule is not None:
            if rule.receipt_delay_ms is not None:
                delay = rule.receipt_delay_ms
            if rule.receipt is not None:
                verdict.stat = None if rule.receipt == "none" else rule.receipt
        verdict.receipt_delay_s = seconds_of(delay, self._rng)
        if not settings.receipts or self._chance(settings.receipt_lost_ratio):
            verdict.stat = None

    def outcome(self, settings: SimulatorSettings, other_than: str = "") -> str:
        """A state for a receipt."""
        if settings.receipt_outcomes:
            weights = {word: weight for word, weight in settings.receipt_outcomes.items() if word != other_than}
            if any(weights.values()):
                return self._rng.choices(list(weights), list(weights.values()))[0]
        if other_than:
            return "DELIVRD" if other_than != "DELIVRD" else "UNDELIV"
        return "UNDELIV" if self._chance(settings.receipt_fail_ratio) else "DELIVRD"

    def chain(self, settings: SimulatorSettings, stat: str, delay_s: float) -> list[tuple[float, str]]:
        """The receipts of one message: (seconds after the submit, word) each; the final one, and what goes with it."""
        steps = settings.intermediate
        if settings.intermediate_late:
            receipts = [(delay_s * 2 + 0.001 * (at + 1), word) for at, word in enumerate(steps)]
        else:
            receipts = [(delay_s * (at + 1) / (len(steps) + 1), word) for at, word in enumerate(steps)]
        receipts.append((delay_s, stat))
        if self._chance(settings.receipt_double_ratio):
            receipts.append((delay_s + seconds_of(settings.receipt_delay_ms, self._rng), stat))
        if stat not in INTERMEDIATE and self._chance(settings.receipt_contradicted_ratio):
            other = self.outcome(settings, other_than=stat)
            receipts.append((delay_s + seconds_of(settings.receipt_delay_ms, self._rng), other))
        return receipts

    def _new_id(self, settings: SimulatorSettings) -> str:
        self._id_number += 1
        if settings.message_ids == "counter":
            return str(self._id_number)
        if settings.message_ids == "decimal":
            return f"{int(self._id_prefix, 16)}{self._id_number:08d}"
        if settings.message_ids == "uuid":
            return str(UUID(int=self._rng.getrandbits(128), version=4))
        return f"{self._id_prefix}{self._id_number:08x}"

    def _chance(self, ratio: float) -> bool:
        return ratio > 0 and (ratio >= 1 or self._rng.random() < ratio)


def _matches(pattern: str, value: str) -> bool:
    return pattern == "*" or _compiled(pattern).match(value) is not None


@lru_cache(maxsize=1_000)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))
