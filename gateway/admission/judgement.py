"""What the policy says about a message before anything is asked of the queue: allowed how, or refused why (pure)."""

from __future__ import annotations

from dataclasses import replace

from gateway.admission import numbering
from gateway.admission.carrying import Burden, Carried, carried_by
from gateway.admission.clocks import SEND_AT_MAX_MS, Clocks, open_window, set_clocks
from gateway.admission.fields import FieldFault, MessageRequest, Place
from gateway.admission.flows import FlowFacts, flow_at, number_token
from gateway.admission.problems import Problem, invalid, refused
from gateway.admission.send_windows import window_at
from gateway.policy.rules.lookup import candidates, destination_for, tenant_rules
from gateway.policy.rules.snapshot import Limit, Policy, Route, SendWindow, Tenant, TrafficClass
from scheduler.core.records import Flow
from scheduler.core.values import valueclass
from smpp.text import Measure, transliterate


@valueclass
class Moment:
    """What one decision is made from. `draw` (0 <= draw < 1) chooses among routes that are equals."""

    policy: Policy
    tenant: str
    now_at: int
    pepper: bytes
    draw: float = 0.0


@valueclass
class Allowed:
    """A message that the policy allows: all that the queue and the ledger need to know of it.

    `text` is what will be sent: the request's, transliterated where it asks for that. `measure` is the largest over the
    candidate routes, whose carriers may want other encodings; `carried` holds each one's own, in the order of `routes`.
    """

    request: MessageRequest
    text: str
    traffic: TrafficClass
    recipient: str
    sender: str
    measure: Measure
    routes: tuple[Route, ...]
    flows: tuple[Flow, ...]
    number: bytes
    clocks: Clocks
    carried: tuple[Carried, ...] = ()
    window: SendWindow | None = None

    def measure_at(self, candidate: int) -> Measure:
        """What the message takes at the carrier of a candidate route."""
        return self.carried[candidate].measure if self.carried else self.measure


def judge(moment: Moment, request: MessageRequest, faults: list[FieldFault], place: Place) -> Allowed | Problem:
    """Allowed, or the first rule that says no; faults of fields come before any rule, all of them."""
    rules = tenant_rules(moment.policy, moment.tenant)
    recipient = numbering.normalise(request.to, accept_00_prefix=rules.accept_00_prefix) if request.to else None
    told = {fault.pointer for fault in faults}
    if place.pointer in told:
        return invalid(faults)  # not even an object
    by_tenant = _faults_by_tenant(request, rules, recipient, place, moment.now_at)
    faults = [*faults, *(fault for fault in by_tenant if fault.pointer not in told)]
    if faults or recipient is None:
        return invalid(faults)
    sender = request.sender or rules.default_sender or ""
    traffic = _traffic(moment.policy, rules, request, place)
    if isinstance(traffic, Problem):
        return traffic
    refusal = _refusal_by_tenant(rules, request, (recipient, sender), place)
    if refusal is not None:
        return refusal
    routes = candidates(moment.policy, moment.tenant, traffic.name, sender, recipient, draw=moment.draw)
    if not routes:
        return Problem("route.none", "No route of the policy takes this number, class and sender.")
    text = _text_to_send(request)
    carried = carried_by(moment.policy, routes, Burden(request, text, traffic, place))
    if isinstance(carried, Problem):
        return carried
    routes = tuple(one.route for one in carried)
    measured = max((one.measure for one in carried), key=_segments)
    carrying_ms = (
        0 if measured.segments == 1 else _carrying_ms(moment, rules, request, (recipient, sender), routes, measured)
    )
    clocks = set_clocks(request, traffic, moment.now_at, carrying_ms)
    destination = destination_for(moment.policy, recipient)
    window = window_at(destination, traffic.name)
    if not isinstance(clocks, Problem):
        clocks = open_window(clocks, traffic, window, carrying_ms)
    if isinstance(clocks, Problem):
        return _of_the_deadline(clocks, request, place)
    flows = tuple(
        flow_at(moment.policy, _facts(moment, request, traffic, route, (recipient, sender), clocks), destination)
        for route in routes
    )
    number = number_token(moment.pepper, destination, recipient)
    return Allowed(request, text, traffic, recipient, sender, measured, routes, flows, number, clocks, carried, window)


def _segments(measured: Measure) -> int:
    return measured.segments


