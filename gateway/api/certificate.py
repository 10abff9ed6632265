"""TLS of the tenant port: a certificate and its key, read again when the files change (a renewed certificate)."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Final

from gateway import logs
from gateway.runtime import StartRefused
from gateway.settings import Settings

LOOK_S: Final = 5.0
_log = logs.get("tls")


class Certificate:
    """One server context. New connections meet the newest certificate; open ones keep theirs."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Raises StartRefused, which names the files and never what is in them."""
        self._certificate = certificate
        self._key = key
        self._stamp = self._look()
        self.context = self._read()

    async def follow(self) -> None:
        """Takes over a renewed certificate within seconds; one that cannot be used is told and the old one stays."""
        while True:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(self.renew)

    def renew(self) -> bool:
        """Whether the files changed and what is in them is in use now."""
        stamp = self._look()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._read()  # the pair is proved on a context of its own: half a pair must not reach the one in use
            self.context.load_cert_chain(self._certificate, self._key)
        except (StartRefused, OSError) as error:
            _log.error("certificate_not_renewed", file=str(self._certificate), error=type(error).__name__)
            return False
        _log.info("certificate_renewed", file=str(self._certificate))
        return True

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            # An encrypted key would make OpenSSL ask on the terminal.
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise StartRefused(
                f"SLUICEGATE_TLS_CERTIFICATE ({self._certificate}) and SLUICEGATE_TLS_KEY ({self._key}) are no PEM"
                f" certificate with its unencrypted key ({type(error).__name__})"
            ) from None
        return context

    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp(path) for path in (self._certificate, self._key))


def certificate_of(settings: Settings) -> Certificate | None:
    """The tenant port's certificate, None where it speaks plain HTTP; raises StartRefused."""
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    return Certificate(settings.tls_certificate, settings.tls_key)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _no_password() -> str:
    raise ValueError("the key is encrypted")
