"""Logs hide what must not be logged, whoever logs it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from gateway import logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    logging.getLogger().handlers.clear()


def test_private_things_are_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("debug", "json", role="api", worker="api-1")
    log = logs.get("test")
    log.info(
        "canary",
        text="canary-text",
        recipient="+393331234567",
        reason="to +393331234567 by sg_0123456789ab_deadbeefdeadbeef1234",
        where="postgresql://user:canary-password@host/db",
        message_id="msg_0199",
    )
    line = capsys.readouterr().err
    shown = json.loads(line)
    assert shown["event"] == "canary"
    assert (shown["role"], shown["worker"], shown["message_id"]) == ("api", "api-1", "msg_0199")
    for secret in ("canary-text", "393331234567", "deadbeef", "canary-password"):
        assert secret not in line


def test_exceptions_are_hidden_too(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json", role="api", worker="api-1")
    try:
        raise ValueError("number +393331234567")
    except ValueError as error:
        logs.get("test").error("broken", exc_info=error)
    assert "393331234567" not in capsys.readouterr().err
