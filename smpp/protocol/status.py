"""command_status: its name, what it says, and what follows for the message and the link (SMPP 3.4, 5.1.3).

The consequences are those of reliability.md 3.2, with one change of design.md section 3: ESME_RMSGQFUL retries the
message later and does not slow the session by itself. A carrier's own meaning comes in as overrides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from smpp.values import valueclass

ESME_ROK = 0x00000000
ESME_RMSGQFUL = 0x00000014
ESME_RTHROTTLED = 0x00000058


@valueclass
class Consequence:
    """What a command_status of a submit_sm_resp, bind response or generic_nack asks for.

    `kind`: accepted; throttle (slow the session, the message keeps place and attempts); later (a delayed retry);
    never (the message is refused for good); hold (the link or account is at fault, the message goes back unspent).
    `delay_ms`: the least delay before the next try, None where the retry rules alone decide.
    `repeats_max`: how often one message may get this answer before it counts as never; None: as attempts allow.
    `holds`: what else should rest (session | route | account). `stop`: no reconnect by itself, a person must look.
    `alert`: our configuration or encoding is to blame.
    """

    kind: str
    delay_ms: int | None = None
    repeats_max: int | None = None
    holds: str | None = None
    stop: bool = False
    alert: bool = False


class Override(Protocol):
    """A provider's own meaning of a status."""

    @property
    def retry(self) -> str: ...
    @property
    def delay_ms(self) -> int | None: ...


ACCEPTED = Consequence("accepted")
THROTTLE = Consequence("throttle", delay_ms=1_000)
LATER = Consequence("later")
NEVER = Consequence("never")
NEVER_ALERT = Consequence("never", alert=True)
HOLD_SESSION = Consequence("hold", holds="session", alert=True)
HOLD_SESSION_ONCE = Consequence("hold", holds="session", alert=True, repeats_max=1)
HOLD_ACCOUNT = Consequence("hold", holds="account", stop=True, alert=True)
ROUTE_REFUSED = Consequence("never", holds="route", alert=True)

