"""The typer app: verbs, exit codes (0 done, 1 refused or failed, 2 wrong usage)."""

from __future__ import annotations

import sys

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
from gateway.cli.output import Failed, tell_error

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


def main() -> None:
    """The console script."""
    try:
        app(standalone_mode=True)
    except Failed as error:
        tell_error(str(error))
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(1)
