"""One page of metrics for all processes of one machine: each sample gets `role` and `worker` (contract section 4)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from prometheus_client import generate_latest

from gateway.telemetry import REGISTRY

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OWN_ROLE = re.compile(r'(?:^|,)role="')


def own_page() -> str:
    """This process's own metrics."""
    return generate_latest(REGISTRY).decode()


def merge(pages: Iterable[tuple[str, str, str]]) -> str:
    """One page from (role, worker, page) triples; samples of one family stand together, as the format demands."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for role, worker, page in pages:
        family = ""
        for line in page.splitlines():
            if line.startswith("# HELP "):
                family = line.split(" ", 3)[2]
                heads.setdefault(family, [])
                samples.setdefault(family, [])
            if line.startswith("#"):
                if line not in heads.setdefault(family, []):
                    heads[family].append(line)
            elif line:
                samples.setdefault(family, []).append(label(line, role, worker))
    lines = [line for family, head in heads.items() for line in (*head, *samples.get(family, ()))]
    return "\n".join(lines) + "\n"


def label(sample: str, role: str, worker: str) -> str:
    """A sample line with `role` and `worker` in front; a role that it tells itself stays."""
    name, brace, rest = sample.partition("{")
    if not brace or " " in name:
        name, _, value = sample.partition(" ")
        return f'{name}{{role="{role}",worker="{worker}"}} {value}'
    own = f'worker="{worker}"' if _OWN_ROLE.search(rest) else f'role="{role}",worker="{worker}"'
    return f"{name}{{{own},{rest}"
