import pytest

from gateway.admission.fields import MessageRequest, Place
from gateway.admission.judgement import Allowed, Moment, judge
from gateway.admission.problems import Problem
from gateway.policy.rules.parse import read_policy

NOW = 1_780_000_000_000
POLICY = read_policy(
    """
tenants:
  acme:
    classes: [otp, transactional]
    default_class: transactional
    senders: {ACME: {}}
    default_sender: ACME
    destinations: ["+39", "+44"]
    callbacks: {url: "https://example.com/hooks", secrets: ["env:NOWHERE"]}
  plain: {}
providers:
  carrier:
    sessions: {a1: {host: localhost, port: 2775, system_id: a, password: "env:NOWHERE"}}
routes:
  otp-only: {match: {prefixes: ["+44"], classes: [otp]}, provider: carrier}
  main: {match: {prefixes: ["+39"]}, provider: carrier}
"""
)


def judged(request: MessageRequest, tenant: str = "acme") -> Allowed | Problem:
    return judge(Moment(POLICY, tenant, NOW, b"pepper"), request, [], Place())


def code_of(verdict: Allowed | Problem) -> str:
    assert isinstance(verdict, Problem), verdict
    return verdict.code


@pytest.mark.parametrize(
    ("request_", "code", "fields"),
    [
        (MessageRequest("+33612345678", "hi"), "policy.destination", ["to"]),
        (MessageRequest("+393331234567", "hi", sender="OTHER"), "policy.sender", ["from"]),
        (MessageRequest("+393331234567", "hi", class_name="marketing"), "policy.class", ["class"]),
        (MessageRequest("+447700900123", "hi"), "route.none", []),
        (MessageRequest("+393331234567", "hi", tlvs={"dlt": "1"}), "policy.tlvs", ["tlvs"]),
        (MessageRequest("+393331234567", "x" * 1531), "policy.max_segments", ["text"]),
        (MessageRequest("+393331234567", "x" * 39_016, max_segments=255), "policy.max_segments", ["text"]),
        (MessageRequest("+447700900123", "x" * 161, class_name="otp"), "policy.content", ["text"]),
        (MessageRequest("+393331234567", "hi", ttl_ms=40 * 86_400_000), "policy.ttl", ["ttl"]),
        (MessageRequest("+393331234567", "hi", expires_at=NOW - 1), "capacity.infeasible_deadline", ["expires_at"]),
    ],
)
def test_each_rule_says_no_by_its_name_and_names_the_field(
    request_: MessageRequest, code: str, fields: list[str]
) -> None:
    refusal = judged(request_)
    assert code_of(refusal) == code
    in_a_batch = judge(Moment(POLICY, "acme", NOW, b"pepper"), request_, [], Place("/messages/3"))
    for said, pointer in ((refusal, ""), (in_a_batch, "/messages/3")):
        assert isinstance(said, Problem)
        assert [fault.pointer for fault in said.errors] == [f"{pointer}/{name}" for name in fields]


def test_a_text_is_sent_with_near_characters_where_that_is_asked() -> None:
    written = "“Ciao” – Łódź"
    near = judged(MessageRequest("+393331234567", written, transliterate=True))
    assert isinstance(near, Allowed)
    assert near.text == '"Ciao" - Lodz'
    assert near.measure.encoding == "gsm7"
    plain = judged(MessageRequest("+393331234567", written))
    assert isinstance(plain, Allowed)
    assert (plain.text, plain.measure.encoding) == (written, "ucs2")
    kept = judged(MessageRequest("+393331234567", written, transliterate=True, encoding="ucs2"))
    assert isinstance(kept, Allowed)
    assert kept.text == written


def test_a_text_without_any_near_form_goes_as_it_was_written() -> None:
    only_invisible = judged(MessageRequest("+393331234567", "\u200b", transliterate=True))
    assert isinstance(only_invisible, Allowed)
    assert only_invisible.text == "\u200b"


def test_a_callback_needs_a_secret_to_be_signed_with() -> None:
    asked = MessageRequest("+393331234567", "hi", sender="ACME", callback_url="https://example.com/mine")
    assert isinstance(judged(asked), Allowed)
    refused = judged(asked, tenant="plain")
    assert isinstance(refused, Problem)
    assert refused.code == "request.invalid"
    assert [error.pointer for error in refused.errors] == ["/callback_url"]


UNLIKE = read_policy(
    """
tenants: {acme: {tlvs: [dlt, code]}}
providers:
  turkish:
    dialect: {national_shift: turkish, tlvs: {dlt: {tag: 0x1400, max: 19}}}
    sessions: {a1: {host: localhost, port: 2775, system_id: a, password: "env:NOWHERE"}}
  plain:
    dialect: {tlvs: {code: {tag: 0x1401, type: int8}}}
    sessions: {b1: {host: localhost, port: 2775, system_id: a, password: "env:NOWHERE"}}
routes:
  first: {match: {}, provider: turkish, preference: 1}
  second: {match: {}, provider: plain, preference: 2}
"""
)


def unlike(**fields: object) -> Allowed | Problem:
    request = MessageRequest("+393331234567", sender="ACME", **fields)  # type: ignore[arg-type]
    return judge(Moment(UNLIKE, "acme", NOW, b"pepper"), request, [], Place())


def test_each_candidate_has_its_own_measure_and_the_door_counts_the_largest() -> None:
    both = unlike(text="ş" * 75)
    assert isinstance(both, Allowed)
    assert [(both.measure_at(n).encoding, both.measure_at(n).segments) for n in (0, 1)] == [("gsm7", 1), ("ucs2", 2)]
    assert both.measure.segments == 2


def test_a_route_whose_carrier_needs_too_many_parts_is_no_candidate() -> None:
    short = unlike(text="ş" * 75, max_segments=1)
    assert isinstance(short, Allowed)
    assert [route.name for route in short.routes] == ["first"]
    assert short.measure.segments == 1
    strict = unlike(text="ş", encoding="gsm7")
    assert isinstance(strict, Allowed)
    assert [route.name for route in strict.routes] == ["first"]
    assert code_of(unlike(text="ş" * 2000)) == "policy.max_segments"
    impossible = unlike(text="я", encoding="gsm7")
    assert isinstance(impossible, Problem)
    assert [error.pointer for error in impossible.errors] == ["/text"]


def test_a_tlv_goes_only_where_it_is_declared_and_fits() -> None:
    for name, value, route in (("dlt", "1101234567890123456", "first"), ("code", 255, "second")):
        allowed = unlike(text="hi", tlvs={name: value})
        assert isinstance(allowed, Allowed)
        assert [one.name for one in allowed.routes] == [route]
    for tlvs in ({"dlt": "1" * 20}, {"code": 256}, {"code": "x"}, {"dlt": "1", "code": 1}):
        refused = unlike(text="hi", tlvs=tlvs)
        assert isinstance(refused, Problem)
        assert (refused.status, refused.code) == (422, "policy.tlvs")
