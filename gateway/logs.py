"""Structured logs: one event name per line, ids and names only (house style; never a text, a number or a secret)."""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Mapping, MutableMapping
from typing import Any

import structlog

HIDDEN = "[hidden]"
_FORBIDDEN = frozenset({
    "text", "body", "to", "from", "number", "recipient", "sender", "msisdn",
    "destination_addr", "source_addr", "short_message",
    "key", "api_key", "password", "secret", "token", "authorization", "url",
})  # fmt: skip
_NUMBER = re.compile(r"\+\d{6,15}\b")
_KEY = re.compile(r"\bsg_[0-9a-f]{12}_[0-9a-f]{8,}")
_REPR = re.compile(r"\b((?:exception|result)=).*", re.DOTALL)  # how asyncio shows a task that failed
_OWN = ("gateway.", "smpp.", "scheduler.")
_CREDENTIALS = re.compile(r"://[^/@\s]*@")


def configure(level: str = "info", log_format: str = "auto", **bound: str) -> None:
    """Sets logging up for this process; `bound` (role, worker) stands on every line."""
    as_json = log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())
    numeric = getattr(logging, level.upper())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.ExceptionRenderer(told),
        hide_private,
    ]
    last: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    )
    structlog.configure(
        processors=[*shared, last],
        wrapper_class=structlog.make_filtering_bound_logger(numeric),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**bound)
    _state.debugging = numeric <= logging.DEBUG
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, last]
        )
    )
    logging.basicConfig(handlers=[handler], level=max(numeric, logging.WARNING), force=True)


def set_level(level: str) -> None:
    """Changes how much is told from the next line on: `debug`, `info`, `warning` or `error`."""
    numeric = getattr(logging, level.upper())
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(numeric))
    logging.getLogger().setLevel(max(numeric, logging.WARNING))
    _state.debugging = numeric <= logging.DEBUG


def debugging() -> bool:
    """Whether lines of level debug are told: hot paths ask before they gather what to tell."""
    return _state.debugging


class _State:
    debugging = False


_state = _State()


def hide_private(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """A structlog processor that hides what must not be logged, whoever put it there."""
    for name, value in event.items():
        if name in _FORBIDDEN:
            event[name] = HIDDEN
        elif isinstance(value, str):
            shown = _CREDENTIALS.sub("://" + HIDDEN + "@", _KEY.sub(HIDDEN, _NUMBER.sub(HIDDEN, value)))
            event[name] = _REPR.sub(rf"\1{HIDDEN}", shown) if name == "event" else shown
    return event


def told(exc_info: structlog.typing.ExcInfo) -> str:
    """A traceback whose foreign exceptions are named, not quoted: `DETAIL: Failing row contains ...` is a row.

    Ours quote nothing that is private, and what the system says (OSError) is about files and sockets.
    """
    pieces: list[str] = []
    error: BaseException | None = exc_info[1]
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        frames = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)))
        pieces.append(f"Traceback (most recent call last):\n{frames}{_named(error)}")
        for one in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
            pieces.append("One of the group:\n" + told((type(one), one, one.__traceback__)))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n\nwhich came of this, the earlier one:\n\n".join(pieces)


def _named(error: BaseException) -> str:
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        return f"{name} [{state}]"
    if kind.__module__.startswith(_OWN) or (isinstance(error, OSError) and error.strerror is not None):
        return f"{name}: {error}"
    return name


def get(name: str) -> structlog.typing.FilteringBoundLogger:
    """The logger of one module."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(module=name)
    return logger
