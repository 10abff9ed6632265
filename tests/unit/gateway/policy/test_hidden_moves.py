"""A mark stands for its secret only where that was one: no other place, kind or alias brings a hidden secret out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from gateway.policy.rules.diff import describe
from gateway.policy.rules.faults import PolicyInvalid
from gateway.policy.rules.hidden import hide, put_back
from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.warnings import warn

SECRET = "s3cr3t!"
SIGNING = "393331234567"  # could be a number, a name, a word
VERSION_1 = f"""\
tenants:
  a: {{callbacks: {{url: "https://example.com/a", secrets: ["{SIGNING}"]}}}}
providers:
  p: {{sessions: {{s: {{host: h, system_id: x, password: "{SECRET}"}}}}}}
routes: {{r: {{provider: p}}}}
"""
SIGNING_MARK, PASSWORD_MARK = "hidden:1.1", "hidden:1.2"
BEFORE = read_policy(VERSION_1)
# Every section of a policy, with the two places of secrets last, so that anchors come before them.
WHOLE = """\
classes: {otp: {wait_budget: 9s}}
tenant_defaults: {senders: {Def: {}}, default_sender: Def, applications: {app: {}}}
destinations: {d: {prefixes: ["+39"], send_window: {from: "09:00", to: "20:00", timezone: UTC, classes: [marketing]}}}
inbound: {stop_words: [STOP], start_words: [START]}
receipts: {cutoff: 72h}
privacy: {log_numbers: hashed}
logs: {level: info}
routes: {r: {match: {tenants: [a], classes: [otp], senders: [Def], prefixes: ["+39"]}, provider: p}}
providers:
  p:
    dialect: {service_type: CMT, timezone: UTC, tlvs: {kind: {tag: 0x1400}}, own_reference: none}
    limits: {rate_per_s: 5, burst: 10}
    sessions:
      s: {host: h, port: 2775, system_type: t, system_id: x, password: hidden:1.2}
tenants:
  a:
    weight: 1
    destinations: ["+39"]
    inbound_numbers: ["+393330000001"]
    tlvs: [kind]
    callbacks: {url: "https://example.com/a", events: [final], secrets: [hidden:1.1]}
"""


def places() -> Iterator[tuple[int, int, bool]]:
    """Start and end of every value, key, list and mapping that is no mark, and whether it is a list or mapping."""
    ahead: list[yaml.Node] = [yaml.compose(WHOLE, Loader=yaml.BaseLoader)]
    while ahead:
        node = ahead.pop()
        if isinstance(node, yaml.ScalarNode):
            if not node.value.startswith("hidden:"):
                yield node.start_mark.index, node.end_mark.index, False
            continue
        if node.flow_style:
            yield node.start_mark.index, node.end_mark.index, isinstance(node, yaml.SequenceNode)
        for part in node.value:
            ahead.extend(part if isinstance(part, tuple) else [part])


def told_of(text: str) -> str:
    """All that a check says of a text."""
    try:
        policy = read_policy(text)
    except PolicyInvalid as invalid:
        return str(invalid)
    return "\n".join([*describe(BEFORE, policy), *map(str, warn(policy)), *policy.tenants, repr(policy)])


def judged(*texts: str) -> None:
    for text in texts:
        back = put_back(text, {1: VERSION_1})
        told = told_of(back) + hide(back, 2)
        assert SECRET not in told, text
        assert SIGNING not in told, text


def test_the_whole_policy_is_one() -> None:
    back = put_back(WHOLE, {1: VERSION_1})
    policy = read_policy(back)
    assert policy.providers["p"].sessions["s"].password == SECRET
    assert len(list(places())) > 100


def test_no_alias_brings_a_secret_to_a_place_where_it_is_shown() -> None:
    for start, end, is_list in places():
        if is_list:
            before = WHOLE[:start] + f"&leak [{SIGNING_MARK}]" + WHOLE[end:]
            judged(before.replace("secrets: [hidden:1.1]", "secrets: *leak"))
        else:
            judged(
                (WHOLE[:start] + f"&leak {PASSWORD_MARK}" + WHOLE[end:]).replace("word: hidden:1.2", "word: *leak"),
                (WHOLE[:start] + f"&leak {SIGNING_MARK}" + WHOLE[end:]).replace("[hidden:1.1]", "[*leak]"),
            )
        # The other way round: the anchor where the secret belongs, and before all else.
        tail = f"&leak [{SIGNING_MARK}]" if is_list else f"[&leak {SIGNING_MARK}]"
        first = "tenant_defaults: {callbacks: {secrets: " + tail + "}}\n"
        judged(first + (WHOLE[:start] + "*leak " + WHOLE[end:]).replace("tenant_defaults:", "tenant_default:"))


def test_a_mark_by_itself_stands_for_nothing_elsewhere() -> None:
    for start, end, is_list in places():
        judged(WHOLE[:start] + (f"[{SIGNING_MARK}]" if is_list else f'"{SIGNING_MARK}"') + WHOLE[end:])


def test_a_password_is_no_callback_secret_and_the_reverse() -> None:
    # A tenant could find a password of eight characters out from what is signed with it, a carrier's host reads it.
    for text in (
        WHOLE.replace("[hidden:1.1]", "[hidden:1.2]"),
        WHOLE.replace("password: hidden:1.2", "password: hidden:1.1"),
    ):
        with pytest.raises(PolicyInvalid, match="not known here, or not as this"):
            read_policy(put_back(text, {1: VERSION_1}))


def test_what_was_a_name_too_may_stay_one() -> None:
    source = WHOLE.replace("system_id: x, password: hidden:1.2", "system_id: &x word5, password: *x").replace(
        "[hidden:1.1]", "[env:A]"
    )
    shown = hide(source, 1)
    assert "word5" not in shown
    assert put_back(shown, {1: source}) == source


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]",
        "tenants: &t {x: {senders: *t}}",
        "a: &a ["
        + "x," * 100
        + "]\n"
        + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [" + f"*{chr(97 + i)}," * 100 + "]\n" for i in range(9)),
    ],
)
def test_aliases_of_aliases_are_told_and_not_followed(text: str) -> None:
    with pytest.raises(PolicyInvalid, match="alias"):
        read_policy(text)
    assert "cannot be shown" in hide(text, 1)
    assert put_back(f"{text}\n# hidden:1.1", {1: VERSION_1}).startswith(text)


@pytest.mark.parametrize("glue", [":", "=", ":=", "-", " = ", ";"])
def test_a_secret_glued_to_its_key_in_any_way_stays_out_of_the_faults(glue: str) -> None:
    told = told_of(WHOLE.replace("password: hidden:1.2", f"password{glue}{SECRET}"))
    assert SECRET not in told
    assert "password" in told
