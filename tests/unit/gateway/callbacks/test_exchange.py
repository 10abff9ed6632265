"""The octets of a callback's request: nothing in a URL or a header can begin a line of its own."""

from __future__ import annotations

import pytest
from yarl import URL

from gateway.callbacks.exchange import head_of, request_of


def test_a_request_is_its_head_its_headers_and_the_body() -> None:
    request = request_of(head_of(URL("http://cb.example/a?b=c%20d"), "cb.example"), {"webhook-id": "evt_1"}, b"{}\r\n")
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[:2] == [b"POST /a?b=c%20d HTTP/1.1", b"host: cb.example"]
    assert lines[-2:] == [b"webhook-id: evt_1", b"content-length: 4"]
    assert body == b"{}\r\n"


@pytest.mark.parametrize("value", ["a\r\nhost: other", "a\nb", "a\rb", "a\0b", "a\x7fb"])
def test_a_value_with_a_control_character_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="header"):
        request_of("POST / HTTP/1.1\r\n", {"webhook-id": value}, b"")


@pytest.mark.parametrize("path", ["/a\r\nhost: other", "/a b", "/a\0"])
def test_a_target_that_would_end_its_line_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        head_of(URL.build(scheme="http", host="cb.example", path=path, encoded=True), "cb.example")


def test_a_host_that_would_end_its_line_is_refused() -> None:
    with pytest.raises(ValueError, match="URL"):
        head_of(URL("http://cb.example/"), "cb.example\r\nx: y")
