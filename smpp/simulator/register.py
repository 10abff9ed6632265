"""The messages that a carrier remembers, for query_sm and cancel_sm (SMPP 3.4 sections 4.8 and 4.9)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from smpp.protocol import errors as e
from smpp.protocol.pdu import CancelSm, CancelSmResp, QuerySm, QuerySmResp
from smpp.simulator.dialect import STATES, Dialect
from smpp.simulator.receipts import date

RCANCELFAIL = 0x11
_ABSOLUTE = Dialect(dates="absolute")


@dataclass(slots=True)
class Kept:
    """One accepted message: its final state and when that is reached (UTC ms)."""

    stat: str
    final_at: int
    canceled: bool = False


class Register:
    """The last `limit` messages by id; the oldest is forgotten first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[str, Kept] = OrderedDict()  # a dict looks long for its first after many deletions

    def keep(self, message_id: str, kept: Kept) -> None:
        if self._limit:
            if len(self._kept) >= self._limit:
                self._kept.popitem(last=False)
            self._kept[message_id] = kept

    def query(self, request: QuerySm, now_at: int) -> QuerySmResp:
        """The answer to a query_sm; an unknown id is ESME_RQUERYFAIL."""
        kept = self._kept.get(request.message_id)
        if kept is None:
            return QuerySmResp(command_status=e.RQUERYFAIL)
        if now_at < kept.final_at:
            return QuerySmResp(request.message_id, "", STATES["ENROUTE"], 0)
        return QuerySmResp(request.message_id, date(kept.final_at, _ABSOLUTE), STATES[kept.stat], 0)

    def cancel(self, request: CancelSm, now_at: int) -> CancelSmResp:
        """The answer to a cancel_sm; a message that is unknown or final cannot be canceled."""
        kept = self._kept.get(request.message_id)
        if kept is None or now_at >= kept.final_at:
            return CancelSmResp(command_status=RCANCELFAIL)
        kept.stat, kept.final_at, kept.canceled = "DELETED", now_at, True
        return CancelSmResp()
