"""Verbs of the policy: check, diff, apply, show, history, rollback (contract section 3)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.connection import AsJson, DataDir, Operators, database, local_run, refused, run, settings_of
from gateway.cli.output import Failed, instant, tell, tell_error, tell_json, tell_table

PolicyPath = Annotated[Path, typer.Argument(metavar="FILE", help="Policy in YAML.")]
YAML = "application/yaml"


verbs = typer.Typer(no_args_is_help=True, help="What SREs tune: check, apply, look back.")


@verbs.command()
def check(file: PolicyPath, as_json: AsJson = False) -> None:
    """Print every fault at once, with line and path; warn of what is valid but will not do what it says.

    Example: sluicegate policy check policy.yaml
    """
    check_file(file, as_json)


@verbs.command()
def diff(file: PolicyPath, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Say in words what applying the file would change.

    Example: sluicegate policy diff policy.yaml
    """
    changes = run(_diff(file, data_dir))
    if as_json:
        tell_json({"changes": changes})
    else:
        tell("\n".join(changes) or "nothing would change")


@verbs.command()
def apply(file: PolicyPath, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Put the file in force everywhere, all or nothing.

    Example: sluicegate policy apply policy.yaml
    """
    version = run(_apply(file, data_dir))
    warnings = _warnings(file)
    if as_json:
        tell_json({"version": version, "warnings": warnings})
    else:
        for warning in warnings:
            tell(f"warning: {file}: {warning}")
        tell(f"policy version {version} is in force")


@verbs.command()
def show(
    version: Annotated[
        int | None,
        typer.Option("--version", min=1, help="An earlier one (default: the one in force).", show_default=False),
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Print the policy in force, or an earlier version; what stands for a secret goes back in with `policy apply`.

    Example: sluicegate policy show --version 3
    """
    found = run(_show(version, data_dir))
    if as_json:
        tell_json(found)
    else:
        tell(found["source"].rstrip("\n"))


@verbs.command()
def history(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List every version that was entered.

    Example: sluicegate policy history
    """
    rows = run(_history(data_dir))
    if as_json:
        tell_json(rows)
    else:
        tell_table(
            ["version", "state", "applied", "by", "note"],
            [
                (row["version"], row["state"], instant(row["applied_at"]), row["applied_by"], row["note"])
                for row in rows
            ],
        )


@verbs.command()
def rollback(
    version: Annotated[int, typer.Argument(min=1, metavar="N")], data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Put an earlier version's text in force again, as a new version.

    Example: sluicegate policy rollback 3
    """
    made = run(_rollback(version, data_dir))
    if as_json:
        tell_json({"version": made})
    else:
        tell(f"policy version {made} is in force, with the text of version {version}")


def register(app: typer.Typer) -> None:
    """Adds the verbs."""
    app.add_typer(verbs, name="policy")


def check_file(file: Path, as_json: bool) -> None:
    """Checks without a running gateway; exit code 1 where the file cannot be used."""
    from gateway.policy.rules.faults import PolicyInvalid
    from gateway.policy.rules.parse import read_policy
    from gateway.policy.secrets import check_all

    try:
        warnings = _warnings(file)
        # Those of this shell: whoever starts the gateway elsewhere gives them there.
        warnings += [
            f"{fault} (this shell's: the gateway reads its own)" for fault in check_all(read_policy(_judged(file)))
        ]
        faults: list[str] = []
    except PolicyInvalid as error:
        faults, warnings = [str(fault) for fault in error.faults], []
    if as_json:
        tell_json({"valid": not faults, "faults": faults, "warnings": warnings})
    else:
        for fault in faults:
            tell_error(f"{file}: {fault}")
        for warning in warnings:
            tell(f"warning: {file}: {warning}")
        if not faults:
            tell(f"{file} is valid")
    if faults:
        raise typer.Exit(1)


def _warnings(file: Path) -> list[str]:
    """What is valid but will not do what it says; raises PolicyInvalid."""
    from gateway.policy.rules.parse import read_policy
    from gateway.policy.rules.warnings import warn

    return [str(fault) for fault in warn(read_policy(_judged(file)))]


def _judged(file: Path) -> str:
    """The text to judge without a gateway: what stands for a hidden secret is some secret."""
    from gateway.policy.rules.hidden import stand_in

    return stand_in(_text(file))


def _text(file: Path) -> str:
    from gateway.policy.entry import read_file
    from gateway.policy.rules.faults import PolicyInvalid

    try:
        return read_file(file, piped=True)
    except PolicyInvalid as error:
        raise Failed(str(error), 2) from error


async def _diff(file: Path, data_dir: Path | None) -> list[str]:
    from gateway.policy import versions
    from gateway.policy.rules.diff import describe
    from gateway.policy.rules.faults import PolicyInvalid
    from gateway.policy.rules.parse import read_policy
    from gateway.policy.shown import with_secrets

    async with database(data_dir) as conn:
        in_force = await versions.active(conn)
        text = await with_secrets(conn, _text(file))
    if in_force is None:
        return ["no policy is in force yet: the whole file would be new"]
    try:
        return list(describe(read_policy(in_force[1], in_force[0]), read_policy(text)))
    except PolicyInvalid as error:
        raise Failed(f"{file} cannot be used:\n{error}") from error


async def _apply(file: Path, data_dir: Path | None) -> int:
    text = _text(file)
    if _by_port(data_dir):
        return await _ask(data_dir, "/admin/policy", text.encode())

    async def enter(applier: Any, pool: Any) -> int:
        from gateway.policy.shown import with_secrets

        return int(await applier.apply(await with_secrets(pool, text), "command line"))

    return await _directly(data_dir, enter)


async def _rollback(version: int, data_dir: Path | None) -> int:
    if _by_port(data_dir):
        return await _ask(data_dir, f"/admin/policy/rollback/{version}", b"")
    return await _directly(data_dir, lambda applier, _pool: applier.rollback(version, "command line"))


def _by_port(data_dir: Path | None) -> bool:
    settings = settings_of(data_dir=data_dir)
    return bool(settings.admin_url) or (not settings.database_url and local_run(data_dir) is not None)


async def _ask(data_dir: Path | None, path: str, body: bytes) -> int:
    code, answer = await Operators(data_dir).ask("POST", path, body, YAML)
    if code != 200:
        raise refused(answer)
    return int(answer["version"])


async def _directly(data_dir: Path | None, work: Any) -> int:
    from types import SimpleNamespace

    import asyncpg

    from gateway.cli.connection import store_urls
    from gateway.clock import Clock
    from gateway.ledger.connect import open_pool
    from gateway.policy.applier import Applier, PolicyRefused
    from gateway.policy.rules.faults import PolicyInvalid

    url, _ = store_urls(data_dir)
    try:
        pool = await open_pool(url, max_size=3)
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise Failed(f"PostgreSQL does not answer: {error}") from error
    try:
        return int(await work(Applier(SimpleNamespace(pool=pool, clock=Clock())), pool))
    except (PolicyInvalid, PolicyRefused, LookupError) as error:
        raise Failed(str(error)) from error
    finally:
        await pool.close()


async def _show(version: int | None, data_dir: Path | None) -> dict[str, Any]:
    from gateway.policy import versions
    from gateway.policy.rules.hidden import hide

    async with database(data_dir) as conn:
        if version is None:
            in_force = await versions.active(conn)
            if in_force is None:
                raise Failed("no policy is in force yet")
            return {"version": in_force[0], "source": hide(in_force[1], in_force[0])}
        source = await versions.source_of(conn, version)
    if source is None:
        raise Failed(f"there is no policy version {version}")
    return {"version": version, "source": hide(source, version)}


async def _history(data_dir: Path | None) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from gateway.policy import versions

    async with database(data_dir) as conn:
        return [asdict(one) for one in await versions.history(conn)]
