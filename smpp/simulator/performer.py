"""Carries out the actions of a script or of a command."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from smpp.protocol.pdu import AlertNotification, EnquireLink, SubmitSm
from smpp.simulator.actions import inbound_pdus
from smpp.simulator.outlet import Inbound
from smpp.simulator.receipts import Receipt
from smpp.simulator.settings import Action

if TYPE_CHECKING:
    from smpp.simulator.carrier import Simulator
    from smpp.simulator.esme import Esme

_BACKLOG_DESTINATIONS = 1_000


def repeat(carrier: Simulator, action: Action, esme: Esme | None) -> None:
    """Performs an action of the script, and again after `every_s`; for one session as long as that lasts."""
    if esme is not None and esme not in carrier.esmes:
        return
    carrier.record("action", do=action.do)
    perform(carrier, action, esme)
    if action.every_s is not None:
        carrier.later(action.every_s, repeat, carrier, action, esme)


def perform(carrier: Simulator, action: Action, esme: Esme | None) -> None:
    """Performs it once: for this session, or for all (of the account that the action names)."""
    account = action.arguments.get("system_id")
    if action.do in ("inbound", "backlog"):
        accounts = _accounts(carrier, account, esme)
        carrier.counters["actions_without_receiver"] += not accounts
        for system_id in accounts:
            (_inbound if action.do == "inbound" else _backlog)(carrier, action, system_id)
        return
    for one in [esme] if esme is not None else list(carrier.esmes):
        if account is None or one.system_id == account:
            _disturb(carrier, action, one)


def _accounts(carrier: Simulator, account: str | None, esme: Esme | None) -> list[str]:
    # A message for an account that is away waits for it; without a name it goes to everybody who is there.
    if account is not None:
        return [account] if esme is None or esme.system_id == account else []
    if esme is not None:
        return [esme.system_id]
    return [system_id for system_id, outlet in carrier.outlets.items() if outlet.has_receiver]


def _disturb(carrier: Simulator, action: Action, esme: Esme) -> None:
    link = esme.connection
    given = action.arguments
    if action.do == "cut":
        link.close(reset=given.get("reset", carrier.settings.reset))
    elif action.do == "unbind":
        carrier.unbind(esme)
    elif action.do == "bad_pdu":
        carrier.disturb(esme, given["kind"], 0)
    elif action.do == "probe":
        for _ in range(min(given.get("count", 1), link.window_free)):
            link.submit(EnquireLink(), None)
    elif action.do == "alert" and link.can_send:
        alert = AlertNotification(source_addr=given.get("source", "447700900123"), esme_addr=esme.system_id)
        link.submit(alert, None)


def _inbound(carrier: Simulator, action: Action, system_id: str) -> None:
    count = action.arguments.get("count", 1)
    per_s = action.arguments.get("per_s", 0)

    def send(number: int) -> None:
        if per_s:
            burst = max(1, round(per_s / 1000))
            last = min(count, number + burst - 1)
        else:
            last = count
        for one in range(number, last + 1):
            for pdu in inbound_pdus(action, one):
                carrier.put(Inbound(system_id, pdu))
        if last < count:
            carrier.later((last + 1 - number) / per_s, send, last + 1)

    send(1)


def _backlog(carrier: Simulator, action: Action, system_id: str) -> None:
    submitted_at = time.time_ns() // 1_000_000 - round(action.arguments.get("age_s", 86_400) * 1000)
    for number in range(1, action.arguments.get("count", 1_000) + 1):
        submit = SubmitSm(
            source_addr="backlog",
            source_addr_ton=5,
            destination_addr=f"447700900{number % _BACKLOG_DESTINATIONS:03d}",
            registered_delivery=1,
        )
        carrier.put(Receipt(system_id, f"{carrier.random.getrandbits(64):016x}", submit, submitted_at))
