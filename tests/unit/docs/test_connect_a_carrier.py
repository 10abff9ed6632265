"""Every example of the page on carriers is a policy that the gateway would take."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent

import pytest

from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.snapshot import Dialect, Policy

PAGE = (Path(__file__).parents[3] / "docs" / "connect-a-carrier.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
AROUND = """
providers:
  c:
    sessions: {s: {host: smsc.example, system_id: me, password: env:PW}}
%s
routes: {all: {provider: c}}
"""


def policy_of(example: str) -> Policy:
    return read_policy(example if example.startswith("providers:") else AROUND % indent(example, "    "))


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) >= 20
    assert PAGE.count("```") == 2 * len(EXAMPLES)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: " ".join(example.split())[:50])
def test_an_example_is_a_policy(example: str) -> None:
    policy = policy_of(example)
    if example.startswith("dialect:"):
        assert policy.providers["c"].dialect != Dialect(), "the example changes nothing"


def test_every_setting_of_a_dialect_is_on_the_page() -> None:
    for name in Dialect.__dataclass_fields__:
        assert f"{name}:" in PAGE, name


def test_the_routes_of_the_whole_example_are_told_as_they_work() -> None:
    from gateway.policy.rules.lookup import candidates

    whole = policy_of(EXAMPLES[1])
    names = [route.name for route in candidates(whole, "acme", "otp", "ACME", "+393331234567")]
    assert names == ["italy", "italy-backup", "elsewhere"]
    assert [r.name for r in candidates(whole, "acme", "marketing", "ACME", "+447700900123")] == ["elsewhere"]
