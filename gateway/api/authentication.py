"""Who calls: the bearer key, its scope, and the address it comes from (contract section 2; reliability 5.1-5.6)."""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from gateway.admission.problems import AUTH_REQUIRED, STORAGE, Problem
from gateway.api.desk import TenantRef
from gateway.api.exchange import Exchange
from gateway.clock import Clock
from gateway.ledger.connect import LEDGER_ERRORS
from gateway.ledger.keys import Key, KeyRing

_BEARER: Final = "bearer "
_FAILURES_PER_S, _FAILURES_BURST = 5.0, 50.0
_WATCHED_MAX: Final = 10_000


class Authentication:
    """Turns a request into a tenant, or into a problem."""

    def __init__(self, keys: KeyRing, clock: Clock, trusted_proxies: str = "") -> None:
        self._keys = keys
        self._failures = Failures(clock)
        self._proxies = tuple(ip_network(part.strip()) for part in trusted_proxies.split(",") if part.strip())

    async def tenant(self, exchange: Exchange, scope: str) -> TenantRef | Problem:
        """The tenant whose key the request carries, when that key has the scope."""
        address = self.address(exchange)
        written = exchange.header(b"authorization") or ""
        # An address that fails and fails is no longer worth a look into the ledger; its answer does not change.
        if written[: len(_BEARER)].lower() != _BEARER or self._failures.too_many(address):
            return AUTH_REQUIRED
        try:
            key = await self._keys.verify(written[len(_BEARER) :].strip())
        except LEDGER_ERRORS:
            return STORAGE
        if key is None:
            self._failures.note(address)
            return AUTH_REQUIRED
        return _tenant_of(key, scope, address)

    def address(self, exchange: Exchange) -> str | None:
        """Where a request comes from; X-Forwarded-For counts only as far as trusted proxies wrote it."""
        address = exchange.peer
        if not self._proxies or not _inside(address, self._proxies):
            return address
        for hop in reversed((exchange.header(b"x-forwarded-for") or "").split(",")):
            if not hop.strip():
                break
            address = hop.strip()
            if not _inside(address, self._proxies):
                break
        return address


class Failures:
    """Wrong keys per address: a bucket that lets 50 go at once and 5 per second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spent: OrderedDict[str | None, tuple[float, float]] = OrderedDict()

    def too_many(self, address: str | None) -> bool:
        """Whether the address has spent what it may fail."""
        return bool(self._spent) and self._level(address) >= _FAILURES_BURST

    def note(self, address: str | None) -> None:
        """One more failure."""
        self._spent[address] = (self._level(address) + 1.0, self._clock.now_mono())
        self._spent.move_to_end(address)
        if len(self._spent) > _WATCHED_MAX:
            self._spent.popitem(last=False)

    def _level(self, address: str | None) -> float:
        held = self._spent.get(address)
        return 0.0 if held is None else max(0.0, held[0] - (self._clock.now_mono() - held[1]) * _FAILURES_PER_S)


def _tenant_of(key: Key, scope: str, address: str | None) -> TenantRef | Problem:
    if not key.allows_address(address):
        return Problem("auth.scope", "This key may not be used from this address.")
    if key.tenant_id is None or key.tenant is None:
        return Problem("auth.scope", "An operators' key works on the operators' port only.")
    if scope not in key.scopes:
        return Problem("auth.scope", f"This call needs the scope {scope}.", members={"scope": scope})
    return TenantRef(key.tenant_id, key.tenant)


def _inside(address: str | None, networks: tuple[IPv4Network | IPv6Network, ...]) -> bool:
    try:
        source = ip_address(address or "")
    except ValueError:
        return False
    return any(source in network for network in networks)