# code: name without ESME_, meaning, consequence
_TABLE: dict[int, tuple[str, str, Consequence]] = {
    0x00: ("ROK", "accepted", ACCEPTED),
    0x01: ("RINVMSGLEN", "message length is invalid", NEVER_ALERT),
    0x02: ("RINVCMDLEN", "command length is invalid", HOLD_SESSION_ONCE),
    0x03: ("RINVCMDID", "command id is invalid", HOLD_SESSION_ONCE),
    0x04: ("RINVBNDSTS", "wrong bind state for this command", HOLD_SESSION),
    0x05: ("RALYBND", "already bound", HOLD_SESSION),
    0x06: ("RINVPRTFLG", "priority flag is invalid", NEVER_ALERT),
    0x07: ("RINVREGDLVFLG", "registered delivery flag is invalid", NEVER_ALERT),
    0x08: ("RSYSERR", "system error at the carrier", Consequence("later", repeats_max=3)),
    0x0A: ("RINVSRCADR", "source address is invalid", NEVER),
    0x0B: ("RINVDSTADR", "destination address is invalid", NEVER),
    0x0C: ("RINVMSGID", "message id is invalid", NEVER),
    0x0D: ("RBINDFAIL", "bind failed", HOLD_SESSION),
    0x0E: ("RINVPASWD", "password is invalid", HOLD_ACCOUNT),
    0x0F: ("RINVSYSID", "system id is invalid", HOLD_ACCOUNT),
    0x11: ("RCANCELFAIL", "cancel failed", NEVER),
    0x13: ("RREPLACEFAIL", "replace failed", NEVER),
    0x14: ("RMSGQFUL", "message queue is full", LATER),
    0x15: ("RINVSERTYP", "service type is invalid", NEVER_ALERT),
    0x33: ("RINVNUMDESTS", "number of destinations is invalid", NEVER),
    0x34: ("RINVDLNAME", "distribution list name is invalid", NEVER),
    0x40: ("RINVDESTFLAG", "destination flag is invalid", NEVER),
    0x42: ("RINVSUBREP", "submit with replace is invalid", NEVER),
    0x43: ("RINVESMCLASS", "esm_class is invalid", NEVER),
    0x44: ("RCNTSUBDL", "cannot submit to the distribution list", NEVER),
    0x45: ("RSUBMITFAIL", "submit failed", NEVER),
    0x48: ("RINVSRCTON", "source type of number is invalid", NEVER_ALERT),
    0x49: ("RINVSRCNPI", "source numbering plan is invalid", NEVER_ALERT),
    0x50: ("RINVDSTTON", "destination type of number is invalid", NEVER_ALERT),
    0x51: ("RINVDSTNPI", "destination numbering plan is invalid", NEVER_ALERT),
    0x53: ("RINVSYSTYP", "system type is invalid", HOLD_ACCOUNT),
    0x54: ("RINVREPFLAG", "replace if present flag is invalid", NEVER),
    0x55: ("RINVNUMMSGS", "number of messages is invalid", NEVER),
    0x58: ("RTHROTTLED", "too many requests", THROTTLE),
    0x61: ("RINVSCHED", "scheduled delivery time is invalid", NEVER_ALERT),
    0x62: ("RINVEXPIRY", "validity period is invalid", NEVER_ALERT),
    0x63: ("RINVDFTMSGID", "predefined message id is invalid", NEVER),
    0x64: ("RX_T_APPN", "temporary error of the receiver", LATER),
    0x65: ("RX_P_APPN", "permanent error of the receiver", NEVER),
    0x66: ("RX_R_APPN", "rejected by the receiver", NEVER),
    0x67: ("RQUERYFAIL", "query failed", NEVER),
    0xC0: ("RINVOPTPARSTREAM", "optional parameters are invalid", NEVER_ALERT),
    0xC1: ("ROPTPARNOTALLWD", "optional parameter is not allowed", NEVER_ALERT),
    0xC2: ("RINVPARLEN", "parameter length is invalid", NEVER_ALERT),
    0xC3: ("RMISSINGOPTPARAM", "expected optional parameter is missing", NEVER_ALERT),
    0xC4: ("RINVOPTPARAMVAL", "optional parameter value is invalid", NEVER_ALERT),
    0xFE: ("RDELIVERYFAILURE", "delivery failed", NEVER),
    0xFF: ("RUNKNOWNERR", "unknown error", Consequence("later", repeats_max=1)),
    # SMPP 5.0
    0x100: ("RSERTYPUNAUTH", "service type is not authorised", ROUTE_REFUSED),
    0x101: ("RPROHIBITED", "operation is prohibited", ROUTE_REFUSED),
    0x102: ("RSERTYPUNAVAIL", "service type is unavailable", LATER),
    0x103: ("RSERTYPDENIED", "service type is denied", ROUTE_REFUSED),
    0x104: ("RINVDCS", "data coding is invalid", NEVER),
    0x105: ("RINVSRCADDRSUBUNIT", "source address subunit is invalid", NEVER),
    0x106: ("RINVDSTADDRSUBUNIT", "destination address subunit is invalid", NEVER),
    0x107: ("RINVBCASTFREQINT", "broadcast frequency interval is invalid", NEVER),
    0x108: ("RINVBCASTALIAS_NAME", "broadcast alias name is invalid", NEVER),
    0x109: ("RINVBCASTAREAFMT", "broadcast area format is invalid", NEVER),
    0x10A: ("RINVNUMBCAST_AREAS", "number of broadcast areas is invalid", NEVER),
    0x10B: ("RINVBCASTCNTTYPE", "broadcast content type is invalid", NEVER),
    0x10C: ("RINVBCASTMSGCLASS", "broadcast message class is invalid", NEVER),
    0x10D: ("RBCASTFAIL", "broadcast failed", NEVER),
    0x10E: ("RBCASTQUERYFAIL", "broadcast query failed", NEVER),
    0x10F: ("RBCASTCANCELFAIL", "broadcast cancel failed", NEVER),
    0x110: ("RINVBCAST_REP", "broadcast repetition is invalid", NEVER),
    0x111: ("RINVBCASTSRVGRP", "broadcast service group is invalid", NEVER),
    0x112: ("RINVBCASTCHANIND", "broadcast channel indicator is invalid", NEVER),
}

NAMES: dict[int, str] = {code: f"ESME_{row[0]}" for code, row in _TABLE.items()}

_OVERRIDDEN = {
    "throttle": THROTTLE,
    "later": LATER,
    "never": NEVER,
    "hold": Consequence("hold", holds="session"),
}


def describe(status: int) -> str:
    """Name, code and meaning for a person, such as `ESME_RTHROTTLED 0x58: too many requests`."""
    row = _TABLE.get(status)
    if row is None:
        return f"0x{status:X}: the carrier's own code"
    return f"ESME_{row[0]} 0x{status:02X}: {row[1]}"


def consequence(status: int, overrides: Mapping[int, Override] | None = None) -> Consequence:
    """What follows from a status; unlisted and vendor codes (0x400 to 0x4FF) refuse the message unless overridden."""
    override = overrides.get(status) if overrides else None
    row = _TABLE.get(status)
    usual = row[2] if row is not None else NEVER
    if override is None:
        return usual
    base = _OVERRIDDEN[override.retry]
    delay_ms = base.delay_ms if override.delay_ms is None else override.delay_ms
    # Another delay is no reason to try for ever what the table bounds.
    repeats_max = usual.repeats_max if usual.kind == base.kind else base.repeats_max
    return Consequence(base.kind, delay_ms, repeats_max, base.holds, base.stop, base.alert)
