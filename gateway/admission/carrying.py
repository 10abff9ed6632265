"""What each candidate route's carrier makes of a message: encoding, segments, TLVs; who cannot carry it is left out."""

from __future__ import annotations

from gateway.admission.fields import MessageRequest, Place
from gateway.admission.problems import Problem, invalid, refused
from gateway.domain.vendor_tlvs import TlvUnfit, octets_of
from gateway.policy.rules.snapshot import Dialect, Policy, Route, TrafficClass
from scheduler.core.values import valueclass
from smpp.text import Carriage, Measure, TextError, measure


@valueclass
class Carried:
    """A route that can carry the message, and what it takes there."""

    route: Route
    measure: Measure
    carriage: Carriage


@valueclass
class Burden:
    """What is to be carried: `text` as it will be sent, and where its fields stand in the body."""

    request: MessageRequest
    text: str
    traffic: TrafficClass
    place: Place


def carried_by(policy: Policy, routes: tuple[Route, ...], burden: Burden) -> tuple[Carried, ...] | Problem:
    """The routes that can carry it, in their order; where none can, why the first one cannot."""
    kept: list[Carried] = []
    first: Problem | None = None
    seen: dict[Carriage, Measure | Problem] = {}
    for route in routes:
        dialect = policy.providers[route.provider].dialect
        carriage = dialect.carriage
        found: Measure | Problem | None = _refused_tlv(dialect, burden)
        if found is None:
            found = seen.get(carriage)
        if found is None:
            found = seen[carriage] = _measure(carriage, burden)
        if isinstance(found, Measure):
            kept.append(Carried(route, found, carriage))
        elif first is None:
            first = found
    return tuple(kept) if kept or first is None else first


def _refused_tlv(dialect: Dialect, burden: Burden) -> Problem | None:
    """A TLV that a carrier does not declare is never dropped on the way: another route must take the message."""
    for name, value in burden.request.tlvs.items():
        rule = dialect.tlvs.get(name)
        if rule is None:
            fault = burden.place.fault("tlvs", f"No route's carrier takes the TLV {name}.")
            return refused("policy.tlvs", fault, tlvs=[name])
        try:
            octets_of(rule, value)
        except TlvUnfit as unfit:
            return refused("policy.tlvs", burden.place.fault("tlvs", f"The TLV {name} {unfit}."), tlvs=[name])
    return None


def _measure(carriage: Carriage, burden: Burden) -> Measure | Problem:
    request, traffic = burden.request, burden.traffic
    try:
        measured = measure(burden.text, request.encoding, carriage)
    except TextError as error:
        if request.encoding == "gsm7":
            return invalid([burden.place.fault("text", str(error))])
        # With a free choice of encoding only the length can be at fault.
        said = f"The text is longer than any message can be; this one may have {request.max_segments} segments."
        return refused("policy.max_segments", burden.place.fault("text", said), max_segments=request.max_segments)
    if measured.segments > request.max_segments:
        said = f"The text needs {_needed(measured, request.encoding)}; the limit is {request.max_segments}."
        return refused(
            "policy.max_segments",
            burden.place.fault("text", said),
            segments=measured.segments,
            max_segments=request.max_segments,
            encoding=measured.encoding,
        )
    if traffic.max_segments is not None and measured.segments > traffic.max_segments:
        needed = _needed(measured, request.encoding)
        said = f"The text needs {needed}; the class {traffic.name} allows {traffic.max_segments}."
        members = {"segments": measured.segments, "max_segments": traffic.max_segments, "class": traffic.name}
        return refused("policy.content", burden.place.fault("text", said), **members)
    return measured


def _needed(measured: Measure, asked: str) -> str:
    """The segments in words, with the reason where a single character made them many."""
    said = f"{measured.segments} segment{'s' if measured.segments != 1 else ''}"
    if measured.encoding == "ucs2" and asked == "auto":
        return f"{said}, since a character outside the GSM alphabet makes it UCS-2 (70 characters a segment)"
    return said
