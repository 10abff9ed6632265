"""TLS of a simulated carrier: its certificate, and whose clients it takes."""

from __future__ import annotations

import ssl

from smpp.simulator.settings import SimulatorSettings


def server_context(settings: SimulatorSettings) -> ssl.SSLContext | None:
    """What connections are taken with; None: in clear. Raises OSError or ssl.SSLError for files that cannot be used."""
    if settings.tls_certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    if settings.tls_client_ca is not None:
        context.load_verify_locations(settings.tls_client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
