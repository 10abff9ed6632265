"""Verbs of a whole gateway on one machine: up, status."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.connection import AsJson, DataDir, Operators, local_run, refused, run, settings_of, store_urls
from gateway.cli.output import Failed, span, tell, tell_json, tell_table


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

    @app.command()
    def status(data_dir: DataDir = None, as_json: AsJson = False) -> None:
        """One look at processes, classes, providers and sessions.

        Example: sluicegate status --json
        """
        seen, link = run(_status(data_dir))
        if as_json:
            tell_json(seen)
        else:
            show_status(seen, link)


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
    except (DataDirectoryRefused, AddressInUse, StartRefused, MigrationRefused) as error:
        raise Failed(str(error)) from error
    raise typer.Exit(code)


async def _status(data_dir: Path | None) -> tuple[dict[str, Any], str | None]:
    if local_run(data_dir) is not None or settings_of(data_dir=data_dir).admin_url:
        operators = Operators(data_dir)
        code, seen = await operators.ask("GET", "/admin/status")
        if code != 200:
            raise refused(seen)
        code, link = await operators.ask("POST", "/admin/console-links")
        return seen, operators.url + link["path"] if code == 201 else None
    return await _look_directly(*store_urls(data_dir)), None


async def _look_directly(database_url: str, redis_url: str) -> dict[str, Any]:
    import time

    import asyncpg

    from gateway.ledger.connect import open_pool
    from gateway.operators.look import look
    from gateway.policy import versions
    from gateway.policy.rules.parse import read_policy
    from gateway.runtime import open_redis
    from scheduler.store.scheduler import Scheduler

    settings = settings_of()
    if not redis_url:
        raise Failed("SLUICEGATE_REDIS_URL is needed beside SLUICEGATE_DATABASE_URL")
    try:
        pool = await open_pool(database_url, max_size=2)
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise Failed(f"PostgreSQL does not answer: {error}") from error
    client = open_redis(redis_url)
    try:
        async with pool.acquire() as conn:
            in_force = await versions.active(conn)
        if in_force is None:
            raise Failed("no policy is in force yet: `sluicegate policy apply FILE`")
        return await look(
            pool, Scheduler(client, settings.cell), read_policy(in_force[1], in_force[0]), int(time.time() * 1000)
        )
    finally:
        await client.aclose()
        await pool.close()


def show_status(seen: dict[str, Any], link: str | None) -> None:
    """The status for people."""
    tell(f"policy version {seen['policy_version']}\n")
    tell_table(
        ["role", "worker", "pid", "health", "policy"],
        [
            (
                one["role"],
                one["worker"],
                one["pid"],
                one["policy_error"] or ("healthy" if one["healthy"] else f"silent for {span(one['silent_ms'])}"),
                one["policy_version"],
            )
            for one in seen["processes"]
        ],
        "processes",
    )
    tell("")
    tell_table(
        ["class", "waiting", "oldest", "door closes at", "wait budget", "leaves per s"],
        [
            (
                name,
                one["queue_depth"],
                span(one["queue_age_ms"]),
                span(one["door_limit_ms"]),
                span(one["wait_budget_ms"]),
                one["drain_per_s"],
            )
            for name, one in seen["classes"].items()
        ],
        "classes",
    )
    tell("")
    tell_table(
        ["provider", "waiting", "oldest", "leaves per s", "limit per s"],
        [
            (name, one["queue_depth"], span(one["queue_age_ms"]), one["drain_per_s"], one["rate_per_s"])
            for name, one in seen["providers"].items()
        ],
        "providers",
    )
    tell("")
    tell_table(
        ["session", "provider", "address", "state", "window", "held by", "last error"],
        [
            (name, one["provider"], one["address"], one["state"], one["window"], one["worker"], one.get("last_error"))
            for name, one in seen["sessions"].items()
        ],
        "sessions",
    )
    if link is not None:
        tell(f"\nconsole: {link}  (works once)")
