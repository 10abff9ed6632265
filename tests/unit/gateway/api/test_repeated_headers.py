"""A header in several lines is a list in their order (RFC 9110, section 5.3), never its first line alone."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway.admission import idempotency_keys
from gateway.admission.problems import IDEMPOTENCY_MALFORMED
from gateway.api.authentication import Authentication
from gateway.api.exchange import Exchange
from gateway.clock import Clock


def exchange(*lines: tuple[bytes, bytes]) -> Exchange:
    return Exchange({"type": "http", "headers": list(lines), "client": ("10.0.0.1", 5)})


def test_a_header_that_is_not_there_or_stands_once() -> None:
    assert exchange().header(b"accept") is None
    assert exchange((b"accept", b"text/csv"), (b"x", b"y")).header(b"accept") == "text/csv"


@pytest.mark.parametrize("second", [b"two", b"one"])
def test_two_idempotency_keys_name_no_key(second: bytes) -> None:
    both = exchange((b"idempotency-key", b"one"), (b"idempotency-key", second))
    assert idempotency_keys.read(both.header(b"idempotency-key")) is IDEMPOTENCY_MALFORMED


@pytest.mark.parametrize(
    ("lines", "address"),
    [
        (["192.0.2.7"], "192.0.2.7"),
        (["198.51.100.1", "192.0.2.7"], "192.0.2.7"),  # the proxy's own line stands behind the client's
        (["198.51.100.1, 203.0.113.9", "192.0.2.7, 10.0.0.2"], "192.0.2.7"),
        ([], "10.0.0.1"),
    ],
)
def test_an_address_that_a_client_wrote_in_front_of_its_proxy_does_not_count(lines: list[str], address: str) -> None:
    asked = exchange(*((b"x-forwarded-for", line.encode()) for line in lines))
    authentication = Authentication(cast(Any, None), Clock(), "10.0.0.0/8")
    assert authentication.address(asked) == address
