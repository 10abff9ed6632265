"""run.json: how the command line finds a running gateway (file mode 0600, gone after an orderly end)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gateway.embedded import child
from gateway.embedded.home import write_private

NAME = "run.json"


@dataclass(slots=True)
class RunFile:
    """Addresses, the internal operators' token and the processes of one run."""

    pid: int
    api_url: str
    operators_url: str
    operators_token: str
    database_url: str
    redis_url: str
    processes: dict[str, int] = field(default_factory=dict)

    def write(self, data_dir: Path) -> None:
        """Writes it whole."""
        write_private(data_dir / NAME, json.dumps(asdict(self), indent=1))


def read(data_dir: Path) -> RunFile | None:
    """The running gateway of a data directory; None where nothing runs there."""
    try:
        found = RunFile(**json.loads((data_dir / NAME).read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return found if child.alive(found.pid) else None
