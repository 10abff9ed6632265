"""The verbs that look: status once, top again and again."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.connection import AsJson, DataDir, Operators, local_run, refused, run, settings_of, store_urls
from gateway.cli.output import Failed, tell, tell_json, wide
from gateway.cli.sight import Counters, Sight, read_page, sight_of

_FIRST_S = 1.0


def register(app: typer.Typer) -> None:
    """Adds the verbs."""

    @app.command()
    def status(data_dir: DataDir = None, as_json: AsJson = False) -> None:
        """Processes, classes, providers, sessions, what holds work, and what moves: two looks a second apart.

        Example: sluicegate status --json
        """
        if as_json:
            tell_json(run(_status(data_dir)))
        else:
            show_status(*run(_status_with_rates(data_dir)))

    @app.command()
    def top(
        every: Annotated[float, typer.Option("--every", min=0.2, max=60.0, help="Seconds between two looks.")] = 1.0,
        data_dir: DataDir = None,
        as_json: AsJson = False,
    ) -> None:
        """Watch classes, carriers, binds, tenants and limits live; q or Ctrl-C quits. A pipe gets a single look.

        Example: sluicegate top --every 2
        """
        if as_json or not sys.stdout.isatty():
            run(_look_once(data_dir, as_json))
        else:
            run(_watch(every, data_dir))


def show_status(sight: Sight, link: str | None) -> None:
    """The status for people; never cut to the width of a screen."""
    from gateway.cli import screen

    console = wide()
    console.print(screen.headline(sight, 160))
    tables = [screen.processes(sight), screen.classes(sight, 120), screen.providers(sight, 200)]
    tables += [
        screen.sessions(sight, 200),
        screen.held(sight, 200),
        screen.tenants(sight, 80),
        screen.scopes(sight, 80),
    ]
    for table in tables:
        if table.row_count:
            console.print()
            console.print(table)
    if link is not None:
        tell(f"\nconsole  {link}  (works once)")


class Eye:
    """Looks at one gateway again and again, each look with the rates since the one before."""

    def __init__(self, data_dir: Path | None) -> None:
        self._operators = Operators(data_dir) if by_port(data_dir) else None
        self._data_dir = data_dir
        self._before: Counters | None = None

    async def look(self) -> Sight:
        """A sight; without an operators' port it has no rates. Raises Failed."""
        if self._operators is None:
            return Sight(await look_directly(*store_urls(self._data_dir)))
        (code, seen), page = await asyncio.gather(
            self._operators.ask("GET", "/admin/status"), self._operators.page("/metrics")
        )
        if code != 200:
            raise refused(seen)
        counters = read_page(page, time.monotonic())
        before, self._before = self._before, counters
        return sight_of(seen, before, counters)


async def _look_once(data_dir: Path | None, as_json: bool) -> None:
    """Two looks a second apart: a rate needs two."""
    from gateway.cli import screen

    eye = Eye(data_dir)
    await eye.look()
    await asyncio.sleep(_FIRST_S)
    sight = await eye.look()
    if as_json:
        tell_json(sight.as_json())
    else:
        wide().print(screen.screen(sight, 120, 1_000, keys=False))


async def _watch(every_s: float, data_dir: Path | None) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from gateway.cli import screen

    console, eye = Console(), Eye(data_dir)
    sight = await eye.look()
    fault: str | None = None
    with quiet_keyboard() as listens, Live(console=console, screen=True, auto_refresh=False) as live:
        async with keys(listens) as quit_asked:
            pause_s = min(_FIRST_S, every_s)
            while not quit_asked.is_set():
                width, height = console.size
                shown = screen.screen(sight, width, height - (fault is not None))
                live.update(shown if fault is None else _with_fault(shown, Text(fault, "bold red")), refresh=True)
                try:
                    async with asyncio.timeout(pause_s):
                        await quit_asked.wait()
                except TimeoutError:
                    pass
                pause_s = every_s
                try:
                    sight, fault = await eye.look(), None
                except Failed as error:
                    # A gateway that starts again is looked at again; what was seen last stays on the screen.
                    fault = str(error).splitlines()[0]


def _with_fault(shown: Any, fault: Any) -> Any:
    from rich.console import Group

    return Group(fault, shown)


@contextmanager
def quiet_keyboard() -> Iterator[bool]:
    """Keys arrive one by one and are not shown; as before at the end. False where there is no keyboard."""
    import termios
    import tty

    if not sys.stdin.isatty():
        yield False
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield True
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@asynccontextmanager
async def keys(listens: bool) -> AsyncIterator[asyncio.Event]:
    """Set once q, Esc or Ctrl-C was pressed, or the process is told to end."""
    import os
    import signal

    loop, asked = asyncio.get_running_loop(), asyncio.Event()

    def pressed() -> None:
        if set(os.read(sys.stdin.fileno(), 64)) & set(b"qQ\x1b\x03\x04"):
            asked.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    if listens:
        loop.add_reader(sys.stdin.fileno(), pressed)
    try:
        yield asked
    finally:
        if listens:
            loop.remove_reader(sys.stdin.fileno())


def by_port(data_dir: Path | None) -> bool:
    """Whether an operators' port can be asked."""
    return local_run(data_dir) is not None or bool(settings_of(data_dir=data_dir).admin_url)


async def _status(data_dir: Path | None) -> dict[str, Any]:
    if not by_port(data_dir):
        return await look_directly(*store_urls(data_dir))
    code, seen = await Operators(data_dir).ask("GET", "/admin/status")
    if code != 200:
        raise refused(seen)
    return dict(seen)


async def _status_with_rates(data_dir: Path | None) -> tuple[Sight, str | None]:
    """Two looks a second apart, and a new link to the console; where no port can be asked one look without rates."""
    eye = Eye(data_dir)
    sight = await eye.look()
    if not by_port(data_dir):
        return sight, None
    await asyncio.sleep(_FIRST_S)
    sight = await eye.look()
    operators = Operators(data_dir)
    code, link = await operators.ask("POST", "/admin/console-links")
    return sight, operators.url + link["path"] if code == 201 else None


async def look_directly(database_url: str, redis_url: str) -> dict[str, Any]:
    """The status read from the stores, where no operators' port is known. Raises Failed."""
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
