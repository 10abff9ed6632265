"""The timers of SMPP 3.4 section 7.2 without a clock: moments go in, verdicts come out.

Besides the four of the spec there is `pdu_read`: how long a PDU that has begun may take to arrive whole. The response
timer of each request lives in the window; this file keeps the link's own.
"""

from __future__ import annotations

from enum import Enum
from math import inf

from smpp.values import valueclass


@valueclass
class TimerSettings:
    """All in seconds. The spec gives no values; Rakuten drops after 30 s of silence, Route Mobile after 300 s."""

    session_init_s: float = 10.0
    enquire_link_s: float = 15.0
    response_s: float = 10.0
    inactivity_s: float = 60.0
    pdu_read_s: float = 10.0
    unbind_grace_s: float = 2.0
    """How long answers are awaited after the peer's unbind."""


class Verdict(Enum):
    """Why a timer fired; all but PROBE end the link."""

    PROBE = "probe"
    SESSION_INIT = "session init timer"
    PROBE_UNANSWERED = "enquire_link unanswered"
    INACTIVITY = "inactivity timer"
    PDU_READ = "pdu unfinished"
    UNBOUND = "unbound"


class Timers:
    """One link's timers. Every method takes `now_mono` in seconds of one monotonic clock."""

    __slots__ = ("_begun_mono", "_bound", "_ends_mono", "_heard_mono", "_opened_mono", "_probed_mono", "settings")

    def __init__(self, settings: TimerSettings, now_mono: float) -> None:
        self.settings = settings
        self._opened_mono = now_mono
        self._heard_mono = now_mono
        self._bound = False
        self._probed_mono: float | None = None
        self._begun_mono: float | None = None
        self._ends_mono: float | None = None

    @property
    def probing(self) -> bool:
        """An enquire_link of ours is unanswered."""
        return self._probed_mono is not None

    def bound(self) -> None:
        """The session is bound: the session_init timer stops."""
        self._bound = True

    def heard(self, now_mono: float) -> None:
        """The peer sent at least one whole PDU."""
        self._heard_mono = now_mono

    def reading(self, unfinished: bool, progressed: bool, now_mono: float) -> None:
        """A read left a PDU unfinished or not; `progressed` when whole PDUs came with it."""
        if not unfinished:
            self._begun_mono = None
        elif progressed or self._begun_mono is None:
            self._begun_mono = now_mono

    def probed(self, now_mono: float) -> None:
        """An enquire_link was sent."""
        self._probed_mono = now_mono

    def probe_answered(self) -> None:
        self._probed_mono = None

    def end_by(self, moment_mono: float) -> None:
        """The session is unbound; the link ends then at the latest."""
        self._ends_mono = moment_mono

    def _moments(self) -> list[tuple[float, Verdict]]:
        timing = self.settings
        moments = [(self._heard_mono + timing.inactivity_s, Verdict.INACTIVITY)]
        if not self._bound:
            moments.append((self._opened_mono + timing.session_init_s, Verdict.SESSION_INIT))
        elif self._probed_mono is None:
            moments.append((self._heard_mono + timing.enquire_link_s, Verdict.PROBE))
        if self._probed_mono is not None:
            moments.append((self._probed_mono + timing.response_s, Verdict.PROBE_UNANSWERED))
        if self._begun_mono is not None:
            moments.append((self._begun_mono + timing.pdu_read_s, Verdict.PDU_READ))
        if self._ends_mono is not None:
            moments.append((self._ends_mono, Verdict.UNBOUND))
        return moments

    def due(self, now_mono: float) -> Verdict | None:
        """The verdict of the timer that ran out, an ending one before a probe; None when none did."""
        ended = [(moment, verdict) for moment, verdict in self._moments() if moment <= now_mono]
        if not ended:
            return None
        return min(ended, key=lambda fired: (fired[1] is Verdict.PROBE, fired[0]))[1]

    def next_mono(self) -> float:
        """When `due` may next have something to say."""
        return min((moment for moment, _ in self._moments()), default=inf)
