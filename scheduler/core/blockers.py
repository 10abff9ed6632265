"""What holds most, read off a report of the index."""

from __future__ import annotations

from scheduler.core.asks import Blocker, IndexReport, LinkReport


def blockers(report: IndexReport) -> list[Blocker]:
    """Per class the scopes that hold its work, largest first; classes in the order of their largest blocker.

    A limited scope holds while it lets nothing through for want of room, or is paused; a provider holds what waits in
    its lines while it is away, broken or paused. The rest waits for the sessions of its provider where each of them is
    at its own limit, else for its turn (`fairness`).
    """
    found: list[Blocker] = []
    explained: dict[str, int] = {}
    away: set[str] = set()
    for (provider, class_name), line in report.lines.items():
        link = report.providers.get(provider)
        if line.depth and link is not None and link.state != "up":
            away.add(provider)
            kind = "paused" if link.state == "paused" else "provider"
            found.append(Blocker(class_name, (kind, provider), line.depth, link.since_ms))
            explained[class_name] = explained.get(class_name, 0) + line.depth
    for scope, held in report.scopes.items():
        if scope[0] == "provider" and scope[1] in away:
            continue  # its limit holds the same messages: one row for one thing
        if held.paused or held.held_ms > 0:
            since_ms = held.paused_ms if held.paused else held.held_ms
            found += [Blocker(name, scope, waiting, since_ms) for name, waiting in held.by_class.items()]
            for name, waiting in held.by_class.items():
                explained[name] = explained.get(name, 0) + waiting
    depths: dict[str, tuple[int, int]] = {}
    for (_, class_name), line in report.lines.items():
        depth, unserved_ms = depths.get(class_name, (0, 0))
        depths[class_name] = depth + line.depth, max(unserved_ms, line.unserved_ms)
    for class_name, (depth, unserved_ms) in depths.items():
        rest = depth - explained.get(class_name, 0)
        for session, waiting, held_ms in _held_by_sessions(report, class_name, away):
            if rest > 0:
                found.append(Blocker(class_name, ("session", session), min(rest, waiting), held_ms))
                rest -= waiting
        if rest > 0:
            found.append(Blocker(class_name, ("fairness", class_name), rest, unserved_ms))
    largest = {
        name: max(one.waiting for one in found if one.class_name == name) for name in {b.class_name for b in found}
    }
    return sorted(found, key=lambda one: (-largest[one.class_name], one.class_name, -one.waiting, one.scope))


def _held_by_sessions(report: IndexReport, class_name: str, away: set[str]) -> list[tuple[str, int, int]]:
    """What waits for carriers each of whose sessions is at its own limit: (the one last served, messages, ms)."""
    found = []
    for (provider, name), line in report.lines.items():
        if name != class_name or not line.depth or provider in away:
            continue
        up = [(one.held_ms, session) for session, one in report.sessions.items() if _takes(one, provider)]
        if up and all(held_ms > 0 for held_ms, _ in up):
            held_ms, session = min(up)
            found.append((session, line.depth, held_ms))
    return found


def _takes(link: LinkReport, provider: str) -> bool:
    return link.provider == provider and link.state == "up"
