"""TLS towards carriers: version 1.2 at least, certificate and host name checked unless the policy says otherwise."""

from __future__ import annotations

import ssl

from gateway.policy.rules.snapshot import TlsFiles

_FILE = "file:"


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """The client context of a session. Raises OSError (ssl.SSLError among them) where a file cannot be used."""
    context = ssl.create_default_context(cafile=_path(files.ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not files.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    cert = _path(files.cert)
    if cert is not None:
        context.load_cert_chain(cert, _path(files.key))
    return context


def _path(reference: str | None) -> str | None:
    return None if reference is None else reference.removeprefix(_FILE)
