"""`POST /v1/messages/batch`: up to 1,000 messages under one key, worked in chunks so that others get their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from gateway.admission import fingerprints, idempotency_keys
from gateway.admission.batch import BatchRequest, accepted_item, all_refused, read_batch, refused_item
from gateway.admission.clocks import DEFERRAL
from gateway.admission.decisions import decide
from gateway.admission.flows import entry_of
from gateway.admission.judgement import Allowed, judge
from gateway.admission.problems import IDEMPOTENCY_IN_PROGRESS, STORAGE, Problem, invalid
from gateway.admission.rows import Admitted, Identity, keep_answer_until, new_row
from gateway.admission.verdicts import ask_of
from gateway.api.answers import Answer, Headers, problem_answer, raw_answer
from gateway.api.bodies import BodyRefused, read_object
from gateway.api.desk import BATCH, NO_CLASS, Desk, TenantRef, Visit
from gateway.domain.message import message_object
from gateway.ledger.acceptance import Call
from gateway.ledger.idempotency import KeyPlace
from gateway.policy.rules.lookup import tenant_rules
from gateway.policy.rules.snapshot import Policy
from gateway.telemetry import metrics
from scheduler.core.asks import Verdict
from scheduler.core.records import Entry

CHUNK: Final = 50
_OTP: Final = "otp"


@dataclass(slots=True)
class _Worked:
    """What came of the items so far, in order."""

    results: list[dict[str, Any]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    promised: int = 0


async def submit(desk: Desk, tenant: TenantRef, body: bytes, header: str | None) -> Answer:
    """The answer to a batch call; `header` is its Idempotency-Key."""
    began_mono = desk.rt.clock.now_mono()
    policy = desk.policy
    if policy is None:
        return problem_answer(STORAGE)
    given, batch, problem = _read(body)
    cost = 1 if batch is None else len(batch.items)
    grant = await desk.toll(tenant, tenant_rules(policy, tenant.name), cost)
    headers: Headers = ()
    if grant is not None:
        headers = grant.headers()
        if not grant.allowed:
            return desk.refuse_rate(tenant, grant.retry_after_s, headers)
    key = idempotency_keys.read(header)
    if isinstance(key, Problem):
        desk.count_refusal(tenant, NO_CLASS, key)
        return problem_answer(key, headers)
    if given is None:
        return problem_answer(problem or STORAGE, headers)
    fingerprint = fingerprints.fingerprint_of_batch(desk.rt.pepper, given)
    visit = Visit(tenant, KeyPlace(tenant.id, BATCH, key), fingerprint, headers)
    if not desk.enter(visit.place):
        return problem_answer(IDEMPOTENCY_IN_PROGRESS, headers)
    try:
        if batch is None or grant is None or not desk.in_step:
            return await desk.refuse(visit, problem or STORAGE)
        if (known := await desk.known(visit)) is not None:
            return known
        return await _submit(desk, visit, policy, batch)
    finally:
        desk.leave(visit.place)
        metrics.admission_seconds.observe(desk.rt.clock.now_mono() - began_mono)


def _read(body: bytes) -> tuple[dict[str, Any] | None, BatchRequest | None, Problem | None]:
    try:
        given = read_object(body)
    except BodyRefused as refused:
        return None, None, refused.problem
    batch = read_batch(given)
    return (given, batch, None) if isinstance(batch, BatchRequest) else (given, None, invalid(batch))


async def _submit(desk: Desk, visit: Visit, policy: Policy, batch: BatchRequest) -> Answer:
    worked = _Worked()
    token = fingerprints.key_token(visit.place.tenant_id, visit.place.endpoint, visit.place.key)
    now_at = desk.rt.clock.now_at()
    kept = False
    try:
        for start in range(0, len(batch.items), CHUNK):
            await _work_chunk(
                desk, visit, (policy, batch, token), range(start, min(start + CHUNK, len(batch.items))), worked
            )
            await asyncio.sleep(0)
        if not worked.rows:
            return await desk.refuse(visit, all_refused(worked.problems, worked.results))
        call = _call(visit, policy, token, worked)
        instead = await desk.keep(visit, call)
        kept = instead is None
    finally:
        if not kept:
            desk.caps.take_back(visit.tenant.id, worked.promised, now_at)
    if instead is not None:
        return instead
    for row in worked.rows:
        desk.count_accepted(visit.tenant, row["class"], row["segments"], deferred=row["due_kind"] == DEFERRAL)
    return raw_answer(202, call.answer, visit.headers)


async def _work_chunk(
    desk: Desk, visit: Visit, work: tuple[Policy, BatchRequest, int], indices: range, worked: _Worked
) -> None:
    policy, batch, token = work
    judged = await _judge(desk, visit, policy, batch, indices)
    asks = [
        ask_of(one, _place(token, index))
        for index, one in zip(indices, judged, strict=True)
        if isinstance(one, Allowed) and one.clocks.not_before is None
    ]
    verdicts = await desk.verdicts(asks) if asks else []
    async with desk.batch_turn:
        _decide(desk, visit, policy, (judged, verdicts), worked)
        await asyncio.sleep(0)


def _decide(
    desk: Desk,
    visit: Visit,
    policy: Policy,
    chunk: tuple[list[Allowed | Problem], Sequence[Verdict | None]],
    worked: _Worked,
) -> None:
    judged, verdicts = chunk[0], iter(chunk[1])
    for one in judged:
        if isinstance(one, Problem):
            _refuse(desk, visit.tenant, (NO_CLASS, one), worked)
            continue
        if one.clocks.not_before is not None:
            decision: Admitted | Problem = Admitted(0, one.clocks, 0, one.clocks.held_by)
        else:
            verdict = next(verdicts)
            decision = STORAGE if verdict is None else decide(one, verdict)
            if verdict is not None:
                desk.note_wait(one.traffic.name, one.routes[verdict.candidate].name, verdict.predicted_wait_ms)
        if isinstance(decision, Problem):
            desk.caps.take_back(visit.tenant.id, one.measure.segments, one.clocks.created_at)
            _refuse(desk, visit.tenant, (one.traffic.name, decision), worked)
        else:
            worked.promised += one.measure.segments
            _accept(desk, visit, policy, (one, decision), worked)


def _place(token: int, index: int) -> bytes:
    """Each message of a call has a place of its own in the waiting line, which is as long as the work in it."""
    return ((token + index) % 2**64).to_bytes(8, "big")


async def _judge(
    desk: Desk, visit: Visit, policy: Policy, batch: BatchRequest, indices: range
) -> list[Allowed | Problem]:
    async with desk.batch_turn:
        judged = [judge(desk.moment(policy, visit.tenant), *batch.item(index)) for index in indices]
        await asyncio.sleep(0)
    allowed = [one for one in judged if isinstance(one, Allowed)]
    unwanted = iter(await desk.consent(visit.tenant, allowed))
    rules = tenant_rules(policy, visit.tenant.name)
    results: list[Allowed | Problem] = []
    for one in judged:
        if isinstance(one, Problem):
            results.append(one)
            continue
        over = next(unwanted) or await desk.promise(visit.tenant, rules, one.measure.segments)
        results.append(one if over is None else over)
    return results


def _refuse(desk: Desk, tenant: TenantRef, refusal: tuple[str, Problem], worked: _Worked) -> None:
    class_name, problem = refusal
    desk.count_refusal(tenant, class_name, problem)
    worked.problems.append(problem)
    worked.results.append(refused_item(problem))


def _accept(desk: Desk, visit: Visit, policy: Policy, decided: tuple[Allowed, Admitted], worked: _Worked) -> None:
    allowed, admitted = decided
    row = new_row(allowed, admitted, Identity(desk.new_id(), visit.tenant.id, policy.version))
    worked.rows.append(row)
    worked.results.append(accepted_item(message_object(row)))
    if admitted.due_kind is None:
        worked.entries.append(entry_of(policy, desk.rt.pepper, visit.tenant.name, row))


def _call(visit: Visit, policy: Policy, token: int, worked: _Worked) -> Call:
    return Call(
        place=visit.place,
        token=token,
        fingerprint=visit.fingerprint,
        answer=orjson.dumps({"results": worked.results}),
        keep_until=max(keep_answer_until(row, policy.receipts.cutoff_ms) for row in worked.rows),
        rows=worked.rows,
        entries=worked.entries,
        urgent=all(row["class"] == _OTP for row in worked.rows),
    )
