"""`python -m gateway.supervisor ROLE`: a supervised role. As `sluicegate ROLE`, without the weight of a command line.

A role that was killed is back sooner by what is not imported here.
"""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path

import uvloop

from gateway import logs
from gateway.runtime import StartRefused
from gateway.settings import SettingsInvalid, load_settings
from gateway.supervisor.role import ROLES, run_role


def main() -> int:
    """Runs the role until it ends; 0 after an orderly end, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m gateway.supervisor", description="One role under a supervisor.")
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--worker", required=True, help="name of this process in status and metrics")
    parser.add_argument("--data-dir", type=Path, help="data directory of the run")
    parser.add_argument("--fd", type=int, help="inherited listening socket of the tenant port")
    given = parser.parse_args()
    try:
        settings = load_settings(data_dir=given.data_dir)
        logs.configure(settings.log_level, settings.log_format, role=given.role, worker=given.worker)
        sockets = [socket.socket(fileno=given.fd)] if given.fd is not None else None
        return uvloop.run(run_role(settings, given.role, given.worker, sockets))
    except (SettingsInvalid, StartRefused, OSError) as error:
        sys.stderr.write(f"{given.role} does not start: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
