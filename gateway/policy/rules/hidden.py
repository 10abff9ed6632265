"""A policy to look at: secrets that are written out give way to marks, which stand for them when they come back.

`hidden:7.2` is the second secret that the text of version 7 writes out. References (`env:`, `file:`) are no secrets.
A version never changes, so a mark means the same for ever, wherever its session or tenant moves in the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import yaml

from gateway.policy.rules.document import compose
from gateway.policy.rules.faults import PolicyInvalid
from gateway.policy.rules.scalars import HIDDEN, is_reference

# Where a policy takes secrets; * is any name.
_PLACES: Final = (
    ("providers", "*", "sessions", "*", "password"),
    ("tenant_defaults", "callbacks", "secrets"),
    ("tenants", "*", "callbacks", "secrets"),
)
_BLANKS: Final = " \t\r\n"  # of YAML: not all that Unicode calls so
_PROPERTIES: Final = re.compile(rf"(?:[&!][^{_BLANKS}]*[{_BLANKS}]+)*")  # an anchor stays: others may point at it
_SAFE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+/=-]*")
_COMMENT: Final = re.compile(r"(?:^|(?<=\s))#[^\n]*", re.MULTILINE)
_IN_COMMENT: Final = re.compile(
    r"(\bpassword:\s*|\bsecrets:\s*\[?\s*)(?!env:|file:)(\"[^\"]*\"|'[^']*'|[^,}\]\s#]+(?:\s*,\s*[^,}\]\s#]+)*)"
)


@dataclass(frozen=True, slots=True)
class _Secret:
    """A secret of a text: where its value stands, and how."""

    start: int
    end: int
    value: str
    written: str


def hide(source: str, version: int) -> str:
    """The text of a version without its secrets; one that is no YAML shows nothing but that."""
    source = source.removeprefix("\ufeff")
    try:
        secrets = _written_out(source)
    except PolicyInvalid:
        return "# This text cannot be shown: it is no YAML, and may hold secrets.\n"
    places = {secret.start: f"hidden:{version}.{number}" for number, secret in enumerate(secrets, 1)}
    return _COMMENT.sub(_comment, _replaced(source, secrets, lambda secret: places[secret.start]))


def versions_of(source: str) -> set[int]:
    """The versions whose secrets the marks of a text stand for."""
    return {int(match[1]) for match in HIDDEN.finditer(source)}


def put_back(source: str, texts: Mapping[int, str]) -> str:
    """The text with the secrets of `texts` (by version) for its marks.

    What stands for none of them stays: `read_policy` names its line and path. What is no YAML comes back as it is.
    """
    if not versions_of(source):
        return source
    source = source.removeprefix("\ufeff")
    known: dict[int, list[_Secret]] = {}
    for version, text in texts.items():
        try:
            known[version] = _written_out(text.removeprefix("\ufeff"))
        except PolicyInvalid:
            known[version] = []

    def original(mark: _Secret) -> str:
        match = HIDDEN.fullmatch(mark.value)
        if match is not None:
            secrets = known.get(int(match[1]), [])
            if 0 < int(match[2]) <= len(secrets):
                return secrets[int(match[2]) - 1].written
        return mark.written

    return _filled(source, original)


def stand_in(source: str) -> str:
    """The text with some secret for each mark, to judge the rest of it where no version can be read."""

    def some(mark: _Secret) -> str:
        match = HIDDEN.fullmatch(mark.value)
        return f"h{match[2]}" if match is not None else mark.written  # short enough for a password

    return _filled(source, some)


def _filled(source: str, fill: Callable[[_Secret], str]) -> str:
    try:
        return _replaced(source, _written_out(source), fill)
    except PolicyInvalid:
        return source


def _replaced(source: str, secrets: list[_Secret], fill: Callable[[_Secret], str]) -> str:
    parts, done = [], 0
    for secret in secrets:
        parts += [source[done : secret.start], fill(secret)]
        done = secret.end
    return "".join([*parts, source[done:]])


def _comment(match: re.Match[str]) -> str:
    return _IN_COMMENT.sub(r"\1hidden", match[0])


def _written_out(source: str) -> list[_Secret]:
    """In the order of the text; raises PolicyInvalid where it is no YAML."""
    root = compose(source)
    found: dict[int, _Secret] = {}
    for node in (node for place in _PLACES for node in _at(root, place)):
        if node.value and not is_reference(node.value):
            secret = _secret(source, node)
            found[secret.start] = secret  # two names for one node are one secret
    return [found[start] for start in sorted(found)]


def _at(node: yaml.Node | None, place: tuple[str, ...]) -> Iterator[yaml.ScalarNode]:
    if not place:
        for one in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if isinstance(one, yaml.ScalarNode):
                yield one
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if place[0] == "*" or key.value == place[0]:
                yield from _at(value, place[1:])


def _secret(source: str, node: yaml.ScalarNode) -> _Secret:
    start, end = node.start_mark.index, node.end_mark.index
    properties = _PROPERTIES.match(source, start, end)
    start = properties.end() if properties is not None else start
    end -= len(source[start:end]) - len(source[start:end].rstrip(_BLANKS))  # a block's line end
    raw = source[start:end]
    # Quotes stand in every context; what is bare or a block may not, once it was moved.
    as_it_is = raw[:1] in "\"'" or _SAFE.fullmatch(raw)
    return _Secret(start, end, node.value, raw if as_it_is else json.dumps(node.value, ensure_ascii=False))
