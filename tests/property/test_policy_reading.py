"""Whatever stands in a policy file, the reader answers with a policy or with faults that have their place."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy.rules.diff import describe
from gateway.policy.rules.parse import PolicyInvalid, read_policy
from gateway.policy.rules.warnings import warn

EXAMPLE = (Path(__file__).parents[2] / "policy.example.yaml").read_text(encoding="utf-8")
WORDS = [match.span() for match in re.finditer(r"[\w.:+-]+", EXAMPLE)]
BREAKS = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # line breaks of YAML 1.1
SLOWLY = settings(deadline=None, max_examples=50)  # each reads whole policies
JUNK = st.sampled_from(
    ["", "null", "0", "-1", "x", "[]", "{}", "[1, 2]", "{a: b}", "1e999", "!!int x", "*a", "&a", "{", "'", "2m", "+39"]
)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
SECTIONS = st.sampled_from(
    [
        "classes",
        "retries",
        "tenant_defaults",
        "tenants",
        "destinations",
        "providers",
        "routes",
        "inbound",
        "receipts",
        "privacy",
    ]
)


def answer(source: str) -> None:
    try:
        policy = read_policy(source)
    except PolicyInvalid as invalid:
        assert invalid.faults
        lines = len(BREAKS.findall(source)) + 1
        assert all(0 <= fault.line <= lines + 1 and fault.message for fault in invalid.faults)
    else:
        warn(policy)
        describe(read_policy(EXAMPLE), policy)


@SLOWLY
@given(st.lists(st.tuples(st.sampled_from(WORDS), JUNK), min_size=1, max_size=3))
def test_words_replaced_by_junk(changes: list[tuple[tuple[int, int], str]]) -> None:
    source = EXAMPLE
    for (start, end), junk in sorted(changes, reverse=True):
        source = source[:start] + junk + source[end:]
    answer(source)


@SLOWLY
@given(st.dictionaries(SECTIONS, TREES, max_size=4))
def test_any_tree(tree: dict[str, object]) -> None:
    answer(yaml.safe_dump(tree))


@SLOWLY
@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    answer(text)
