"""The screen of `top` and the sections of `status`, drawn by rich from a sight; nothing here asks anybody anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gateway.cli.output import span
from gateway.cli.sight import Sight
from gateway.operators.door_words import all_turned_away

_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_BAR_MIN: Final = 6
_CLASSES_REST: Final = 66  # what the other columns of the classes take: 13 + 9 + 8 + 9 + 6 + 4 x 5, and one to spare
_NARROW: Final = 110
_SECTION_ROWS: Final = 3  # a blank line, the title with the columns' heads, one row
_QUIET: Final = "dim"
_GOOD, _WARN, _BAD = "green", "yellow", "bold red"
_STATES: Final = {"bound": _GOOD, "up": _GOOD, "paused": _WARN, "draining": _WARN, "drained": _WARN}
_WAITS: Final = {"binding": _WARN, "connecting": _WARN, "half_open": _WARN}


def screen(sight: Sight, width: int, height: int, *, keys: bool = True) -> RenderableType:
    """The whole screen of `top`, cut to the height; sections that matter less give way first."""
    left = height - 2
    parts: list[RenderableType] = [headline(sight, width)]
    sections: list[tuple[Callable[[int], Table | None], int]] = [
        (lambda _rows: classes(sight, width), 99),
        (lambda rows: _cut(providers(sight, width), rows), 8),
        (lambda rows: _cut(sessions(sight, width), rows), 12),
        (lambda rows: _cut(held(sight, width), rows), 6),
        (lambda rows: _cut(tenants(sight, width), rows), 8),
        (lambda rows: _cut(scopes(sight, width), rows), 10),
    ]
    for draw, most in sections:
        room = min(most, left - _SECTION_ROWS + 1)
        table = draw(room) if room > 0 else None
        if table is not None and table.row_count:
            parts += [Text(""), table]
            left -= table.row_count + 2
    if keys:
        parts += [Text(""), foot(sight)] if left > 1 else [foot(sight)]
    return Group(*parts)


def headline(sight: Sight, width: int) -> Text:
    """Name, policy, time, and whether all is well."""
    status = sight.status
    ill = [one["worker"] for one in status["processes"] if not one["healthy"]]
    down = [name for name, one in status["sessions"].items() if not one["state"].startswith("bound")]
    away = all_turned_away(status["classes"])
    left = Text.assemble(
        ("sluicegate", "bold"), ("  policy ", _QUIET), str(status["policy_version"]),
        ("  ", ""), (str(status["at"])[11:19], ""), (" UTC", _QUIET),
    )  # fmt: skip
    if ill:
        right = Text(f"● {', '.join(ill)} not healthy", _BAD)
    elif down:
        refused = f"; {away}" if away else ""
        right = Text(f"● {len(down)} of {len(status['sessions'])} sessions not bound{refused}", _WARN)
    elif away:
        right = Text(f"● {away}", _WARN)
    elif status.get("paused"):
        right = Text(f"● {len(status['paused'])} paused by hand", _WARN)
    else:
        right = Text(f"● all {len(status['processes'])} processes healthy", _GOOD)
    right.truncate(max(10, width - len(left) - 2), overflow="ellipsis")
    return Text.assemble(left, " " * max(2, width - len(left) - len(right)), right)


def foot(sight: Sight) -> Text:
    """What the receipts and callbacks are doing, and the keys."""
    words: list[str | tuple[str, str]] = []
    for name, label in (("receipt_inbox_depth", "receipts to merge"), ("callback_backlog", "callbacks to send")):
        words += [(f"{label} ", _QUIET), f"{sight.gauges[name]:.0f}  " if name in sight.gauges else "-  "]
    if not sight.whole:
        words.append(("rates of one process only  ", _WARN))
    return Text.assemble(*words, ("q", "bold"), (" quits", _QUIET))


def classes(sight: Sight, width: int) -> Table:
    """Per class: what waits, the wait of a new one and the age of the oldest against the budget, what moves.

    `predicted` is the longest wait that the door would predict now; it says no where that is beyond the mark.
    """
    gap = 1 if width < _NARROW else 2
    table = _table("class", gap)
    _numbers(table, "waiting", "oldest", "predicted")
    moves = ("in/s", "no/s", "out/s", "exp/s") if sight.rates is not None else ()
    room = max(_BAR_MIN, min(40, width - _CLASSES_REST - 9 * gap))
    table.add_column("wait against budget" if room >= 19 else "of it", no_wrap=True)
    _numbers(table, "budget", *moves)
    for name, one in sight.status["classes"].items():
        rates = sight.rates.classes.get(name, {}) if sight.rates is not None else None
        door = one["door_limit_ms"] / max(1, one["wait_budget_ms"])
        asked = one.get("door")
        predicted_ms = None if asked is None else asked["predicted_wait_ms"]
        age, wait = (_share(value, one["wait_budget_ms"]) for value in (one["queue_age_ms"], predicted_ms))
        cells = [
            Text(name, "bold"),
            _count(one["queue_depth"]),
            _age(one["queue_age_ms"], age, door),
            Text("-", _QUIET) if predicted_ms is None else _age(predicted_ms, wait, door),
            bar(None if age is None else max(age, wait or 0.0), room, door),
            Text(span(one["wait_budget_ms"]), _QUIET),
        ]
        if moves:
            cells += [
                _rate(rates, "admitted"),
                _rate(rates, "refused", _WARN),
                _rate(rates, "sent", _GOOD),
                _rate(rates, "expired", _BAD),
            ]
        table.add_row(*cells)
    return table


def providers(sight: Sight, width: int) -> Table:
    """Per carrier: state, what waits for it, what it answers against its limit.

    Without two looks there are no rates: then `drain/s` is what the door reckons with, learned and never forgotten.
    """
    table = _table("provider")
    table.add_column("state", no_wrap=True)
    moves = sight.rates is not None
    _numbers(table, "waiting", "oldest", "out/s" if moves else "drain/s", "limit/s")
    if moves:
        table.add_column("use", no_wrap=True)
    if width >= _NARROW and moves:
        _numbers(table, "throttled/s", "refused/s", "receipts")
    for name, one in sight.status["providers"].items():
        bound = [s for s in one["sessions"] if sight.status["sessions"][s]["state"].startswith("bound")]
        state = one.get("state") or ("up" if bound else "down")
        rates = sight.rates.providers.get(name, {}) if sight.rates is not None else None
        out_per_s = None if rates is None else sum(rates.values())
        cells = [
            Text(name, "bold"),
            _state(state, f"{len(bound)}/{len(one['sessions'])} bound"),
            _count(one["queue_depth"]),
            Text(_span(one["queue_age_ms"])),
            _number(out_per_s if moves else one["drain_per_s"]),
            _number(one["rate_per_s"]),
        ]
        if moves:
            cells.append(
                bar(_share(out_per_s, one["rate_per_s"]), 12) if one["rate_per_s"] else Text("no limit", _QUIET)
            )
        if width >= _NARROW and moves:
            refused = None if rates is None else {"all": sum(v for k, v in rates.items() if k in ("never", "later"))}
            coverage = sight.coverage.get(name)
            cells += [
                _rate(rates, "throttled", _WARN),
                _rate(refused, "all", _WARN),
                Text("-" if coverage is None else f"{coverage:.1%}", "" if (coverage or 1) > 0.9 else _WARN),
            ]
        table.add_row(*cells)
    return table


def sessions(sight: Sight, width: int) -> Table:
    """Per bind: state, window in use, what it answers and may, the last error."""
    table = _table("session")
    table.add_column("state", no_wrap=True)
    table.add_column("window", no_wrap=True)
    _numbers(table, "out/s", "limit/s")
    if width >= _NARROW:
        table.add_column("address", no_wrap=True)
        table.add_column("held by", no_wrap=True)
    table.add_column("last error", no_wrap=True, overflow="ellipsis")
    for name, one in sight.status["sessions"].items():
        used = one.get("used")
        window = Text("-", _QUIET)
        if used is not None:
            window = Text.assemble(bar(_share(used, one["window"]), 8), f" {used}/{one['window']}")
        cells = [
            Text(name, "bold"),
            _state(one["state"]),
            window,
            _number(
                one.get("rate") if sight.rates is None else sight.rates.sessions.get(name, {}).get("answered", 0.0)
            ),
            _number(one.get("limit") or one["rate_per_s"]),
        ]
        if width >= _NARROW:
            cells += [Text(one["address"]), Text(one["worker"] or "-")]
        error = one.get("last_error")
        table.add_row(*cells, Text(str(error), _WARN) if error else Text("-", _QUIET))
    return table


def held(sight: Sight, _width: int) -> Table:
    """The top blockers: what holds most, by class."""
    table = _table("held back by")
    table.add_column("class", no_wrap=True)
    _numbers(table, "waiting", "for")
    for one in sight.status.get("blockers", ()):
        kind, name = one["scope"]["kind"], one["scope"]["name"]
        words = Text.assemble((kind.replace("_", " "), _WARN), f" {name}" if name else "")
        table.add_row(words, Text(one["class"]), _count(one["waiting"]), Text(_span(one["since_ms"])))
    return table


def tenants(sight: Sight, width: int) -> Table:
    """The tenants with most waiting."""
    table = _table("tenant")
    _numbers(table, "waiting")
    table.add_column("share of all that waits", no_wrap=True)
    waiting = {name: count for name, count in sight.status.get("tenants", {}).items() if count}
    whole = sum(waiting.values())
    for name, count in waiting.items():
        table.add_row(Text(name, "bold"), _count(count), bar(_share(count, whole), max(16, min(32, width - 48))))
    return table


def scopes(sight: Sight, _width: int) -> Table:
    """Limits that something waits under: tokens left and how long they let nothing through."""
    table = _table("limit in force")
    _numbers(table, "waiting", "tokens left", "held for")
    for one in sight.status.get("scopes", ()):
        kind = one["kind"] + (" paused" if one["paused"] else "")
        table.add_row(
            Text.assemble((kind, _WARN if one["paused"] or one["held_ms"] else ""), f" {one['name']}"),
            _count(one["waiting"]),
            _number(one["tokens"]),
            Text(_span(one["held_ms"])),
        )
    return table


def processes(sight: Sight) -> Table:
    """Every process: whether it works, and with which policy."""
    table = _table("process")
    table.add_column("role", no_wrap=True)
    _numbers(table, "pid", "policy")
    table.add_column("health", no_wrap=True)
    for one in sight.status["processes"]:
        fault = one["policy_error"] or (None if one["healthy"] else f"silent for {span(one['silent_ms'])}")
        health = Text(fault or one.get("not_ready") or "healthy", _BAD if fault else _GOOD)
        version = Text("-" if one["policy_version"] is None else str(one["policy_version"]))
        table.add_row(Text(one["worker"], "bold"), Text(one["role"]), Text(str(one["pid"])), version, health)
    return table


def bar(share: float | None, width: int, mark: float | None = None) -> Text:
    """A bar of eighths, blue; with a mark, where the door closes: green up to it, yellow beyond, red from 90 % on."""
    if share is None:
        return Text("·" * width, _QUIET)
    filled = min(width * 8, max(0, round(share * width * 8)))
    if share > 0 and filled == 0:
        filled = 1
    style = "blue"
    if mark is not None:
        style = _BAD if share >= 0.9 else _WARN if share > mark else _GOOD
    whole, rest = divmod(filled, 8)
    drawn = Text()
    drawn.append("█" * whole + (_EIGHTHS[rest] if rest else ""), style)
    at = None if mark is None else min(width - 1, round(mark * width))
    for column in range(len(drawn), width):
        drawn.append("┊" if column == at else "─", _QUIET)
    return drawn


def _table(first: str, gap: int = 2) -> Table:
    table = Table(box=None, pad_edge=False, header_style="cyan", padding=(0, gap, 0, 0))
    table.add_column(first, no_wrap=True, overflow="ellipsis", min_width=12)
    return table


def _numbers(table: Table, *names: str) -> None:
    for name in names:
        table.add_column(name, no_wrap=True, justify="right")


def _cut(table: Table, rows: int) -> Table:
    """At most so many rows; the last says how many more there are."""
    more = table.row_count - rows
    if more <= 0:
        return table
    kept = max(0, rows - 1)
    table.rows = table.rows[:kept]
    for column in table.columns:
        column._cells = column._cells[:kept]
    table.add_row(Text(f"{more + 1} more", _QUIET))
    return table


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _count(count: int | None) -> Text:
    if count is None:
        return Text("?", _WARN)
    told = f"{count:,}".replace(",", " ") if count < 10_000_000 else f"{count / 1e6:.4g} M"
    return Text(told, "" if count else _QUIET)


def _number(value: float | None) -> Text:
    return Text("-", _QUIET) if value is None else Text(f"{value:,.4g}".replace(",", " "), "" if value else _QUIET)


def _rate(rates: Mapping[str, float] | None, name: str, style: str = "") -> Text:
    if rates is None:
        return Text("-", _QUIET)
    value = rates.get(name, 0.0)
    return Text("0", _QUIET) if not value else Text(f"{value:.0f}" if value >= 10 else f"{value:.1f}", style)


def _span(milliseconds: float | None) -> str:
    return "-" if not milliseconds else span(milliseconds)


def _age(age_ms: float | None, share: float | None, door: float) -> Text:
    if age_ms is None:
        return Text("?", _WARN)
    style = _QUIET if not age_ms else _BAD if (share or 0) >= 0.9 else _WARN if (share or 0) > door else ""
    return Text(_span(age_ms), style)


def _state(state: str, beside: str = "") -> Text:
    style = next((s for word, s in {**_STATES, **_WAITS}.items() if state.startswith(word)), _BAD)
    told = Text(state.replace("_", " "), style)
    return told if not beside else Text.assemble(told, (f" {beside}", _QUIET))
