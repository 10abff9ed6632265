"""The verb explain: why a message waits now, or why it ended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.connection import AsJson, DataDir, Operators, check_message_id, refused, run
from gateway.cli.output import tell_json, tell_pairs


def register(app: typer.Typer) -> None:
    """Adds the verb."""

    @app.command()
    def explain(
        message_id: Annotated[str, typer.Argument(metavar="ID")], data_dir: DataDir = None, as_json: AsJson = False
    ) -> None:
        """Say why a message waits now, or why it ended.

        Example: sluicegate explain msg_0199f3a6c1d27c3e8a4b5c6d7e8f9a0b
        """
        check_message_id(message_id)
        told = run(_explain(message_id, data_dir))
        if as_json:
            tell_json(told)
        else:
            show_explanation(told)


def show_explanation(told: dict[str, Any]) -> None:
    """An explanation for people."""
    pairs = {name: told[name] for name in ("id", "status")}
    if told["ended"] is not None:
        ended = told["ended"]
        pairs |= {"ended": ended["at"], "by": ended["origin"], "code": ended["code"], "reason": ended["reason"]}
    else:
        pairs["waits for"] = _waits_for(told["waiting_for"])
        pairs |= {
            name.replace("_", " "): told[name]
            for name in ("position", "predicted_start", "looked_at_again", "since", "until")
            if told.get(name)
        }
        pairs |= {name.replace("_", " "): told[name] for name in ("submit_by", "expires_at")}
        if told.get("will_expire"):
            pairs["outlook"] = "expires before its turn comes, as things stand"
    tell_pairs(pairs)


def _waits_for(waiting: dict[str, Any]) -> str:
    words = [waiting["scope"].replace("_", " ")]
    if waiting.get("kind"):
        words.append(waiting["kind"])
    if waiting.get("name"):
        words.append(waiting["name"])
    if waiting.get("tokens_missing"):
        words.append(f"(lacks {waiting['tokens_missing']:g} segments)")
    return " ".join(words)


async def _explain(message_id: str, data_dir: Path | None) -> dict[str, Any]:
    code, told = await Operators(data_dir).ask("GET", f"/admin/messages/{message_id}/explain")
    if code != 200:
        raise refused(told)
    return dict(told)
