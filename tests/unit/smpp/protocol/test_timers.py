"""Timers are numbers in, verdicts out."""

from __future__ import annotations

from smpp.protocol.timers import Timers, TimerSettings, Verdict

SETTINGS = TimerSettings(
    session_init_s=10, enquire_link_s=15, response_s=5, inactivity_s=60, pdu_read_s=8, unbind_grace_s=2
)


def bound(now_mono: float = 0.0) -> Timers:
    timers = Timers(SETTINGS, now_mono)
    timers.bound()
    return timers


def test_session_init_ends_a_link_that_never_binds() -> None:
    timers = Timers(SETTINGS, 100.0)
    assert timers.next_mono() == 110.0
    assert timers.due(109.9) is None
    assert timers.due(110.0) is Verdict.SESSION_INIT


def test_silence_is_probed() -> None:
    timers = bound()
    timers.heard(3.0)
    assert timers.due(17.9) is None
    assert timers.due(18.0) is Verdict.PROBE
    timers.probed(18.0)
    assert timers.probing
    assert timers.due(22.9) is None
    assert timers.due(23.0) is Verdict.PROBE_UNANSWERED


def test_an_answered_probe_starts_again() -> None:
    timers = bound()
    timers.probed(15.0)
    timers.heard(16.0)
    timers.probe_answered()
    assert timers.due(30.9) is None
    assert timers.due(31.0) is Verdict.PROBE


def test_other_traffic_does_not_answer_a_probe() -> None:
    timers = bound()
    timers.probed(15.0)
    timers.heard(19.9)
    assert timers.due(20.0) is Verdict.PROBE_UNANSWERED


def test_inactivity_ends_the_link() -> None:
    timers = Timers(TimerSettings(enquire_link_s=100, inactivity_s=60), 0.0)
    timers.bound()
    assert timers.due(60.0) is Verdict.INACTIVITY


def test_a_begun_pdu_has_to_end() -> None:
    timers = bound()
    timers.reading(unfinished=True, progressed=False, now_mono=1.0)
    timers.reading(unfinished=True, progressed=False, now_mono=5.0)
    assert timers.due(8.9) is None
    assert timers.due(9.0) is Verdict.PDU_READ
    timers.reading(unfinished=True, progressed=True, now_mono=6.0)
    assert timers.due(9.0) is None
    timers.reading(unfinished=False, progressed=True, now_mono=7.0)
    assert timers.due(14.9) is None


def test_unbound_ends_after_the_grace() -> None:
    timers = bound()
    timers.end_by(12.0)
    assert timers.next_mono() == 12.0
    assert timers.due(12.0) is Verdict.UNBOUND


def test_an_end_outranks_a_probe() -> None:
    timers = Timers(TimerSettings(enquire_link_s=5, inactivity_s=10), 0.0)
    timers.bound()
    assert timers.due(20.0) is Verdict.INACTIVITY
