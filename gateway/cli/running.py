"""The verb that runs a whole gateway on one machine: up."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.connection import DataDir, settings_of
from gateway.cli.output import Failed


def register(app: typer.Typer) -> None:
    """Adds the verbs."""

    @app.command()
    def up(
        policy: Annotated[
            Path | None,
            typer.Option(
                "--policy", dir_okay=False, help="Policy file; without one the carrier simulator is the carrier."
            ),
        ] = None,
        data_dir: DataDir = None,
        host: Annotated[
            str | None,
            typer.Option("--host", help="Address of the tenant port (default 127.0.0.1).", show_default=False),
        ] = None,
        port: Annotated[
            int | None, typer.Option("--port", min=0, max=65535, help="Tenant port (default 8080).", show_default=False)
        ] = None,
        admin_port: Annotated[
            int | None,
            typer.Option("--admin-port", min=0, max=65535, help="Operators' port (default 8081).", show_default=False),
        ] = None,
        api_workers: Annotated[
            int | None,
            typer.Option("--api-workers", min=1, max=64, help="API processes (default 1).", show_default=False),
        ] = None,
    ) -> None:
        """Run everything on this machine, supervised.

        PostgreSQL and Valkey come along unless SLUICEGATE_DATABASE_URL / SLUICEGATE_REDIS_URL are set.

        Example: sluicegate up --policy policy.yaml --port 8080
        """
        run_up(policy=policy, data_dir=data_dir, host=host, port=port, admin_port=admin_port, api_workers=api_workers)


def run_up(**flags: Any) -> None:
    """Runs the supervisor; its exit code is ours."""
    import asyncio

    from gateway import logs
    from gateway.cli.terminal import foreground
    from gateway.embedded.home import DataDirectoryRefused
    from gateway.ledger.migrate import MigrationRefused
    from gateway.runtime import StartRefused
    from gateway.supervisor.addresses import AddressInUse
    from gateway.supervisor.up import Supervisor

    settings = settings_of(**flags)
    logs.configure(
        settings.log_level if settings.log_level != "info" else "warning",
        settings.log_format,
        role="supervisor",
        worker="up",
    )

    def say(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    try:
        with foreground():
            code = asyncio.run(Supervisor(settings, say).run())
            say("stopped" if code == 0 else "stopped, in a hurry: the next start goes on with what was left")
    except (DataDirectoryRefused, AddressInUse, StartRefused, MigrationRefused) as error:
        raise Failed(str(error)) from error
    raise typer.Exit(code)
