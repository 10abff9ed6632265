"""Verbs for one message by hand: send, message."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.connection import (
    AsJson,
    DataDir,
    Operators,
    check_message_id,
    database,
    local_run,
    refused,
    run,
    settings_of,
)
from gateway.cli.output import Failed, in_words, tell, tell_json, tell_pairs, tell_table

_LOOK_S = 0.25
_SHOWN = (
    "id",
    "tenant",
    "status",
    "final",
    "possible_duplicate",
    "class",
    "to",
    "from",
    "segments",
    "encoding",
    "route",
    "created_at",
    "submit_by",
    "expires_at",
    "not_before",
)
_REHEARSED = (
    "verdict",
    "status",
    "class",
    "to",
    "from",
    "segments",
    "encoding",
    "national_shift",
    "route",
    "predicted_wait_ms",
    "queue_age_ms",
    "not_before",
    "submit_by",
    "expires_at",
)


def register(app: typer.Typer) -> None:
    """Adds the verbs."""

    @app.command()
    def send(
        to: Annotated[str, typer.Option("--to", help="E.164 number with +.")],
        text: Annotated[str, typer.Option("--text", help="What the handset shows.")],
        tenant: Annotated[str, typer.Option("--tenant", help="For whom.")] = "demo",
        class_name: Annotated[
            str | None,
            typer.Option("--class", help="otp, transactional, marketing or non_priority.", show_default=False),
        ] = None,
        sender: Annotated[
            str | None, typer.Option("--from", help="Sender (default: the tenant's).", show_default=False)
        ] = None,
        wait: Annotated[
            bool, typer.Option("--wait", help="Wait for its end; exit code 1 unless it was delivered.")
        ] = False,
        timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Longest wait, seconds.")] = 60.0,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Only say what would happen, with the text of each part.")
        ] = False,
        data_dir: DataDir = None,
        as_json: AsJson = False,
    ) -> None:
        """Send one message by hand, through the same door as a tenant's call.

        Example: sluicegate send --to +447700900123 --text "Hello" --wait
        """
        named = {"tenant": tenant, "to": to, "text": text, "class": class_name, "from": sender}
        fields = {name: value for name, value in named.items() if value is not None}
        if dry_run:
            raise typer.Exit(0 if _told(run(_rehearse(fields, data_dir)), as_json) else 1)
        message = run(_send(fields, timeout if wait else None, data_dir))
        if as_json:
            tell_json(message)
        else:
            show(message)
        if wait and message["status"] not in ("delivered", "sent"):
            raise typer.Exit(1)

    @app.command()
    def message(
        message_id: Annotated[str, typer.Argument(metavar="ID")], data_dir: DataDir = None, as_json: AsJson = False
    ) -> None:
        """Show a message with both state columns, its parts and its timeline.

        Example: sluicegate message msg_0199f3a6c1d27c3e8a4b5c6d7e8f9a0b
        """
        check_message_id(message_id)
        found = run(_find(message_id, data_dir))
        if as_json:
            tell_json(found)
        else:
            show(found)


def show(message: dict[str, Any]) -> None:
    """A message for people."""
    pairs = {name: message.get(name) for name in _SHOWN if message.get(name) is not None}
    if not pairs.get("possible_duplicate"):
        pairs.pop("possible_duplicate", None)
    for name in ("delivery", "expiry", "error"):
        if message.get(name):
            told = {key: in_words(value) for key, value in message[name].items() if value is not None}
            pairs[name] = ", ".join(f"{key} {value}" for key, value in told.items())
    tell_pairs(pairs)
    if message.get("parts"):
        tell("")
        tell_table(
            ["part", "status", "receipt", "error code"],
            [
                (
                    one["part"],
                    one["status"],
                    (one["delivery"] or {}).get("state"),
                    (one["delivery"] or {}).get("error_code"),
                )
                for one in message["parts"]
            ],
        )
    if message.get("submits"):
        tell("")
        tell_table(
            ["submit", "provider", "session", "written", "answer", "after", "carrier's ids"],
            [_submit(one) for one in message["submits"]],
        )
    if message.get("events"):
        tell("")
        tell_table(
            ["seq", "at", "what", "cause"],
            [(one["seq"], one["at"], one["type"], one.get("cause")) for one in message["events"]],
        )


def _submit(one: dict[str, Any]) -> tuple[Any, ...]:
    """A row: what was submitted where, what the carrier said to it and how soon."""
    status = one["carrier_status"] if one["carrier_status"] != "0x00000000" else None
    answer = " ".join(filter(None, (one["outcome"] or "awaited", status)))
    after_ms = None
    if one["written_at"] and one["outcome_at"]:
        written, answered = (datetime.fromisoformat(one[name]) for name in ("written_at", "outcome_at"))
        after_ms = round((answered - written).total_seconds() * 1000)
    told = [
        part["carrier_id"] if len(one["parts"]) == 1 and part["part"] == 1 else f"{part['part']}: {part['carrier_id']}"
        for part in one["parts"]
    ]
    return (
        one["slot"],
        one["provider"],
        one["session"],
        one["written_at"] or "not written",
        answer,
        None if after_ms is None else f"{after_ms} ms",
        ", ".join(told) or None,
    )


def show_rehearsal(rehearsal: dict[str, Any]) -> None:
    """What a dry run said, for people."""
    pairs = {name: rehearsal.get(name) for name in _REHEARSED if rehearsal.get(name) is not None}
    if rehearsal.get("problem"):
        pairs["problem"] = f"{rehearsal['problem']['code']}: {rehearsal['problem'].get('detail', '')}"
    tell_pairs(pairs)
    tell("")
    # A line end inside a text would look like a row of its own.
    rows = [
        (part["number"], part["units"], json.dumps(part["text"], ensure_ascii=False)) for part in rehearsal["parts"]
    ]
    tell_table(["part", "units", "text"], rows)


def _told(rehearsal: dict[str, Any], as_json: bool) -> bool:
    """Shows what a dry run said; whether the message would have been taken."""
    if as_json:
        tell_json(rehearsal)
    else:
        show_rehearsal(rehearsal)
    return rehearsal["verdict"] in ("accept", "defer")


async def _rehearse(fields: dict[str, str], data_dir: Path | None) -> dict[str, Any]:
    code, answer = await Operators(data_dir).ask("POST", "/admin/messages?dry_run=true", json.dumps(fields).encode())
    if code != 200:
        raise refused(answer)
    return dict(answer)


async def _send(fields: dict[str, str], wait_s: float | None, data_dir: Path | None) -> dict[str, Any]:
    operators = Operators(data_dir)
    code, answer = await operators.ask("POST", "/admin/messages", json.dumps(fields).encode())
    if code != 202:
        raise refused(answer)
    message: dict[str, Any] = answer
    until = time.monotonic() + (wait_s or 0.0)
    while wait_s is not None and not message["final"]:
        if time.monotonic() > until:
            raise Failed(f"{message['id']} is {message['status']} after {wait_s:g} s")
        await asyncio.sleep(_LOOK_S)
        code, message = await operators.ask("GET", f"/admin/messages/{message['id']}")
        if code != 200:
            raise refused(message)
    return message


async def _find(message_id: str, data_dir: Path | None) -> dict[str, Any]:
    settings = settings_of(data_dir=data_dir)
    if settings.admin_url or (not settings.database_url and local_run(data_dir) is not None):
        code, found = await Operators(data_dir).ask("GET", f"/admin/messages/{message_id}")
        if code != 200:
            raise refused(found)
        return dict(found)
    from gateway.domain import ids
    from gateway.operators.admin_messages import timeline

    uuid = ids.read(message_id)
    if uuid is not None:
        async with database(data_dir) as conn:
            shown = await timeline(conn, uuid)
        if shown is not None:
            return shown
    raise Failed("There is no such message")
