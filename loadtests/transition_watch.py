"""Watches every change of a message's status in a run's own ledger against the transition table (I1)."""

from __future__ import annotations

from typing import Any, Final

import asyncpg

from gateway.domain import states

_INSTALL: Final = """
CREATE TABLE strayed (id uuid, before text, after text, step integer);
CREATE TABLE lawful (before text, after text, PRIMARY KEY (before, after));
CREATE FUNCTION watch_status() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.version <> OLD.version + 1
       OR NOT EXISTS (SELECT FROM lawful w WHERE w.before = OLD.status AND w.after = NEW.status) THEN
        INSERT INTO strayed VALUES (NEW.id, OLD.status, NEW.status, NEW.version - OLD.version);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER watch_status AFTER UPDATE ON messages FOR EACH ROW
    WHEN (NEW.status IS DISTINCT FROM OLD.status OR NEW.version IS DISTINCT FROM OLD.version)
    EXECUTE FUNCTION watch_status();
"""


def lawful() -> set[tuple[str, str]]:
    """Pairs of stored statuses that one update may join: `sending` is stored as `queued`."""
    stored = {states.SENDING: states.QUEUED}
    pairs = {(stored.get(row.before, row.before), stored.get(row.after, row.after)) for row in states.TABLE}
    return pairs | {(status, status) for status in states.OPEN}  # a new slot, a new time: the version tells of it


async def watch(ledger: asyncpg.Connection[Any]) -> None:
    """Starts watching."""
    await ledger.execute(_INSTALL)
    await ledger.executemany("INSERT INTO lawful VALUES ($1, $2)", sorted(lawful()))


async def strayed(ledger: asyncpg.Connection[Any]) -> list[str]:
    """Changes that no row of the table allows, or whose version did not rise by one."""
    rows = await ledger.fetch("SELECT * FROM strayed")
    return [f"{row['id']}: {row['before']} -> {row['after']} (version +{row['step']})" for row in rows]
