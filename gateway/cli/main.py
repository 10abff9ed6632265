"""The typer app: verbs, exit codes (0 done, 1 refused or failed, 2 wrong usage)."""

from __future__ import annotations

import importlib.metadata
import io
import sys
from typing import Annotated, Any, Final

import typer

from gateway.cli import (
    accounts,
    callbacks,
    coverage,
    explanations,
    messages,
    pauses,
    policies,
    restoring,
    roles,
    running,
    watching,
)
from gateway.cli.output import Failed, tell_error, tell_json

# What typer raises for wrong usage: its own copy of click has no public name.
_WrongUsage: Final[Any] = typer.BadParameter.__base__

app = typer.Typer(
    name="sluicegate",
    help="A self-hosted, multi-tenant SMS gateway that says no in time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
roles.register(app)
running.register(app)
watching.register(app)
restoring.register(app)
accounts.register(app)
policies.register(app)
messages.register(app)
explanations.register(app)
coverage.register(app)
callbacks.register(app)
pauses.register(app)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sluicegate {importlib.metadata.version('sluicegate')}")
        raise typer.Exit


@app.callback()
def whole(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What stands before every command."""


def main() -> None:
    """The console script."""
    as_json = "--json" in sys.argv
    if isinstance(sys.stdout, io.TextIOWrapper):
        # In a pipe too each line is seen when it is said: `up` and `carrier-sim` stay, and say what they do.
        sys.stdout.reconfigure(line_buffering=True)
    try:
        # Programs read wrong usage as JSON; people read typer's panel.
        sys.exit(app(standalone_mode=not as_json))
    except Failed as error:
        _tell_failure(str(error), error.code, as_json)
    except _WrongUsage as error:
        _tell_failure(error.format_message(), error.exit_code, as_json)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(1)


def _tell_failure(text: str, code: int, as_json: bool) -> None:
    """The reason on standard error; with --json also `{"error": {"message", "exit_code"}}` on standard output."""
    tell_error(text)
    if as_json:
        tell_json({"error": {"message": text, "exit_code": code}})
    sys.exit(code)
