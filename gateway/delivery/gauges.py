"""The gauges that the delivery role keeps for the whole installation (contract section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from gateway.domain import states
from gateway.domain.coverage import HOUR_MS, OLD_MS, YOUNG_MS
from gateway.ledger import callback_lines, coverage, depths
from gateway.loops import repeat
from gateway.policy.rules.snapshot import Policy
from gateway.runtime import Runtime
from gateway.telemetry import metrics, name_label
from scheduler.core.asks import IndexReport, LineReport

QUEUES_S: Final = 5.0
LINES_S: Final = 5.0
AGES_S: Final = 15.0
COVERAGE_S: Final = 60.0
LARGEST: Final = 20


class Gauges:
    """Reads depths and ages and shows them; a store that is away leaves the last values."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt

    async def run(self) -> None:
        """Work until the role stops."""
        stopping = self._rt.stopping
        async with asyncio.TaskGroup() as group:
            group.create_task(repeat("policy_gauges", stopping, self.promises))
            group.create_task(repeat("queue_gauges", stopping, self.queues))
            group.create_task(repeat("line_gauges", stopping, self.lines))
            group.create_task(repeat("age_gauges", stopping, self.ages))
            group.create_task(repeat("coverage_gauge", stopping, self.coverage))

    async def promises(self) -> float:
        """What the policy in use promises: dashboards and alerts compare with it."""
        show_promises(self._rt.policies.current)
        return QUEUES_S

    async def queues(self) -> float:
        """Depth and age of what waits in the index."""
        show_queues(await self._rt.scheduler.report())
        return QUEUES_S

    async def lines(self) -> float:
        """The receipt inbox and the callback lines."""
        began_mono = self._rt.clock.now_mono()
        async with self._rt.pool.acquire() as conn:
            found = await depths.inbox(conn)
            owed, owed_since = await callback_lines.backlog(conn)
        metrics.receipt_inbox_depth.set(found.rows)
        metrics.receipt_inbox_oldest_seconds.set(self._age_s(found.oldest_at))
        metrics.callback_backlog.set(owed)
        metrics.callback_oldest_seconds.set(self._age_s(owed_since))
        return paced_s(LINES_S, self._rt.clock.now_mono() - began_mono)

    async def ages(self) -> float:
        """The oldest message of each status that is not final: that every accepted message ends."""
        began_mono = self._rt.clock.now_mono()
        async with self._rt.pool.acquire() as conn:
            waiting = await depths.open_messages(conn)
        for status in sorted(states.OPEN):
            found = waiting.by_status.get(status)
            metrics.messages_oldest_seconds.labels(status).set(self._age_s(None if found is None else found.oldest_at))
            metrics.messages_overdue_seconds.labels(status).set(self._age_s(None if found is None else found.due_at))
        # From the ledger: the index counts by route only where the route has a limit.
        metrics.route_queue_depth.clear()
        for route, messages in waiting.by_route.items():
            metrics.route_queue_depth.labels(route).set(messages)
        return paced_s(AGES_S, self._rt.clock.now_mono() - began_mono)

    async def coverage(self) -> float:
        """Share of what each provider was sent 6 to 48 hours ago with a final receipt, and of these the delivered."""
        now_at = self._rt.clock.now_at()
        async with self._rt.pool.acquire() as conn:
            found = await coverage.sums(conn, now_at - OLD_MS, now_at - YOUNG_MS - HOUR_MS + 1)
        metrics.receipt_coverage_ratio.clear()
        metrics.receipt_delivered_ratio.clear()
        for provider, counts in found.items():
            if counts.coverage is not None:
                metrics.receipt_coverage_ratio.labels(provider).set(counts.coverage)
            if counts.delivery is not None:
                metrics.receipt_delivered_ratio.labels(provider).set(counts.delivery)
        return COVERAGE_S

    def _age_s(self, since_at: int | None) -> float:
        return 0.0 if since_at is None else max(0, self._rt.clock.now_at() - since_at) / 1000


def paced_s(least_s: float, took_s: float) -> float:
    """Seconds until the next look at something whose cost grows with what waits: looking takes 2 % of the time."""
    return max(least_s, 50 * took_s)


def show_promises(policy: Policy) -> None:
    """Put budgets and sessions of a policy into the gauges; what it no longer has disappears."""
    for name, rules in policy.classes.items():
        metrics.class_wait_budget_seconds.labels(name).set(rules.wait_budget_ms / 1000)
        metrics.class_door_limit_seconds.labels(name).set(rules.wait_budget_ms * rules.door_share / 1000)
    metrics.retry_share_max_ratio.set(policy.retries.share)
    metrics.session_configured.clear()
    for provider in policy.providers.values():
        metrics.unconfirmed_total.labels(provider.name)  # from 0 on: what is buried here counts too
        for session in provider.sessions:
            metrics.session_configured.labels(session, provider.name).set(1)


def show_queues(report: IndexReport) -> None:
    """Put a report of the index into the gauges; what waits no more disappears."""
    for gauge in (metrics.queue_depth, metrics.queue_age_seconds, metrics.oldest_unserved_flow_seconds):
        gauge.clear()
    unserved: dict[str, int] = {}
    for (provider, class_name), line in report.lines.items():
        metrics.queue_depth.labels(class_name, provider).set(line.depth + line.leased)
        _show_ages(class_name, provider, line)
        unserved[class_name] = max(unserved.get(class_name, 0), line.unserved_ms)
    for class_name, waited_ms in unserved.items():
        metrics.oldest_unserved_flow_seconds.labels(class_name).set(waited_ms / 1000)
    metrics.tenant_queue_depth.clear()
    for tenant, waiting in _largest(report.tenants):
        metrics.tenant_queue_depth.labels(tenant).set(waiting)
    _show_scopes(report)


def _show_ages(class_name: str, provider: str, line: LineReport) -> None:
    for quantile, age_ms in (("0.5", line.median_ms), ("0.95", line.p95_ms), ("1", line.oldest_ms)):
        metrics.queue_age_seconds.labels(class_name, provider, quantile).set(age_ms / 1000)


def _show_scopes(report: IndexReport) -> None:
    by_kind: dict[str, dict[str, int]] = {}
    for (kind, name), scope in report.scopes.items():
        by_kind.setdefault(kind, {})[name] = scope.waiting
    metrics.destination_queue_depth.clear()
    for name, waiting in _largest(by_kind.get("destination", {})):
        metrics.destination_queue_depth.labels(name).set(waiting)
    metrics.application_queue_depth.clear()
    for name, waiting in _largest(by_kind.get("application", {})):
        tenant, _, application = name.partition("/")
        metrics.application_queue_depth.labels(tenant, name_label(application)).inc(waiting)


def _largest(waiting: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(waiting.items(), key=lambda one: (-one[1], one[0]))[:LARGEST]
