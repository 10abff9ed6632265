"""The page of a supervised role, asked as the supervisor asks it and as nobody should."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.operators.app import fetch
from gateway.operators.desk import Neighbour
from gateway.operators.inner_page import InnerPage


class _Role:
    reason: str | None = None

    async def not_ready(self) -> str | None:
        return self.reason


@pytest.fixture
async def page() -> AsyncIterator[tuple[_Role, str]]:
    role: Any = _Role()
    with tempfile.TemporaryDirectory() as directory:  # a unix socket's path must be short
        path = str(Path(directory) / "role.sock")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(4)
            async with InnerPage(role, listener):
                yield role, path


async def test_it_tells_health_readiness_and_metrics(page: tuple[_Role, str]) -> None:
    role, path = page
    neighbour = Neighbour("egress", "egress-1", path)
    assert await fetch(neighbour, "/healthz") == (200, '{"status":"ok"}')
    assert await fetch(neighbour, "/readyz") == (200, '{"status":"ready"}')
    role.reason = "PostgreSQL does not answer"
    told = await fetch(neighbour, "/readyz")
    assert told is not None and told[0] == 503 and role.reason in told[1]
    metrics = await fetch(neighbour, "/metrics")
    assert metrics is not None and "sluicegate_admissions_total" in metrics[1]
    assert await fetch(neighbour, "/console") == (404, "{}")


@pytest.mark.parametrize(
    "said", [b"", b"\r\n\r\n", b"nonsense\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n", b"x" * 40_000]
)
async def test_a_strange_request_harms_nobody(page: tuple[_Role, str], said: bytes) -> None:
    _, path = page
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(said)
    writer.write_eof()
    try:
        answer = await reader.read()
    except ConnectionResetError:  # closed with octets unread
        answer = b""
    writer.close()
    assert answer == b"" or answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 405"))
    assert await fetch(Neighbour("egress", "egress-1", path), "/healthz") is not None
