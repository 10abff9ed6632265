"""Verbs for accounts and their keys: tenant, key."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.connection import AsJson, DataDir, database, run
from gateway.cli.output import Failed, instant, tell, tell_json, tell_table

BY = "command line"


tenant_verbs = typer.Typer(no_args_is_help=True, help="Accounts.")
key_verbs = typer.Typer(no_args_is_help=True, help="API keys of tenants and operators.")


@tenant_verbs.command("create")
def tenant_create(name: str, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Create an account.

    Example: sluicegate tenant create acme
    """
    tenant_id = run(_create_tenant(name, data_dir))
    if as_json:
        tell_json({"id": tenant_id, "name": name})
    else:
        tell(f"created {name}")


@tenant_verbs.command("list")
def tenant_list(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List accounts.

    Example: sluicegate tenant list --json
    """
    rows = run(_tenants(data_dir))
    if as_json:
        tell_json(rows)
    else:
        tell_table(
            ["tenant", "live keys", "created"],
            [(row["name"], row["keys"], instant(row["created_at"])) for row in rows],
        )


@key_verbs.command("create")
def key_create(
    tenant: Annotated[str | None, typer.Argument(help="Whose key.", show_default=False)] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope", help="send, read or manage; several times (default send and read).", show_default=False
        ),
    ] = None,
    cidr: Annotated[
        list[str] | None,
        typer.Option("--cidr", help="Network the key may be used from; several times.", show_default=False),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", help="RFC 3339 instant or a duration like 90d.", show_default=False)
    ] = None,
    admin: Annotated[bool, typer.Option("--admin", help="An operators' key for the operators' port.")] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it alone on standard output: this is the only time it can be read.

    Example: sluicegate key create acme --scope send --scope read --expires 90d
    """
    if (tenant is None) != admin:
        raise typer.BadParameter("name a tenant, or --admin for an operators' key", param_hint="TENANT")
    written = run(_create_key(tenant, scope or [], cidr or [], expires, data_dir))
    if as_json:
        tell_json({"key": written, "tenant": tenant})
    else:
        tell(written)


@key_verbs.command("list")
def key_list(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List keys; secrets are nowhere.

    Example: sluicegate key list
    """
    rows = run(_keys(data_dir))
    if as_json:
        tell_json(rows)
        return
    tell_table(
        ["id", "tenant", "scopes", "networks", "created", "expires", "revoked", "last used"],
        [
            (
                row["id"], row["tenant"] or "(operators)", " ".join(row["scopes"]), " ".join(row["cidrs"]) or "any",
                instant(row["created_at"]),
                instant(row["expires_at"]), instant(row["revoked_at"]), instant(row["last_used_at"]),
            )
            for row in rows
        ],
    )  # fmt: skip


@key_verbs.command("revoke")
def key_revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID")], data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """End a key everywhere within five seconds.

    Example: sluicegate key revoke 4f1c09ab23de
    """
    if not run(_revoke(key_id, data_dir)):
        raise Failed(f"there is no live key {key_id}")
    if as_json:
        tell_json({"revoked": key_id})
    else:
        tell(f"revoked {key_id}")


def register(app: typer.Typer) -> None:
    """Adds the verbs."""
    app.add_typer(tenant_verbs, name="tenant")
    app.add_typer(key_verbs, name="key")


def expiry_at(text: str, now_at: int) -> int:
    """UTC ms of an RFC 3339 instant or a duration from now. Raises Failed (wrong usage)."""
    from gateway.policy.rules.scalars import duration_ms

    try:
        return now_at + duration_ms(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Failed("--expires takes an instant like 2027-01-31T00:00:00Z or a duration like 90d", 2) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


async def _create_tenant(name: str, data_dir: Path | None) -> int:
    from gateway.ledger import tenants

    async with database(data_dir) as conn:
        try:
            return await tenants.create(conn, name, BY, _now_at())
        except tenants.TenantRefused as error:
            raise Failed(str(error)) from error


async def _tenants(data_dir: Path | None) -> list[dict[str, Any]]:
    from gateway.ledger import tenants

    async with database(data_dir) as conn:
        return await tenants.list_all(conn)


async def _create_key(
    tenant: str | None, scopes: list[str], cidrs: list[str], expires: str | None, data_dir: Path | None
) -> str:
    from gateway.ledger import keys

    now_at = _now_at()
    expires_at = expiry_at(expires, now_at) if expires is not None else None
    if expires_at is not None and expires_at <= now_at:
        raise Failed("--expires lies in the past", 2)
    async with database(data_dir) as conn:
        try:
            return await keys.create(conn, keys.KeyWish(tenant, scopes, cidrs, expires_at), BY, now_at)
        except keys.KeyRefused as error:
            raise Failed(str(error)) from error


async def _keys(data_dir: Path | None) -> list[dict[str, Any]]:
    from gateway.ledger import keys

    async with database(data_dir) as conn:
        return [dict(row) for row in await keys.list_all(conn)]


async def _revoke(key_id: str, data_dir: Path | None) -> bool:
    from gateway.ledger import keys

    async with database(data_dir) as conn:
        return await keys.revoke(conn, key_id, BY, _now_at())


def _now_at() -> int:
    return int(time.time() * 1000)
