"""One attempt to connect and bind, and how long to wait for the next one.

Waits are full jitter, before the first try too: processes that start together must not bind together. A carrier that
still holds the old session (ESME_RALYBND) needs time to notice that it is gone: the waits are longer then and never
near zero (case S20).
"""

from __future__ import annotations

from typing import Final

from gateway.egress.tls import tls_context
from gateway.policy.rules.snapshot import Session
from gateway.policy.secrets import resolve
from smpp.link import Connection, LinkHandler, LinkSettings, connect
from smpp.protocol.errors import RALYBND

ALARM_AFTER: Final = 5  # refusals in a row, after which a person should know
_HELD_FACTOR: Final = 5  # 5, 10, 20 ... times the base while the old session is held
_DOUBLINGS_MAX: Final = 16


class Patience:
    """How long to wait before the next attempt; durations in seconds."""

    def __init__(self, base_ms: int, max_ms: int) -> None:
        self._base_ms = base_ms
        self._max_ms = max_ms
        self._tries = 0
        self._held = 0

    @property
    def held(self) -> int:
        """How often in a row the carrier said that the account is bound already."""
        return self._held

    def wait_s(self, jitter: float) -> float:
        """The wait before the next attempt; `jitter` is 0 to 1."""
        if self._held:
            ceiling_ms = self._ceiling_ms(self._base_ms * _HELD_FACTOR, self._held - 1)
            return ceiling_ms * (0.5 + 0.5 * jitter) / 1000
        return self._ceiling_ms(self._base_ms, self._tries) * jitter / 1000

    def failed(self, command_status: int | None = None) -> None:
        """An attempt failed; `command_status` where the carrier refused the bind."""
        self._tries += 1
        self._held = self._held + 1 if command_status == RALYBND else 0

    def bound(self) -> None:
        """An attempt succeeded."""
        self._tries = self._held = 0

    def _ceiling_ms(self, base_ms: int, doublings: int) -> int:
        return min(self._max_ms, base_ms << min(doublings, _DOUBLINGS_MAX))


async def open_bound(session: Session, handler: LinkHandler) -> Connection:
    """Connects and binds; the handler hears of the link's end in any case.

    Raises BindRefused, LinkLost, TimeoutError, OSError (ssl.SSLError among them), SecretMissing, or PduInvalid where a
    bind field does not fit.
    """
    password = resolve(session.password)
    settings = LinkSettings(
        window=session.window,
        enquire_link_s=session.enquire_link_ms / 1000,
        response_timeout_s=session.response_timeout_ms / 1000,
        inactivity_s=session.inactivity_ms / 1000,
    )
    tls = tls_context(session.tls) if session.tls is not None else None
    link = await connect(session.host, session.port, tls=tls, settings=settings, handler=handler)
    try:
        await link.bind(session.bind, session.system_id, password, session.system_type)
    except BaseException:
        link.close()
        raise
    return link
