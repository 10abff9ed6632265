"""The door (design section 1, hops 1 to 4): a body and a key come in, an answer goes out; 202 only after the commit."""

from __future__ import annotations

from typing import Any, Final

import orjson

from gateway.admission import fingerprints, idempotency_keys
from gateway.admission.clocks import DEFERRAL
from gateway.admission.decisions import decide, rehearsal
from gateway.admission.fields import ALONE, read_message
from gateway.admission.flows import entry_of
from gateway.admission.judgement import Allowed, Moment, judge
from gateway.admission.problems import IDEMPOTENCY_IN_PROGRESS, STORAGE, Problem
from gateway.admission.rows import Admitted, Identity, keep_answer_until, new_row
from gateway.admission.verdicts import ask_of
from gateway.api import batches
from gateway.api.answers import Answer, Headers, json_answer, problem_answer, raw_answer
from gateway.api.bodies import BodyRefused, read_object
from gateway.api.desk import MESSAGES, NO_CLASS, Desk, TenantRef, Visit, location_of
from gateway.domain.message import message_object
from gateway.ledger.acceptance import Call
from gateway.ledger.idempotency import KeyPlace
from gateway.policy.rules.lookup import tenant_rules
from gateway.policy.rules.snapshot import Policy
from gateway.runtime import Runtime
from gateway.telemetry import metrics
from scheduler.core.asks import Verdict

_OTP: Final = "otp"


