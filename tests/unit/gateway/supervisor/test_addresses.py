"""What is said where an address cannot be had."""

from __future__ import annotations

import socket

import pytest

from gateway.supervisor.addresses import AddressInUse, listen


def test_a_taken_port_is_told_once_with_the_setting_that_changes_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressInUse) as told:
            listen("127.0.0.1", port, "SLUICEGATE_PORT")
    expected = f"cannot listen on 127.0.0.1:{port} (Address already in use); another address is set by SLUICEGATE_PORT"
    assert str(told.value) == expected


def test_a_host_that_is_none_is_told_in_the_resolvers_words() -> None:
    with pytest.raises(AddressInUse, match=r"cannot listen on no host:1 \(.*; another address is set by X"):
        listen("no host", 1, "X")
