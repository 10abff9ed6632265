"""What each tenant got from the door of this process so far: told with the heartbeat, shown by the console.

No metric has a tenant label, so that thousands of tenants cost no series; here the busiest are kept, and are few.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

KEPT_MAX: Final = 500
TOLD_MAX: Final = 50
_REASONS_MAX: Final = 30


@dataclass(slots=True)
class _Tally:
    messages: int = 0
    segments: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    @property
    def asked(self) -> int:
        return self.messages + sum(self.refused.values())


class TenantTallies:
    """Counts by tenant; where there are too many the one known longest goes, and begins anew if it comes back."""

    def __init__(self) -> None:
        self._tallies: dict[str, _Tally] = {}

    def accepted(self, tenant: str, segments: int) -> None:
        """One message was taken in."""
        tally = self._tallies.get(tenant) or self._new(tenant)
        tally.messages += 1
        tally.segments += segments

    def refused(self, tenant: str, reason: str) -> None:
        """One message was turned away."""
        refused = (self._tallies.get(tenant) or self._new(tenant)).refused
        if reason in refused or len(refused) < _REASONS_MAX:
            refused[reason] = refused.get(reason, 0) + 1

    def told(self) -> dict[str, Any]:
        """The busiest tenants: messages, segments, refusals by reason."""
        busiest = sorted(self._tallies.items(), key=lambda item: -item[1].asked)[:TOLD_MAX]
        return {
            name: {"messages": one.messages, "segments": one.segments, "refused": one.refused} for name, one in busiest
        }

    def _new(self, tenant: str) -> _Tally:
        if len(self._tallies) >= KEPT_MAX:
            del self._tallies[next(iter(self._tallies))]
        tally = self._tallies[tenant] = _Tally()
        return tally
