"""The tenant port with TLS: served, renewed without a restart, and bounded before the handshake is over."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway import http_server
from gateway.api import certificate
from gateway.api.certificate import certificate_of
from gateway.runtime import StartRefused
from gateway.settings import Settings
from tests.integration.api.conftest import Gateway, running
from tests.integration.smpp.authority import Authority

MESSAGE = {"to": "+447700900123", "from": "ACME", "text": "hi"}


async def serial(gateway: Gateway, trusted: ssl.SSLContext) -> bytes:
    """The certificate that a new connection meets."""
    url = urlsplit(gateway.base)
    _, writer = await asyncio.open_connection(url.hostname, url.port, ssl=trusted)
    met = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return bytes(met)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0.05)


async def test_a_renewed_certificate_is_taken_over_and_a_bad_one_is_not(
    database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate, "LOOK_S", 0.05)
    monkeypatch.setattr(http_server, "_HANDSHAKE_S", 1.0)
    authority = Authority(tmp_path)
    made = {name: authority.certificate(name) for name in ("first", "second", "third")}
    pem, key = tmp_path / "tls.pem", tmp_path / "tls.key"

    def install(certificate_of: str, key_of: str) -> None:
        for source, target in ((made[certificate_of][0], pem), (made[key_of][1], key)):
            shutil.copyfile(source, target.with_suffix(".new"))
            target.with_suffix(".new").replace(target)

    install("first", "first")
    trusted = ssl.create_default_context(cafile=str(authority.pem))
    async with running(database_url, redis_url, tls_certificate=pem, tls_key=key) as gateway:
        gateway.base = gateway.base.replace("http://", "https://")
        reply = await gateway.send(MESSAGE, ssl=trusted)
        assert reply.status == 202
        first = await serial(gateway, trusted)

        install("second", "second")

        async def renewed() -> bool:
            return await serial(gateway, trusted) != first

        await until(renewed)
        second = await serial(gateway, trusted)
        install("third", "second")  # a certificate without its key
        await asyncio.sleep(0.5)
        assert await serial(gateway, trusted) == second
        assert (await gateway.send(MESSAGE, ssl=trusted)).status == 202  # the connection from before goes on

        url = urlsplit(gateway.base)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)  # says nothing
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        writer.close()


def test_files_that_are_no_certificate_are_told_at_start(tmp_path: Path) -> None:
    pem, key = tmp_path / "a.pem", tmp_path / "a.key"
    pem.write_text("canary")
    key.write_text("canary")
    with pytest.raises(StartRefused, match=r"a\.pem.*a\.key") as told:
        certificate_of(Settings(tls_certificate=pem, tls_key=key))
    assert "canary" not in str(told.value)
    assert certificate_of(Settings()) is None
