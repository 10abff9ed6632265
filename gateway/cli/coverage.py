"""The verb for receipts: coverage by provider and hour."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from gateway.cli.connection import AsJson, DataDir, database, run
from gateway.cli.output import Failed, instant, tell, tell_json, tell_table

_SINCE_MAX_MS: Final = 60 * 86_400_000
MEANINGS: Final = {
    "covered": "final receipts for at least 90 %",
    "young": "sent less than 6 hours ago: too early to tell",
    "unmatched": "receipts are in the inbox and fit no message: a race if it passes, a wrong dialect if it stays",
    "silent": "the carrier sends no receipts at all",
    "thin": "receipts come, but not for everything that was sent",
    "idle": "nothing was sent",
}


def register(app: typer.Typer) -> None:
    """Adds the verb."""

    @app.command()
    def coverage(
        since: Annotated[str, typer.Option("--since", help="How far back: 12h, 2d, up to 60d.")] = "48h",
        data_dir: DataDir = None,
        as_json: AsJson = False,
    ) -> None:
        """Show which share of what was sent has its final receipt, by provider and hour.

        Example: sluicegate coverage --since 24h
        """
        seen = run(_look(_span_ms(since), data_dir))
        if as_json:
            tell_json(seen)
        else:
            show(seen)


def show(seen: dict[str, Any]) -> None:
    """Coverage for people, and what its words mean."""
    columns = ("sent", "final", "coverage", "delivered", "receipts", "unmatched", "verdict")
    tell_table(
        ["provider", *columns],
        [(name, *(_cell(one, column) for column in columns)) for name, one in seen["providers"].items()],
        f"since {seen['since']}",
    )
    tell("")
    tell_table(
        ["provider", "hour", *columns],
        [(one["provider"], one["hour"], *(_cell(one, column) for column in columns)) for one in seen["hours"]],
        "by hour",
    )
    words = [one["verdict"] for one in seen["hours"]]
    if words:
        tell("")
        for word, meaning in MEANINGS.items():
            if word in words:
                tell(f"{word}: {meaning}")


def _cell(one: dict[str, Any], column: str) -> Any:
    value = one[column]
    return f"{value:.1%}" if isinstance(value, float) else value


def _span_ms(text: str) -> int:
    from gateway.policy.rules.scalars import duration_ms

    try:
        span_ms = duration_ms(text)
    except ValueError as error:
        raise Failed(f"--since {text}: {error}", 2) from error
    if not 0 < span_ms <= _SINCE_MAX_MS:
        raise Failed(f"--since {text}: from 1s to 60d", 2)
    return span_ms


async def _look(span_ms: int, data_dir: Path | None) -> dict[str, Any]:
    from gateway.domain.coverage import HOUR_MS, HourCounts, verdict
    from gateway.ledger.coverage import add_up, hours

    now_at = time.time_ns() // 1_000_000
    since_at = (now_at - span_ms) // HOUR_MS * HOUR_MS
    async with database(data_dir) as conn:
        found = await hours(conn, since_at, now_at)

    def told(counts: HourCounts) -> dict[str, Any]:
        return {
            "provider": counts.provider,
            "hour": instant(counts.hour_at),
            "sent": counts.sent,
            "final": counts.decided,
            "coverage": counts.coverage,
            "delivered": counts.delivered,
            "receipts": counts.receipts,
            "unmatched": counts.unmatched,
            "verdict": verdict(counts, now_at),
        }

    return {
        "at": instant(now_at),
        "since": instant(since_at),
        "providers": {name: told(counts) for name, counts in add_up(found).items()},
        "hours": [told(counts) for counts in found],
    }
