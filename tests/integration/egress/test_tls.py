"""TLS towards a carrier, with a certificate authority made for the test."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.egress.tls import tls_context
from gateway.policy.rules.snapshot import TlsFiles
from smpp.simulator import SimulatorSettings
from tests.integration.egress.world import PolicyText, World, open_world, until
from tests.integration.smpp.authority import Authority


def _carrier(made: Authority, *, client_ca: bool = False) -> SimulatorSettings:
    pem, key = made.certificate("carrier")
    ca = str(made.pem) if client_ca else None
    return SimulatorSettings(
        port=0, receipts=False, seed=7, tls_certificate=str(pem), tls_key=str(key), tls_client_ca=ca
    )


async def _is_sent(world: World) -> None:
    ids = await world.put(["over TLS"])
    await world.until_status(ids, "sent")


async def _fails(world: World, rt: object) -> str:
    """The session's error once it tried; nothing may be bound."""

    async def tried() -> bool:
        return bool(_error(rt))

    await until(tried)
    await asyncio.sleep(0.3)
    assert world.carrier.bound == 0 and world.carrier.counters["submits"] == 0
    return _error(rt)


def _error(rt: object) -> str:
    sessions = getattr(rt, "report", {}).get("sessions", {})
    return str(sessions.get("s1", {}).get("last_error") or "")


async def test_an_authority_of_ones_own_and_a_client_certificate(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    made = Authority(tmp_path)
    pem, key = made.certificate("client")

    def text(port: int) -> PolicyText:
        return PolicyText(port, session=f"tls: {{ca: 'file:{made.pem}', cert: 'file:{pem}', key: 'file:{key}'}}")

    async with open_world(database_url, redis_url, _carrier(made, client_ca=True), text) as world, world.egress():
        await _is_sent(world)


async def test_a_certificate_of_a_stranger_is_refused(database_url: str, redis_url: str, tmp_path: Path) -> None:
    made, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")

    def text(port: int) -> PolicyText:
        return PolicyText(port, session=f"tls: {{ca: 'file:{stranger.pem}'}}")

    async with open_world(database_url, redis_url, _carrier(made), text) as world, world.egress() as rt:
        assert "SSLCertVerificationError" in await _fails(world, rt)


async def test_a_certificate_for_another_host_is_refused(database_url: str, redis_url: str, tmp_path: Path) -> None:
    made = Authority(tmp_path)

    def text(port: int) -> PolicyText:
        return PolicyText(port, host="localhost", session=f"tls: {{ca: 'file:{made.pem}'}}")

    async with open_world(database_url, redis_url, _carrier(made), text) as world, world.egress() as rt:
        assert "SSLCertVerificationError" in await _fails(world, rt)


async def test_verify_false_takes_any_certificate(database_url: str, redis_url: str, tmp_path: Path) -> None:
    made = Authority(tmp_path)

    def text(port: int) -> PolicyText:
        return PolicyText(port, host="localhost", session="tls: {verify: false}")

    async with open_world(database_url, redis_url, _carrier(made), text) as world, world.egress():
        await _is_sent(world)


def test_a_key_without_its_certificate_is_an_error_that_names_no_secret(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("not a certificate")
    with pytest.raises(OSError, match="PEM") as raised:
        tls_context(TlsFiles(cert=f"file:{broken}", key=f"file:{broken}"))
    assert "not a certificate" not in str(raised.value)
