"""What holds most, read off a report of the index."""

from __future__ import annotations

from scheduler.core.asks import Blocker, IndexReport


def blockers(report: IndexReport) -> list[Blocker]:
    """Per class the scopes that hold its work, largest first; classes in the order of their largest blocker.

    A limited scope holds while it lets nothing through for want of room, or is paused; a provider holds what waits in
    its lines while it is away, broken or paused. What waits in no such scope waits for its turn (`fairness`).
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
        if depth > explained.get(class_name, 0):
            rest = depth - explained.get(class_name, 0)
            found.append(Blocker(class_name, ("fairness", class_name), rest, unserved_ms))
    largest = {
        name: max(one.waiting for one in found if one.class_name == name) for name in {b.class_name for b in found}
    }
    return sorted(found, key=lambda one: (-largest[one.class_name], one.class_name, -one.waiting, one.scope))
