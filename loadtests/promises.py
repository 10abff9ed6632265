"""The table of promises: what the fault runs of a file say about each, and how sure that makes one.

    python -m loadtests.promises results/faults.jsonl --page docs/promises.md

A promise that held in N faults is broken with a probability of less than 3/N per fault (95 %, the rule of three).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from loadtests.hops import HOPS
from loadtests.pages import put

# What is promised -> how the oracle names a breach.
PROMISES: Final[Mapping[str, tuple[str, ...]]] = {
    "What was answered 202 is never lost": ("accepted messages lost", "another client's message"),
    "One idempotency key makes one message": ("two different messages", "more than one message"),
    "What was refused does not exist": ("refused messages that were kept",),
    "Every accepted message comes to its end, or is held in doubt with a date": (
        "messages without an end", "held in doubt for ever", "claims that were never closed",
    ),
    "Every end is told to the tenant's endpoint": ("ends that no callback told",),
    "No submit begins after `expires_at`": ("submitted after they expired",),
    "What may have been sent twice says so; nothing is sent a third time": (
        "unflagged doubles", "sent more than twice",
    ),
    "Nothing is sent without a claim on disk before it": ("without a claim", "the ledger knows nothing of"),
    "No session has more unanswered submits than its window": ("over the window",),
    "A fault puts in doubt, flags or expires only what was claimed or on the wire": ("without having been in flight",),
    "What the carrier has is not called unsent, nor the other way round": (
        "should have resolved", "the carrier never had",
    ),
    "Codes of a killed process are taken over within 5 s where another one lives": ("codes recovered later",),
}  # fmt: skip
FLOW_PER_S: Final = 200  # what a run should carry
REST: Final = "Everything else that the oracle looks at"


def promise_of(violation: str) -> str:
    """Which promise a violation breaks."""
    for promise, words in PROMISES.items():
        if any(word in violation for word in words):
            return promise
    return REST


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Promises, then faults by kind, then hops, in Markdown."""
    faults, accepted = sum(row["faults"] for row in rows), sum(row["accepted"] for row in rows)
    broken: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        for violation in row["violations"]:
            broken[promise_of(violation)].append(f"`{row['replay']}`: {violation}")
    dates = sorted(row["at"] for row in rows)
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    lines = [
        f"{dates[0]} to {dates[-1]}, commit {commits}: {faults:,} faults in {len(rows):,} runs, "
        f"{accepted:,} messages accepted.",
        "",
        "| promise | faults (N) | violations | at most, per fault |",
        "| --- | --- | --- | --- |",
    ]
    for promise in (*PROMISES, REST):
        bound = "-" if broken[promise] else f"{100 * 3 / faults:.1f} %"
        lines.append(f"| {promise} | {faults:,} | {len(broken[promise])} | {bound} |")
    lines += [
        "",
        "| fault | runs | N | accepted | in doubt | flagged | violations |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind in sorted({row["kind"] for row in rows}):
        some = [row for row in rows if row["kind"] == kind]
        sums = [sum(row[name] for row in some) for name in ("faults", "accepted", "doubts", "flagged")]
        failed = sum(len(row["violations"]) for row in some)
        lines.append(f"| {kind} | {len(some)} | " + " | ".join(f"{one:,}" for one in sums) + f" | {failed} |")
    lines += ["", *_told(rows)]
    hops: Counter[int] = Counter()
    for row in rows:
        hops.update({int(hop): count for hop, count in row["hops"].items()})
    lines += ["", "| hop | caught there |", "| --- | --- |"]
    lines += [f"| {hop}: {what} | {hops[hop]:,} |" for hop, what in HOPS.items()]
    for promise, told in broken.items():
        lines += ["", f"Broken: {promise}", *(f"- {one}" for one in told[:20])] if told else []
    return "\n".join(lines) + "\n"


def _told(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """At which rate the faults struck, and how long codes of killed processes waited."""
    rates = [row["rate_per_s"] for row in rows]
    busy = sum(rate >= FLOW_PER_S for rate in rates)
    told = [f"{busy} of {len(rows)} runs carried {FLOW_PER_S} messages a second or more; the slowest {min(rates)}."]
    for heirs, words in ((True, "where another process lived"), (False, "by the process itself, started anew")):
        some = [row for row in rows if row["heirs"] == heirs and row["recovered"]]
        if some:
            count, longest = sum(row["recovered"] for row in some), max(row["recovered_ms_max"] for row in some)
            told.append(
                f"Codes that killed processes left: {count:,} taken over {words}, after {longest / 1000:.1f} s at most."
            )
    return told


def missing_hops(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Hops on which no fault of these runs met anything."""
    return [hop for hop in HOPS if not any(row["hops"].get(str(hop), 0) for row in rows)]


def read_rows(path: Path, name: str = "unit") -> list[dict[str, Any]]:
    """The runs of a file, the newest of each name; none where there is no file."""
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()] if path.exists() else []
    return list({row[name]: row for row in rows}.values())


def main() -> int:
    """Print the table of a file and put it into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?", default=Path("results/faults.jsonl"))
    parser.add_argument("--page", type=Path, help="put it into this page: docs/promises.md")
    asked = parser.parse_args()
    rows = read_rows(asked.runs)
    if not rows:
        sys.stderr.write(f"{asked.runs} has no runs: make faults\n")
        return 2
    text = table(rows)
    sys.stdout.write(text)
    if asked.page:
        put(asked.page, "faults", text)
    return 1 if any(row["violations"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
