"""Verbs for backups: backup, restore, restored (docs/operations.md)."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.connection import AsJson, DataDir, database, run, settings_of, store_urls
from gateway.cli.output import Failed, instant, tell, tell_json, tell_pairs, working

BY = "command line"
ClassNames = Annotated[
    list[str] | None, typer.Option("--class", help="Only messages of this class; several times.", show_default=False)
]


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the dump goes; FILE.key gets the data key.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Dump the database while it works (pg_dump, custom format), and beside it the key that opens its texts.

    Example: sluicegate backup /backups/sluicegate.dump
    """
    told = _backup(file, data_dir)
    if as_json:
        tell_json(told)
    else:
        tell(f"{told['octets']:,} octets in {file}".replace(",", " "))
        if told["key_file"]:
            tell(f"the key of the texts is in {told['key_file']}: keep it somewhere else than the dump")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A dump by backup.")],
    key: Annotated[
        Path | None,
        typer.Option("--key", exists=True, dir_okay=False, help="The data key (default FILE.key where it is)."),
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Fill a new data directory from a dump. The gateway then starts paused: look at `sluicegate restored`.

    Example: sluicegate restore /backups/sluicegate.dump --data-dir .sluicegate
    """
    directory = _restore(file, key, data_dir)
    if as_json:
        tell_json({"data_dir": str(directory)})
    else:
        where = "" if data_dir is None else f" --data-dir {shlex.quote(str(data_dir))}"
        tell(f"restored into {directory}. Stop the gateway that it comes from, then:")
        tell(f"  sluicegate up{where}")
        tell(f"  sluicegate restored{where}            (what may have been sent since the backup)")
        tell(f"  sluicegate restored --resume{where}   (carriers are paused until then)")


def restored(
    send_again: Annotated[
        bool, typer.Option("--send-again", help="Send what is under review, flagged as a possible duplicate.")
    ] = False,
    never_sent: Annotated[
        bool,
        typer.Option("--never-sent", help="Nothing was sent after the backup (it was stopped): send it unflagged."),
    ] = False,
    give_up: Annotated[bool, typer.Option("--give-up", help="End what is under review as outcome_unknown.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Let the carriers go on that the restore paused.")] = False,
    mark: Annotated[
        bool,
        typer.Option("--mark", help="This is a copy of files that nobody can tell from the original: review it."),
    ] = False,
    class_names: ClassNames = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Show and decide what may have been sent before a restore; nothing of it is sent again unasked.

    Example: sluicegate restored --send-again --class otp
    """
    chosen = [name for name, on in _verdicts(send_again, never_sent, give_up) if on]
    if len(chosen) > 1:
        raise Failed("one of --send-again, --never-sent and --give-up", 2)
    told = run(_restored(chosen[0] if chosen else None, class_names, mark, resume, data_dir))
    if as_json:
        tell_json(told)
    else:
        _show(told)


def register(app: typer.Typer) -> None:
    """Adds the verbs."""
    for verb in (backup, restore, restored):
        app.command()(verb)


def _verdicts(send_again: bool, never_sent: bool, give_up: bool) -> list[tuple[str, bool]]:
    from gateway.domain import review

    return [(review.SEND_AGAIN, send_again), (review.NEVER_SENT, never_sent), (review.GIVE_UP, give_up)]


def _show(told: dict[str, Any]) -> None:
    if not told["restores"]:
        tell("this database was never restored")
        return
    pairs: dict[str, Any] = {"restored": ", ".join(f"{one['noticed_at']} ({one['by']})" for one in told["restores"])}
    if told["settled"] is not None:
        pairs["settled now"] = f"{told['settled']} messages"
    if told["resumed"]:
        pairs["resumed now"] = ", ".join(told["resumed"])
    waiting = ", ".join(f"{count} {name}" for name, count in told["under_review"].items())
    pairs["under review"] = waiting or "nothing"
    pairs["paused carriers"] = ", ".join(told["paused"]) or "none"
    tell_pairs(pairs)


def _backup(file: Path, data_dir: Path | None) -> dict[str, Any]:
    from gateway.embedded import dumps
    from gateway.embedded.home import Home, write_private

    settings, (url, _) = settings_of(data_dir=data_dir), store_urls(data_dir)
    if not file.parent.is_dir():
        raise Failed(f"there is no directory {file.parent}", 2)
    with working(f"dumping into {file}", file.with_name(file.name + ".new")):
        try:
            dumps.dump(url, file)
        except dumps.DumpFailed as error:
            raise Failed(str(error)) from error
    key = settings.data_key.get_secret_value() if settings.data_key else Home(settings.data_dir).recall("data_key")
    key_file = file.with_name(file.name + ".key")
    if key is not None:
        write_private(key_file, key + "\n")
    return {"file": str(file), "octets": file.stat().st_size, "key_file": str(key_file) if key else None}


def _restore(file: Path, key: Path | None, data_dir: Path | None) -> Path:
    import asyncio

    from gateway.embedded import dumps
    from gateway.embedded.home import DataDirectoryRefused, Home
    from gateway.embedded.postgres import PostgresServer

    settings = settings_of(data_dir=data_dir)
    if settings.database_url:
        raise Failed("this verb fills a data directory; into a server of your own restore with pg_restore", 2)
    beside = file.with_name(file.name + ".key")
    key = key or (beside if beside.exists() else None)
    home = Home(settings.data_dir)
    try:
        home.hold()
    except DataDirectoryRefused as error:
        raise Failed(str(error)) from error
    try:
        if (home.stores / "postgres").exists():
            raise Failed(f"{home.directory} has a database already: name an empty --data-dir")
        server = PostgresServer(home)

        async def fill() -> None:
            try:
                server.start()
                await server.ready()
                await asyncio.to_thread(dumps.restore, server.url(), file)
            finally:
                await server.stop()

        with working(f"restoring {file}", home.stores / "postgres"):
            asyncio.run(fill())
        if key is not None:
            home.remember("data_key", key.read_text(encoding="ascii").strip())
    except (DataDirectoryRefused, dumps.DumpFailed) as error:
        raise Failed(str(error)) from error
    finally:
        home.release()
    return home.directory


async def _restored(
    verdict: str | None, classes: list[str] | None, mark: bool, resume: bool, data_dir: Path | None
) -> dict[str, Any]:
    import random

    from gateway.ledger import outcomes, restores
    from gateway.policy import versions
    from gateway.policy.rules.parse import read_policy

    now_at = int(time.time() * 1000)
    settled, resumed = None, []
    async with database(data_dir) as conn:
        pepper = bytes(await conn.fetchval("SELECT pepper FROM instance"))
        in_force = await versions.active(conn)
        if in_force is not None:
            policy = read_policy(in_force[1], in_force[0])
            if mark:
                try:
                    await restores.mark(conn, pepper, policy, BY, now_at)
                except restores.StillRunning:
                    raise Failed(
                        "the gateway runs: stop it first, or what it is sending would be taken from it"
                    ) from None
            if verdict is not None:
                bench, settled = outcomes.Bench(policy, pepper, now_at, random.random), 0
                while count := await restores.settle(conn, bench, verdict, classes):
                    settled += count
            if resume:
                resumed = await restores.resume(conn, BY, now_at)
        seen = await restores.standing(conn)
    return {
        "restores": [{"noticed_at": instant(at), "by": by} for at, by in seen.restores],
        "under_review": seen.messages,
        "paused": seen.paused,
        "settled": settled,
        "resumed": resumed,
    }
