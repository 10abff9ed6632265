"""Verbs that run one role or prepare the database: api, egress, delivery, carrier-sim, migrate."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.connection import AsJson, DataDir, run, settings_of, store_urls
from gateway.cli.output import Failed, tell, tell_json

Worker = Annotated[
    str | None,
    typer.Option("--worker", help="Name of this process in status and metrics (default ROLE-PID).", show_default=False),
]


def api(
    worker: Worker = None,
    data_dir: DataDir = None,
    fd: Annotated[
        int | None, typer.Option("--fd", help="Inherited listening socket of the tenant port.", hidden=True)
    ] = None,
) -> None:
    """HTTP and admission, in the foreground.

    Example: SLUICEGATE_DATABASE_URL=... SLUICEGATE_REDIS_URL=... sluicegate api
    """
    run_role("api", worker, data_dir, fd)


def egress(worker: Worker = None, data_dir: DataDir = None) -> None:
    """Scheduler and SMPP sessions, in the foreground.

    Example: SLUICEGATE_DATABASE_URL=... SLUICEGATE_REDIS_URL=... sluicegate egress
    """
    run_role("egress", worker, data_dir, None)


def delivery(worker: Worker = None, data_dir: DataDir = None) -> None:
    """Receipt merging, callbacks, sweeps and promoting, in the foreground.

    Example: SLUICEGATE_DATABASE_URL=... SLUICEGATE_REDIS_URL=... sluicegate delivery
    """
    run_role("delivery", worker, data_dir, None)


def migrate(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Bring the database to the newest schema; safe twice and by several at once.

    Example: SLUICEGATE_DATABASE_URL=postgresql://... sluicegate migrate
    """
    made = run(_migrate(data_dir))
    if as_json:
        tell_json({"applied": made})
    else:
        tell("\n".join(f"applied {name}" for name in made) or "nothing to do")


def carrier_sim(
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="SMPP port (default 2775, or what the script says).",
            show_default=False,
        ),
    ] = None,
    script: Annotated[
        Path | None,
        typer.Option("--script", exists=True, dir_okay=False, help="YAML file with delays, refusals and phases."),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", hidden=True)] = None,
) -> None:
    """The SMSC simulator alone.

    Example: sluicegate carrier-sim --port 2775 --script carrier.yaml
    """
    simulate(port, script)


def register(app: typer.Typer) -> None:
    """Adds the verbs."""
    for verb in (api, egress, delivery, migrate):
        app.command()(verb)
    app.command("carrier-sim")(carrier_sim)


def run_role(role: str, worker: str | None, data_dir: Path | None, fd: int | None) -> None:
    """Runs a role until it ends; the exit code says whether it ended well."""
    import socket

    from gateway import logs
    from gateway.runtime import StartRefused
    from gateway.supervisor.addresses import AddressInUse
    from gateway.supervisor.role import run_role as serve

    settings = settings_of(data_dir=data_dir)
    if not settings.database_url or not settings.redis_url:
        database_url, redis_url = store_urls(data_dir)
        data_key = settings.data_key or _local_data_key(settings.data_dir)
        update = {"database_url": database_url, "redis_url": redis_url, "data_key": data_key}
        settings = settings.model_copy(update=update)
    name = worker or f"{role}-{os.getpid()}"
    logs.configure(settings.log_level, settings.log_format, role=role, worker=name)
    sockets = [socket.socket(fileno=fd)] if fd is not None else None
    try:
        code = run_loop(serve(settings, role, name, sockets))
    except (StartRefused, AddressInUse) as error:
        raise Failed(str(error)) from error
    raise typer.Exit(code)


def _local_data_key(directory: Path) -> Any:
    """The key that `up` made for the texts of its data directory, None where it made none."""
    from pydantic import SecretStr

    from gateway.embedded.home import Home

    kept = Home(directory).recall("data_key")
    return None if kept is None else SecretStr(kept)


def run_loop(work: Any) -> Any:
    """Runs on uvloop, which halves the cost of a socket operation."""
    import uvloop

    return uvloop.run(work)


def simulate(port: int | None, script: Path | None) -> None:
    """Runs the carrier simulator until a signal ends it."""
    from dataclasses import replace

    from smpp.simulator import ScriptInvalid, Simulator, SimulatorSettings, load_script
    from smpp.simulator import run as serve

    try:
        settings = load_script(script.read_text(encoding="utf-8")) if script is not None else SimulatorSettings()
    except (ScriptInvalid, UnicodeDecodeError) as error:
        raise Failed(f"{script}: {error}") from error
    if port is not None:
        settings = replace(settings, port=port)

    def started(carrier: Simulator) -> None:
        tell(f"carrier simulator on {settings.host}:{carrier.port}, Ctrl-C ends it")
        if settings.commands:
            _take_commands(carrier)

    async def work() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        await serve(settings, stop, started)

    try:
        run_loop(work())
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise Failed(f"the carrier simulator cannot start on {settings.host}:{settings.port}: {reason}") from error


def _take_commands(carrier: Any) -> None:
    import json
    import sys
    import threading

    from smpp.simulator import ScriptInvalid, execute

    loop = asyncio.get_running_loop()

    def obey(line: str) -> None:
        try:
            tell(json.dumps(execute(carrier, line)))
        except ScriptInvalid as error:
            tell(json.dumps({"fault": str(error)}))

    def read() -> None:
        for line in sys.stdin:
            if line.strip():
                loop.call_soon_threadsafe(obey, line)

    threading.Thread(target=read, daemon=True).start()


async def _migrate(data_dir: Path | None) -> list[str]:
    import asyncpg

    from gateway.ledger.migrate import MigrationRefused
    from gateway.ledger.migrate import migrate as bring_up

    url, _ = store_urls(data_dir)
    try:
        return await bring_up(url)
    except MigrationRefused as error:
        raise Failed(str(error)) from error
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise Failed(f"PostgreSQL does not answer: {error}") from error
