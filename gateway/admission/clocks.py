"""The two clocks of a message (contract section 2): `expires_at` rules every submit, `submit_by` only the first."""

from __future__ import annotations

from gateway.admission.fields import MessageRequest
from gateway.admission.problems import Problem
from gateway.admission.send_windows import opens_at
from gateway.policy.rules.snapshot import SendWindow, TrafficClass
from scheduler.core.values import valueclass

# What a message that is held waits for: the words of `due.kind` and of its events.
SEND_AT = "send_at"
DEFERRAL = "deferral"
SEND_WINDOW = "send_window"
SEND_AT_MAX_MS = 35 * 86_400_000
# What an idle system needs from the door to the first submit; a nearer deadline cannot be cured by waiting.
IDLE_MS = 200


@valueclass
class Clocks:
    """UTC ms. `not_before` is None for a message that may leave at once."""

    created_at: int
    not_before: int | None
    submit_by: int
    expires_at: int
    held_by: str | None = None  # what sets `not_before`: send_at | deferral | send_window

    @property
    def begins_at(self) -> int:
        """From when on the message may leave."""
        return self.created_at if self.not_before is None else max(self.created_at, self.not_before)


def set_clocks(request: MessageRequest, traffic: TrafficClass, now_at: int, carrying_ms: int = 0) -> Clocks | Problem:
    """The clocks of a message accepted now.

    `carrying_ms` is how long its segments take at its slowest limit. A `send_at` that has passed means "now".
    """
    not_before = request.send_at if request.send_at is not None and request.send_at > now_at else None
    begins_at = not_before or now_at
    expires_at = request.expires_at
    if expires_at is None:
        expires_at = begins_at + (traffic.ttl_default_ms if request.ttl_ms is None else request.ttl_ms)
    if expires_at - begins_at > traffic.ttl_max_ms:
        return Problem(
            "policy.ttl",
            f"The class {traffic.name} allows a time to live of at most {traffic.ttl_max_ms // 1000} s.",
            members={"class": traffic.name, "ttl_max_s": traffic.ttl_max_ms // 1000},
        )
    if expires_at - begins_at < IDLE_MS + carrying_ms:
        return Problem(
            "capacity.infeasible_deadline",
            "The deadline has passed, or is nearer than an idle system needs for this message.",
            members={"needed_ms": IDLE_MS + carrying_ms, "left_ms": max(0, expires_at - begins_at)},
        )
    submit_by = min(begins_at + traffic.wait_budget_ms, expires_at)
    return Clocks(now_at, not_before, submit_by, expires_at, None if not_before is None else SEND_AT)


def open_window(
    clocks: Clocks, traffic: TrafficClass, window: SendWindow | None, carrying_ms: int = 0
) -> Clocks | Problem:
    """The clocks of a message that must wait for its send window to open; the same ones where it need not.

    The window moves `submit_by`, never `expires_at`: a message that would be over by then can never go.
    """
    opening = clocks.begins_at if window is None else opens_at(window, clocks.begins_at)
    if opening == clocks.begins_at:
        return clocks
    if clocks.expires_at - opening < IDLE_MS + carrying_ms:
        return Problem(
            "capacity.infeasible_deadline",
            "The deadline is over before the send window of this destination opens.",
            members={"needed_ms": IDLE_MS + carrying_ms + opening - clocks.begins_at,
                     "left_ms": clocks.expires_at - clocks.begins_at},
        )  # fmt: skip
    submit_by = min(opening + traffic.wait_budget_ms, clocks.expires_at)
    return Clocks(clocks.created_at, opening, submit_by, clocks.expires_at, SEND_WINDOW)


def defer(clocks: Clocks, traffic: TrafficClass, wait_ms: int) -> Clocks | None:
    """The clocks of the message when it is held back for `wait_ms`; None where `expires_at` does not permit.

    `expires_at` never moves; `submit_by` does (contract: "deferral and send windows move it").
    """
    not_before = clocks.begins_at + wait_ms
    if clocks.expires_at - not_before < IDLE_MS:
        return None
    submit_by = min(not_before + traffic.wait_budget_ms, clocks.expires_at)
    return Clocks(clocks.created_at, not_before, submit_by, clocks.expires_at, DEFERRAL)
