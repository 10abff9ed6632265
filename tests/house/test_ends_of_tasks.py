"""Tasks that are cancelled and waited for end by `gateway.loops.end`: a cancellation may be lost on the way."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CANCELLED_AND_AWAITED = re.compile(r"\.cancel\(\)\n[^\n]*await (?:asyncio\.gather\(|[a-z_.]+\n)")
SINS = (
    "        for task in tasks:\n            task.cancel()\n        await asyncio.gather(*tasks)\n",
    "    self._task.cancel()\n    await self._task\n",
)


def test_nobody_waits_for_a_task_that_was_cancelled_once() -> None:
    sinners = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "gateway").rglob("*.py"))
        if CANCELLED_AND_AWAITED.search(path.read_text(encoding="utf-8"))
    ]
    assert sinners == [], "use gateway.loops.end"


def test_the_rule_sees_sins() -> None:
    assert all(CANCELLED_AND_AWAITED.search(sin) for sin in SINS)
