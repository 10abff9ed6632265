"""How a verb finds the gateway: a local run by its data directory, or the two URLs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from gateway.cli.output import Failed

T = TypeVar("T")
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Data directory of a local run (default ./.sluicegate).", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for programs.")]


def settings_of(**flags: Any) -> Any:
    """Settings from environment and flags; wrong ones are wrong usage (exit code 2)."""
    from gateway.settings import SettingsInvalid, load_settings

    try:
        return load_settings(**flags)
    except SettingsInvalid as error:
        raise Failed(str(error), 2) from error


def local_run(data_dir: Path | None) -> Any:
    """The running gateway of the data directory, None where nothing runs there."""
    from gateway.supervisor.run_file import read

    return read(settings_of(data_dir=data_dir).data_dir)


def store_urls(data_dir: Path | None) -> tuple[str, str]:
    """Database and Redis URLs: configured ones, else those of the local run. Raises Failed."""
    settings = settings_of(data_dir=data_dir)
    if settings.database_url:
        return settings.database_url, settings.redis_url
    run = local_run(data_dir)
    if run is None:
        raise Failed(
            f"nothing runs in {settings.data_dir}: start it with `sluicegate up`,"
            " or set SLUICEGATE_DATABASE_URL and SLUICEGATE_REDIS_URL"
        )
    return run.database_url, run.redis_url


@asynccontextmanager
async def database(data_dir: Path | None) -> AsyncIterator[Any]:
    """A connection to the ledger. Raises Failed where it does not answer."""
    import asyncpg

    from gateway.ledger.connect import connect

    url, _ = store_urls(data_dir)
    try:
        connection = await connect(url)
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise Failed(f"PostgreSQL does not answer: {error}") from error
    try:
        yield connection
    except asyncpg.UndefinedTableError as error:
        raise Failed("the database has no schema yet: run `sluicegate migrate`") from error
    finally:
        await connection.close()


class Operators:
    """The operators' port as a client; by the local run's own token, or by address and key from the environment."""

    def __init__(self, data_dir: Path | None) -> None:
        settings = settings_of(data_dir=data_dir)
        run = local_run(data_dir)
        if settings.admin_url or run is None:
            if settings.admin_key is None:
                raise Failed(
                    f"nothing runs in {settings.data_dir}: start it with `sluicegate up`,"
                    " or set SLUICEGATE_ADMIN_URL and SLUICEGATE_ADMIN_KEY"
                )
            self.url = settings.admin_url.rstrip("/") or f"http://{settings.admin_host}:{settings.admin_port}"
            self._key = settings.admin_key.get_secret_value()
        else:
            self.url, self._key = run.operators_url, run.operators_token

    async def ask(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
    ) -> tuple[int, Any]:
        """One call: status and parsed answer. Raises Failed where the port does not answer."""
        import orjson

        status, raw = await self._call(method, path, body, kind)
        try:
            return status, orjson.loads(raw) if raw else None
        except orjson.JSONDecodeError:
            return status, {"title": raw.decode(errors="replace")[:200]}

    async def page(self, path: str) -> str:
        """A page of text, empty where there is none. Raises Failed where the port does not answer."""
        status, raw = await self._call("GET", path, None, "text/plain")
        return raw.decode(errors="replace") if status == 200 else ""

    async def _call(self, method: str, path: str, body: bytes | None, kind: str) -> tuple[int, bytes]:
        import aiohttp

        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": kind}
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as client,
                client.request(method, self.url + path, data=body, headers=headers) as answer,
            ):
                return answer.status, await answer.read()
        except (OSError, TimeoutError, aiohttp.ClientError) as error:
            raise Failed(f"the operators' port at {self.url} does not answer ({type(error).__name__})") from error


def check_message_id(given: str) -> None:
    """Raises Failed (wrong usage) for what is no message's id, and says where numbers are looked for."""
    if not given.startswith("msg_"):
        raise Failed(
            "a message's id begins with msg_; by number a tenant lists them with GET /v1/messages?to=NUMBER,"
            " and the console searches by either",
            2,
        )


def refused(answer: Any) -> Failed:
    """The failure that a problem stands for."""
    if not isinstance(answer, dict):
        return Failed("refused")
    faults = answer.get("errors") or []
    told = []
    for fault in faults:
        where = [str(fault.get("pointer", "")).lstrip("/") or "body"]
        if "line" in fault:  # 0 and "": of the document as a whole
            where = [f"line {fault['line']}" if fault["line"] else "", str(fault.get("path") or "")]
        told.append(": ".join([*(part for part in where if part), str(fault.get("message"))]))
    # Fields speak for themselves; a policy's faults need to be told what they are.
    if faults and answer.get("code") != "policy.invalid":
        return Failed("\n".join(told))
    lines = [str(answer.get("detail") or answer.get("title") or "refused"), *(f"  {line}" for line in told)]
    return Failed("\n".join(lines))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a verb's work."""
    return asyncio.run(work)
