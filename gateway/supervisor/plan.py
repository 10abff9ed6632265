"""Which roles run under `up` and what each is started with."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.embedded import child
from gateway.embedded.home import Home
from gateway.operators.desk import Neighbour
from gateway.settings import Settings
from gateway.supervisor.parts import Part, role_arguments, role_environment, verb_arguments
from gateway.supervisor.stores import Stores

_DRAIN_MARGIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Crew:
    """The roles in the order in which they are stopped, and where their own pages are."""

    parts: list[Part]
    neighbours: list[Neighbour]


def simulator_part(home: Home, port: int) -> Part:
    """The carrier simulator of the demo policy."""
    arguments = verb_arguments("carrier-sim", "--port", str(port), "--data-dir", str(home.directory))
    command = child.ChildCommand(arguments, role_environment({}), directory=Path.cwd(), log=home.log("carrier-sim"))
    return Part("carrier-sim", lambda: child.start(command), stop_steps=((signal.SIGTERM, 5.0),))


def plan_crew(settings: Settings, home: Home, stores: Stores, tenant_port: int, died: Callable[[int], None]) -> Crew:
    """Parts for every worker; `tenant_port` is the descriptor of the socket that all api workers inherit."""
    parts: list[Part] = []
    neighbours: list[Neighbour] = []
    sockets = home.socket_directory()
    counts = (("api", settings.api_workers), ("egress", settings.egress_workers), ("delivery", 1))
    for role, count in counts:
        for number in range(1, count + 1):
            worker = f"{role}-{number}"
            page = sockets / f"{worker}.sock"
            flags = ["--worker", worker, "--data-dir", str(home.directory)]
            inherited: tuple[int, ...] = ()
            if role == "api":
                flags += ["--fd", str(tenant_port)]
                inherited = (tenant_port,)
            command = child.ChildCommand(
                role_arguments(role, *flags),
                _environment(settings, stores, page),
                directory=Path.cwd(),
                log=home.log(worker),
                pass_fds=inherited,
            )
            stop_steps = ((signal.SIGTERM, settings.drain_s + _DRAIN_MARGIN_S),)
            parts.append(Part(worker, _starter(command), died, stop_steps))
            neighbours.append(Neighbour(role, worker, str(page)))
    return Crew(parts, neighbours)


def _starter(command: child.ChildCommand) -> Callable[[], subprocess.Popen[bytes]]:
    return lambda: child.start(command)


def _environment(settings: Settings, stores: Stores, page: Path) -> dict[str, str]:
    given = {
        "SLUICEGATE_DATABASE_URL": stores.database_url,
        "SLUICEGATE_REDIS_URL": stores.redis_url,
        "SLUICEGATE_DATA_KEY": settings.data_key.get_secret_value() if settings.data_key else "",
        "SLUICEGATE_ADMIN_SOCKET": str(page),
        "SLUICEGATE_LOG_FORMAT": "json" if settings.log_format == "auto" else settings.log_format,
    }
    if settings.policy is not None:
        given["SLUICEGATE_POLICY"] = str(settings.policy.absolute())
    return role_environment(given)
