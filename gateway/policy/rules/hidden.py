"""A policy to look at: secrets that are written out give way to marks, which stand for them when they come back.

`hidden:7.2` is the second secret that the text of version 7 writes out. References (`env:`, `file:`) are no secrets.
A version never changes, so a mark means the same for ever, wherever its session or tenant moves in the text. It means
it only where the secret stood as that: a password is no callback secret, and what an alias also makes a name, a
host or a word of some list would be shown there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import yaml

from gateway.policy.rules.comments import BLANKS, comments_without_secrets
from gateway.policy.rules.document import compose
from gateway.policy.rules.faults import PolicyInvalid
from gateway.policy.rules.scalars import HIDDEN, is_reference

_Places = tuple[tuple[str, ...], ...]
# Where a policy takes secrets; * is any name.
_PLACES: Final[_Places] = (
    ("providers", "*", "sessions", "*", "password"),
    ("tenant_defaults", "callbacks", "secrets"),
    ("tenants", "*", "callbacks", "secrets"),
)
# An anchor stays: others may point at it. A comment may stand between it and the value.
_PROPERTIES: Final = re.compile(rf"(?:(?:[&!][^{BLANKS}]*|#[^\r\n\x85\u2028\u2029]*)[{BLANKS}]+)*")
_SAFE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+/=-]*")
_ESCAPED: Final = re.compile("[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]")
_A_NAME: Final = "a name"


@dataclass(frozen=True, slots=True)
class _Scalar:
    """A value of a text: where it stands, and as what: `password`, `secrets`, or `= KEY` where it is shown."""

    start: int
    end: int
    value: str
    uses: frozenset[str]

    @property
    def is_secret(self) -> bool:
        return bool(self.value) and not is_reference(self.value) and any(use[0] != "=" for use in self.uses)


def hide(source: str, version: int) -> str:
    """The text of a version without its secrets; one that is no YAML shows nothing but that."""
    source = source.removeprefix("\ufeff")
    try:
        scalars = _scalars(source)
    except PolicyInvalid:
        return "# This text cannot be shown: it is no YAML, and may hold secrets.\n"
    secrets = [one for one in scalars if one.is_secret]
    edits = [(one.start, one.end, f"hidden:{version}.{number}") for number, one in enumerate(secrets, 1)]
    open_words = {one.value for one in scalars if not one.is_secret}
    told = {one.value for one in secrets} - open_words
    edits += comments_without_secrets(source, [(one.start, one.end) for one in scalars], told)
    return _edited(source, sorted(edits))


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
    known = {version: _written_out(text.removeprefix("\ufeff")) for version, text in texts.items()}

    def original(mark: _Scalar, version: int, number: int) -> str | None:
        secrets = known.get(version, [])
        if not 0 < number <= len(secrets):
            return None
        secret, written = secrets[number - 1]
        return written if mark.uses <= secret.uses else None

    return _filled(source, original)


def stand_in(source: str) -> str:
    """The text with some secret for each mark, to judge the rest of it where no version can be read."""
    return _filled(source, lambda _mark, _version, number: f"h{number}")  # short enough for a password


def _filled(source: str, fill: Callable[[_Scalar, int, int], str | None]) -> str:
    try:
        scalars = _scalars(source)
    except PolicyInvalid:
        return source
    edits = []
    for one in scalars:
        match = HIDDEN.fullmatch(one.value)
        if match is not None and one.is_secret:
            found = fill(one, int(match[1]), int(match[2]))
            if found is not None:
                edits.append((one.start, one.end, found))
    return _edited(source, edits)


def _edited(source: str, edits: list[tuple[int, int, str]]) -> str:
    """`edits` are in order and apart from each other."""
    parts, done = [], 0
    for start, end, text in edits:
        parts += [source[done:start], text]
        done = end
    return "".join([*parts, source[done:]])


def _written_out(source: str) -> list[tuple[_Scalar, str]]:
    """The secrets of a text with how they are written elsewhere, in its order; none where it is no YAML."""
    try:
        scalars = _scalars(source)
    except PolicyInvalid:
        return []
    return [(one, _portable(source[one.start : one.end], one.value)) for one in scalars if one.is_secret]


def _portable(raw: str, value: str) -> str:
    """A value as it may stand anywhere: what is bare, a block or of several lines may not, once it was moved."""
    if _SAFE.fullmatch(raw) or (raw[0] in "\"'" and not any(char in "\r\n\x85\u2028\u2029" for char in raw)):
        return raw
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def _scalars(source: str) -> list[_Scalar]:
    """Every value and key once, however many aliases lead there, in the order of the text."""
    root = compose(source)
    if root is None:
        return []
    nodes: dict[int, tuple[yaml.ScalarNode, set[str]]] = {}
    ahead: list[tuple[yaml.Node, _Places, str]] = [(root, _PLACES, "")]
    seen: set[tuple[int, _Places, str]] = set()
    while ahead:
        node, places, key = ahead.pop()
        if (id(node), places, key) in seen:
            continue
        seen.add((id(node), places, key))
        if isinstance(node, yaml.ScalarNode):
            nodes.setdefault(id(node), (node, set()))[1].add(key if () in places else f"= {key}")
        elif isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                ahead.append((name, (), _A_NAME))
                word = name.value if isinstance(name, yaml.ScalarNode) else ""
                ahead.append((value, tuple(one[1:] for one in places if one and one[0] in ("*", word)), word))
        else:
            inside = tuple(one for one in places if not one)
            ahead.extend((item, inside, key) for item in node.value)
    found = (_scalar(source, node, frozenset(uses)) for node, uses in nodes.values())
    return sorted(found, key=lambda one: (one.start, one.end))


def _scalar(source: str, node: yaml.ScalarNode, uses: frozenset[str]) -> _Scalar:
    start, end = node.start_mark.index, node.end_mark.index
    properties = _PROPERTIES.match(source, start, end)
    start = properties.end() if properties is not None else start
    end = start + len(source[start:end].rstrip(BLANKS))  # a block's line end
    return _Scalar(start, end, node.value, uses)
