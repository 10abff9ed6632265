"""Who may bind: credentials, kinds, numbers, and the old session that a carrier still holds."""

from __future__ import annotations

import time

from smpp.protocol import commands as c
from smpp.protocol import errors as e
from smpp.protocol.pdu import TYPES, Bind, BindResp, Pdu
from smpp.simulator.settings import SimulatorSettings

_KINDS = {c.BIND_TRANSCEIVER: "transceiver", c.BIND_TRANSMITTER: "transmitter", c.BIND_RECEIVER: "receiver"}
_SC_INTERFACE_VERSION = 0x0210


class Doorkeeper:
    """One carrier's binds."""

    def __init__(self) -> None:
        self._refused = 0
        self._lost_mono: dict[str, float] = {}

    def judge(self, settings: SimulatorSettings, pdu: Bind, bound: int) -> int | None:
        """The command_status of the answer; None for no answer. `bound` counts the sessions that are bound."""
        if settings.bind_silent:
            return None
        if settings.bind_status and (not settings.bind_refusals or self._refused < settings.bind_refusals):
            self._refused += 1
            return settings.bind_status
        password = settings.password
        if settings.accounts:
            if pdu.system_id not in settings.accounts:
                return e.RINVSYSID
            password = settings.accounts[pdu.system_id]
        if password is not None and pdu.password != password:
            return e.RINVPASWD
        if self._held(settings, pdu.system_id):
            return e.RALYBND
        full = settings.max_binds and bound >= settings.max_binds
        return e.RBINDFAIL if full or _KINDS[pdu.COMMAND_ID] not in settings.bind_kinds else e.ROK

    def _held(self, settings: SimulatorSettings, system_id: str) -> bool:
        lost_mono = self._lost_mono.get(system_id)
        return lost_mono is not None and time.monotonic() - lost_mono < settings.already_bound_s

    def lost(self, system_id: str) -> None:
        """A connection of this account ended without unbind."""
        self._lost_mono[system_id] = time.monotonic()

    @staticmethod
    def response(settings: SimulatorSettings, pdu: Bind, status: int) -> Pdu:
        """The bind response with this status."""
        response = TYPES[c.response_of(pdu.COMMAND_ID)](command_status=status)
        if status == e.ROK and isinstance(response, BindResp):
            response.system_id = settings.system_id
            if settings.sc_interface_version:
                response.tlvs = ((_SC_INTERFACE_VERSION, bytes((settings.sc_interface_version,))),)
        return response