def _facts(
    moment: Moment, request: MessageRequest, traffic: TrafficClass, route: Route, ends: tuple[str, str], clocks: Clocks
) -> FlowFacts:
    recipient, sender = ends
    return FlowFacts(
        tenant=moment.tenant,
        class_name=traffic.name,
        application=request.application,
        sender=sender,
        recipient=recipient,
        route=route.name,
        provider=route.provider,
        ttl_ms=clocks.expires_at - clocks.begins_at,
    )


def _faults_by_tenant(
    request: MessageRequest, rules: Tenant, recipient: str | None, place: Place, now_at: int
) -> list[FieldFault]:
    faults: list[FieldFault] = []
    if request.to and recipient is None:
        faults.append(place.fault("to", numbering.fault_of(request.to)))
    if request.sender is None and rules.default_sender is None:
        faults.append(place.fault("from", "is required: this tenant has no default sender"))
    if request.send_at is not None and request.send_at > now_at + SEND_AT_MAX_MS:
        faults.append(place.fault("send_at", "must be at most 35 days ahead"))
    if request.callback_url is not None and (rules.callbacks is None or not rules.callbacks.secrets):
        faults.append(
            place.fault("callback_url", "this tenant has no callback secret to sign with: the policy must set one")
        )
    return faults


def _traffic(policy: Policy, rules: Tenant, request: MessageRequest, place: Place) -> TrafficClass | Problem:
    name = request.class_name or rules.default_class
    traffic = policy.classes.get(name)
    if traffic is None or name not in rules.classes:
        fault = place.fault("class", f"This tenant may not use the class {name}.")
        return refused("policy.class", fault, **{"class": name})
    return traffic


def _refusal_by_tenant(rules: Tenant, request: MessageRequest, ends: tuple[str, str], place: Place) -> Problem | None:
    recipient, sender = ends
    if rules.destinations is not None and not recipient.startswith(rules.destinations):
        fault = place.fault("to", "The number is outside the prefixes that this tenant may send to.")
        return refused("policy.destination", fault)
    if rules.senders is not None and sender not in rules.senders and sender != rules.default_sender:
        return refused("policy.sender", place.fault("from", "The sender is not one of this tenant's."))
    unknown = sorted(name for name in request.tlvs if name not in rules.tlvs)
    if unknown:
        fault = place.fault("tlvs", f"This tenant may not use the TLV {unknown[0]}.")
        return refused("policy.tlvs", fault, tlvs=unknown)
    return None


def _of_the_deadline(problem: Problem, request: MessageRequest, place: Place) -> Problem:
    """The same problem, naming the field that sets the deadline where the message has one."""
    given = {"ttl": request.ttl_ms, "expires_at": request.expires_at}
    errors = tuple(place.fault(name, problem.detail) for name, value in given.items() if value is not None)
    return replace(problem, errors=errors)


def _text_to_send(request: MessageRequest) -> str:
    if not request.transliterate or request.encoding == "ucs2":
        return request.text
    near = transliterate(request.text)
    return near if near.strip() else request.text  # what has no near form at all goes as it was written


def _carrying_ms(
    moment: Moment,
    rules: Tenant,
    request: MessageRequest,
    ends: tuple[str, str],
    routes: tuple[Route, ...],
    measured: Measure,
) -> int:
    """How long the last segment of a long message follows the first, at the slowest limit of the best candidate."""
    recipient, sender = ends
    shared: list[Limit | None] = [rules.limits, rules.applications.get(request.application or "")]
    shared.append(rules.senders.get(sender) if rules.senders is not None else None)
    destination = destination_for(moment.policy, recipient)
    if destination is not None:
        shared += [destination.limits, destination.per_number]
    best: int | None = None
    for route in routes:
        provider = moment.policy.providers[route.provider]
        fixed = max(_spread_ms(limit, measured.segments) for limit in [*shared, route.limits, provider.limits])
        session = min(
            (_spread_ms(session.limits, measured.segments) for session in provider.sessions.values()), default=0
        )
        slowest = max(fixed, session)
        best = slowest if best is None else min(best, slowest)
    return best or 0


def _spread_ms(limit: Limit | None, segments: int) -> int:
    if limit is None:
        return 0
    return int(max(0, segments - limit.burst) / limit.rate_per_s * 1000)
