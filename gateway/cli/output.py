"""What people and programs read: tables by rich, JSON with --json, errors on standard error."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

_TABLE_WIDTH_MAX: Final = 1_000


class Failed(Exception):
    """The verb was refused or failed; the text goes to standard error, `code` is the exit code."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


def tell(text: str) -> None:
    """A line on standard output."""
    sys.stdout.write(text + "\n")


def tell_error(text: str) -> None:
    """A line on standard error."""
    sys.stderr.write(f"sluicegate: {text}\n")


def tell_json(content: Any) -> None:
    """JSON on standard output."""
    tell(json.dumps(content, indent=2, default=str, ensure_ascii=False))


def tell_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """A table on standard output; names and values are shown as they are, not as markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="cyan", title_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*(Text("-" if value is None else str(in_words(value))) for value in row))
    wide().print(table)


def wide() -> Any:
    """A rich console that never cuts to the width of a screen.

    Half an id cannot be copied, and a pipe has no width at all. Without colours in a pipe or under NO_COLOR.
    """
    from rich.console import Console

    return Console(soft_wrap=True, width=_TABLE_WIDTH_MAX, highlight=False)


@contextmanager
def working(text: str, grows: Path) -> Iterator[None]:
    """Shows on a terminal that long work goes on, and how large what it writes has become; silent in a pipe."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    columns = SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.fields[size]}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task, done = progress.add_task(text, total=None, size=""), threading.Event()

        def look() -> None:
            while not done.wait(0.5):
                progress.update(task, size=f"{_octets(grows) / 1e6:.1f} MB")

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _octets(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    total = 0
    for file in files:
        with suppress(OSError):
            total += file.stat().st_size
    return total


def tell_pairs(pairs: Mapping[str, Any]) -> None:
    """Names and values, one a line."""
    width = max((len(name) for name in pairs), default=0)
    for name, value in pairs.items():
        tell(f"{name:<{width}}  {'-' if value is None else in_words(value)}")


def in_words(value: Any) -> Any:
    """Yes and no for people; anything else as it is."""
    return ("yes" if value else "no") if isinstance(value, bool) else value


def instant(at_ms: int | None) -> str | None:
    """A UTC instant for people; None stays None."""
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def span(milliseconds: float | None) -> str:
    """A duration for people."""
    if milliseconds is None:
        return "?"
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if milliseconds >= size:
            return f"{milliseconds / size:.3g} {unit}"
    return f"{milliseconds:.0f} ms"