class Door:
    """Takes messages in for a tenant; used by the tenant port and by the operators' port."""

    def __init__(self, rt: Runtime) -> None:
        self._desk = Desk(rt)

    @property
    def desk(self) -> Desk:
        """What the door stands on, for calls that ask without sending."""
        return self._desk

    def start(self) -> None:
        """Starts the tasks of the door."""
        self._desk.start()

    async def stop(self) -> None:
        """Ends the door after what it accepted is written and queued."""
        await self._desk.stop()

    async def submit(self, tenant: TenantRef, body: bytes, key: str | None, dry_run: bool = False) -> Answer:
        """One message; `key` is the Idempotency-Key header. A dry run needs no key and keeps nothing."""
        desk = self._desk
        began_mono = desk.rt.clock.now_mono()
        policy = desk.policy
        if policy is None:
            return problem_answer(STORAGE)
        grant = await desk.toll(tenant, tenant_rules(policy, tenant.name), 1)
        headers: Headers = ()
        if grant is not None:
            headers = grant.headers()
            if not grant.allowed:
                return desk.refuse_rate(tenant, grant.retry_after_s, headers)
        try:
            given = read_object(body)
        except BodyRefused as refused:
            desk.count_refusal(tenant, NO_CLASS, refused.problem)
            return problem_answer(refused.problem, headers)
        able = grant is not None and desk.in_step
        if dry_run:
            answer = await self._rehearse(tenant, policy, given, headers) if able else problem_answer(STORAGE, headers)
        else:
            answer = await self._submit(tenant, policy, given, (key, headers, able))
        metrics.admission_seconds.observe(desk.rt.clock.now_mono() - began_mono)
        return answer

    async def submit_batch(self, tenant: TenantRef, body: bytes, key: str | None) -> Answer:
        """Up to 1,000 messages under one key."""
        return await batches.submit(self._desk, tenant, body, key)

    async def _submit(
        self, tenant: TenantRef, policy: Policy, given: dict[str, Any], rest: tuple[str | None, Headers, bool]
    ) -> Answer:
        header, headers, able = rest
        desk = self._desk
        key = idempotency_keys.read(header)
        if isinstance(key, Problem):
            desk.count_refusal(tenant, NO_CLASS, key)
            return problem_answer(key, headers)
        place = KeyPlace(tenant.id, MESSAGES, key)
        visit = Visit(tenant, place, fingerprints.fingerprint(desk.rt.pepper, given), headers)
        if (known := desk.remembered(visit)) is not None:
            return known
        if not desk.enter(place):
            return problem_answer(IDEMPOTENCY_IN_PROGRESS, headers)
        try:
            if not able:
                return await desk.refuse(visit, STORAGE)
            return await self._decide(visit, policy, given)
        finally:
            desk.leave(place)

    async def _decide(self, visit: Visit, policy: Policy, given: dict[str, Any]) -> Answer:
        desk = self._desk
        moment = desk.moment(policy, visit.tenant)
        request, faults = read_message(given, ALONE)
        allowed = judge(moment, request, faults, ALONE)
        if isinstance(allowed, Problem):
            desk.count_refusal(visit.tenant, request.class_name or NO_CLASS, allowed)
            return await desk.refuse(visit, allowed)
        if (unwanted := (await desk.consent(visit.tenant, [allowed]))[0]) is not None:
            desk.count_refusal(visit.tenant, allowed.traffic.name, unwanted)
            return await desk.refuse(visit, unwanted)
        rules = tenant_rules(policy, visit.tenant.name)
        segments, name = allowed.measure.segments, allowed.traffic.name
        if (over := await desk.promise(visit.tenant, rules, segments)) is not None:
            desk.count_refusal(visit.tenant, name, over)
            return await desk.refuse(visit, over)
        kept = False
        try:
            token = fingerprints.key_token(visit.place.tenant_id, visit.place.endpoint, visit.place.key)
            admitted = await self._admit(allowed, token)
            if isinstance(admitted, Problem):
                desk.count_refusal(visit.tenant, name, admitted)
                return await desk.refuse(visit, admitted)
            call = _call(visit, token, (moment, allowed, admitted), desk)
            instead = await desk.keep(visit, call)
            kept = instead is None
        finally:
            if not kept:
                desk.caps.take_back(visit.tenant.id, segments, moment.now_at)
        if instead is not None:
            return instead
        desk.count_accepted(visit.tenant, name, segments, deferred=admitted.due_kind == DEFERRAL)
        return raw_answer(202, call.answer, (*visit.headers, *location_of(call.answer)))

    async def _admit(self, allowed: Allowed, token: int) -> Admitted | Problem:
        if allowed.clocks.not_before is not None:
            # Nothing is asked of the queue before its time.
            return Admitted(0, allowed.clocks, 0, allowed.clocks.held_by)
        verdict = (await self._desk.verdicts([ask_of(allowed, token.to_bytes(8, "big", signed=True))]))[0]
        if verdict is None:
            return STORAGE
        self._desk.note_wait(allowed.traffic.name, allowed.routes[verdict.candidate].name, verdict.predicted_wait_ms)
        return decide(allowed, verdict)

    async def _rehearse(self, tenant: TenantRef, policy: Policy, given: dict[str, Any], headers: Headers) -> Answer:
        moment = self._desk.moment(policy, tenant)
        request, faults = read_message(given, ALONE)
        allowed = judge(moment, request, faults, ALONE)
        if isinstance(allowed, Problem):
            return problem_answer(allowed, headers)
        if (unwanted := (await self._desk.consent(tenant, [allowed]))[0]) is not None:
            return problem_answer(unwanted, headers)
        rules = tenant_rules(policy, tenant.name)
        over = await self._desk.over_the_cap(tenant, rules, allowed.measure.segments)
        verdict: Verdict | None = None
        outcome: Admitted | Problem
        if over is STORAGE:
            return problem_answer(STORAGE, headers)
        if allowed.clocks.not_before is None:
            verdict = (await self._desk.verdicts([ask_of(allowed, bytes(8), probe=True)]))[0]
            if verdict is None:
                return problem_answer(STORAGE, headers)
            outcome = over or decide(allowed, verdict)
        else:
            outcome = over or Admitted(0, allowed.clocks, 0, allowed.clocks.held_by)
        return json_answer(200, rehearsal(allowed, outcome, verdict), headers)


def _call(visit: Visit, token: int, decided: tuple[Moment, Allowed, Admitted], desk: Desk) -> Call:
    moment, allowed, admitted = decided
    row = new_row(allowed, admitted, Identity(desk.new_id(), visit.tenant.id, moment.policy.version))
    queued = admitted.due_kind is None
    return Call(
        place=visit.place,
        token=token,
        fingerprint=visit.fingerprint,
        answer=orjson.dumps(message_object(row)),
        keep_until=keep_answer_until(row, moment.policy.receipts.cutoff_ms),
        rows=(row,),
        entries=(entry_of(moment.policy, moment.pepper, visit.tenant.name, row),) if queued else (),
        urgent=allowed.traffic.name == _OTP,
    )
