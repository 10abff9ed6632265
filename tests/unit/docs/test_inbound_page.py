"""The "Try it" of the page on inbound messages: script and policy are read, and belong together."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.policy.rules.parse import read_policy
from smpp.simulator.script import load_script

PAGE = (Path(__file__).parents[3] / "docs" / "inbound-and-opt-outs.md").read_text(encoding="utf-8")


def test_script_and_policy_of_try_it() -> None:
    part = PAGE.partition("## Try it")[2].partition("\n## ")[0]
    script, policy = re.findall(r"```yaml\n(.*?)```", part, re.DOTALL)
    played = load_script(script)
    read = read_policy(policy)
    (session,) = read.providers["handsets"].sessions.values()
    assert (session.host, session.port) == ("127.0.0.1", played.port)
    assert set(re.findall(r'destination: "(\d+)"', script)) == set(read.tenants["acme"].inbound_numbers)
