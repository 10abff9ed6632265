"""Verbs that hold by hand: session, route, provider, application."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from gateway.cli.connection import AsJson, DataDir, Operators, refused, run
from gateway.cli.output import tell, tell_json, tell_pairs

session_verbs = typer.Typer(no_args_is_help=True, help="Binds to carriers, by hand; survives a restart.")
route_verbs = typer.Typer(no_args_is_help=True, help="Routes, by hand; survives a restart.")
provider_verbs = typer.Typer(no_args_is_help=True, help="Whole carriers, by hand; survives a restart.")
application_verbs = typer.Typer(no_args_is_help=True, help="Applications (campaigns) of a tenant, by hand.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="As the policy names it.")]
Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="Whose application.")]
Application = Annotated[str, typer.Argument(metavar="NAME", help="As its messages name it.")]


@session_verbs.command("pause")
def session_pause(name: Name, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Send nothing more over a session; it stays bound and takes receipts.

    Example: sluicegate session pause a1
    """
    _tell(run(_post(("sessions", name, "pause"), data_dir)), f"paused session {name}", as_json)


@session_verbs.command("drain")
def session_drain(name: Name, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Send nothing more over a session, wait for the answers that are due, then unbind it.

    Example: sluicegate session drain a1
    """
    _tell(run(_post(("sessions", name, "drain"), data_dir)), f"draining session {name}", as_json)


@session_verbs.command("resume")
def session_resume(name: Name, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Use a session again that was paused, drained, or refused by its carrier.

    Example: sluicegate session resume a1
    """
    _tell(run(_post(("sessions", name, "resume"), data_dir)), f"resumed session {name}", as_json)


@route_verbs.command("pause")
def route_pause(name: Name, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Send nothing more over a route: new messages take another, or are told to come back.

    Example: sluicegate route pause it-main
    """
    _tell(run(_post(("routes", name, "pause"), data_dir)), f"paused route {name}", as_json)


@route_verbs.command("resume")
def route_resume(name: Name, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Use a route again.

    Example: sluicegate route resume it-main
    """
    _tell(run(_post(("routes", name, "resume"), data_dir)), f"resumed route {name}", as_json)


@provider_verbs.command("pause")
def provider_pause(name: Name, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Send nothing more to a carrier over any of its sessions.

    Example: sluicegate provider pause carrier-a
    """
    _tell(run(_post(("providers", name, "pause"), data_dir)), f"paused provider {name}", as_json)


@provider_verbs.command("resume")
def provider_resume(name: Name, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Use a carrier again.

    Example: sluicegate provider resume carrier-a
    """
    _tell(run(_post(("providers", name, "resume"), data_dir)), f"resumed provider {name}", as_json)


@application_verbs.command("pause")
def application_pause(tenant: Tenant, name: Application, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Hold what an application sends: messages are accepted and wait.

    Example: sluicegate application pause acme spring-sale
    """
    _show(run(_post(("applications", tenant, name, "pause"), data_dir)), as_json)


@application_verbs.command("resume")
def application_resume(tenant: Tenant, name: Application, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Let an application go on; the time it was held does not count against its messages' wait budget.

    Example: sluicegate application resume acme spring-sale
    """
    _show(run(_post(("applications", tenant, name, "resume"), data_dir)), as_json)


@application_verbs.command("cancel")
def application_cancel(tenant: Tenant, name: Application, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Cancel all that waits of an application.

    Example: sluicegate application cancel acme spring-sale
    """
    _show(run(_post(("applications", tenant, name, "cancel"), data_dir)), as_json)


def register(app: typer.Typer) -> None:
    """Adds the verbs."""
    app.add_typer(session_verbs, name="session")
    app.add_typer(route_verbs, name="route")
    app.add_typer(provider_verbs, name="provider")
    app.add_typer(application_verbs, name="application")


async def _post(steps: tuple[str, ...], data_dir: Path | None) -> Any:
    path = "/admin/" + "/".join(quote(step, safe="") for step in steps)
    status, answer = await Operators(data_dir).ask("POST", path)
    if status != 200:
        raise refused(answer)
    return answer


def _tell(answer: Any, text: str, as_json: bool) -> None:
    if as_json:
        tell_json(answer)
    else:
        tell(text)


def _show(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        tell_json(answer)
        return
    pairs = {name: answer[name] for name in ("tenant", "name", "paused", "paused_since", "canceled") if name in answer}
    tell_pairs(pairs | answer["counts"])
