"""Sockets that are bound once by the parent and inherited by every worker."""

from __future__ import annotations

import os
import socket

_BACKLOG = 2048


class AddressInUse(Exception):
    """Another program listens there; the text says where and which setting changes it."""


def listen(host: str, port: int, setting: str) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises AddressInUse."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise AddressInUse(
            f"cannot listen on {host}:{port} ({_reason(error)}); another address is set by {setting}"
        ) from error


def _reason(error: OSError) -> str:
    """The system's own words: `create_server` adds the address, which stands before them already."""
    number = error.errno or 0  # a name that does not resolve has a negative one, which is not the system's
    return os.strerror(number) if number > 0 else str(error.strerror or error)


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """Where a browser or curl on this machine finds it."""
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{scheme}://{reachable}:{port}"


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def port_free(port: int) -> bool:
    """True where a loopback listener could be opened there now."""
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
