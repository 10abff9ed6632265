"""Logs hide what must not be logged, whoever logs it."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections.abc import Iterator

import asyncpg
import pytest
import structlog

from gateway import logs
from gateway.sealing import SealBroken


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


# Made here, so that it stands in no line of source that a traceback shows.
SECRET = "yranac"[::-1]


def broken() -> BaseException:
    """An error as PostgreSQL makes it, with a row in it, that came of another one that quotes a text."""
    row = asyncpg.UniqueViolationError("duplicate key")
    row.detail = f"Failing row contains (1, 393331234567, {SECRET})."
    try:
        try:
            int(SECRET)
        except ValueError as cause:
            raise row from cause
    except asyncpg.PostgresError as error:
        return error


def test_a_traceback_names_foreign_exceptions_and_quotes_none(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("debug", "json", role="api", worker="api-1")
    logs.get("test").error("broken", exc_info=broken())
    logging.getLogger("asyncio").error("crashed", exc_info=broken())
    logs.get("test").error("broken", exc_info=BaseExceptionGroup(SECRET, [KeyError(SECRET), broken()]))
    lines = capsys.readouterr().err
    assert SECRET not in lines and "393331234567" not in lines
    assert lines.count("UniqueViolationError [23505]") == 3
    assert lines.count("in broken") >= 3 and "KeyError" in lines and "ValueError" in lines


def test_our_own_words_and_the_systems_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json", role="api", worker="api-1")
    for error in (SealBroken("a key is missing"), FileNotFoundError(2, "No such file", "/etc/policy.yaml")):
        logs.get("test").error("broken", exc_info=error)
    lines = capsys.readouterr().err
    assert "gateway.sealing.SealBroken: a key is missing" in lines and "/etc/policy.yaml" in lines


async def test_what_asyncio_says_of_a_failed_task_quotes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json", role="api", worker="api-1")

    async def fail() -> None:
        raise ValueError(SECRET)

    task = asyncio.ensure_future(fail())
    await asyncio.wait({task})
    del task
    gc.collect()
    await asyncio.sleep(0)
    line = capsys.readouterr().err
    assert "Task exception was never retrieved" in line and "ValueError" in line and SECRET not in line


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    log = logs.get("test")
    for level in ("debug", "info", "warning", "error"):
        getattr(log, level)(f"event_of_{level}")
    return [json.loads(line)["level"] for line in capsys.readouterr().err.splitlines()]


def test_the_level_changes_for_loggers_that_are_there_already(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json", role="api", worker="api-1")
    assert told(capsys) == ["info", "warning", "error"] and not logs.debugging()
    logs.set_level("debug")
    assert told(capsys) == ["debug", "info", "warning", "error"] and logs.debugging()
    logs.set_level("error")
    assert told(capsys) == ["error"] and not logs.debugging()


def test_one_line_has_one_event_time_level_role_and_worker(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json", role="egress", worker="egress-2")
    logs.get("gateway.egress").info("session_bound", session="a1", note="two\nlines \x1b[31m")
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and "\x1b" not in line
    shown = json.loads(line)
    assert {"event", "level", "timestamp", "role", "worker", "module", "session"} <= set(shown)


def test_for_people_a_line_begins_with_its_time_and_names_the_event(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "console", role="egress", worker="egress-2")
    logs.get("gateway.egress").info("session_bound", session="a1", password="canary")
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and "session_bound" in line and "canary" not in line
