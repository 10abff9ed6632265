"""The state diagram of ARCHITECTURE.md, drawn from the transition table.

python -m tests.house.state_diagram          # puts it there
"""

from __future__ import annotations

import re
from pathlib import Path

from gateway.domain import states

ARCHITECTURE = Path(__file__).resolve().parents[2] / "ARCHITECTURE.md"
_DRAWN = re.compile(r"```mermaid\nstateDiagram-v2\n.*?\n```", re.DOTALL)


def redrawn(text: str) -> str:
    """The page with the diagram of the table as it is now; raises ValueError where it holds none, or several."""
    fresh = f"```mermaid\n{states.diagram()}\n```"
    redone, count = _DRAWN.subn(lambda _: fresh, text)
    if count != 1:
        raise ValueError(f"{count} state diagrams found, one is expected")
    return redone


if __name__ == "__main__":
    ARCHITECTURE.write_text(redrawn(ARCHITECTURE.read_text(encoding="utf-8")), encoding="utf-8")
