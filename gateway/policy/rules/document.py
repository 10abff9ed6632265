"""A policy file as a tree that knows its lines: sections ask for their fields, and what nobody asked for is a fault.

Every reader notes faults and goes on with the default, so that one pass finds them all.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import yaml

from gateway.policy.rules.faults import Fault, PolicyInvalid
from gateway.policy.rules.scalars import BadValue, rate, whole
from gateway.policy.rules.snapshot import Limit

T = TypeVar("T")

SIZE_MAX = 2 * 1024 * 1024
BURST_MAX = 10_000_000
# Scalars stay the text that was written (an unquoted +39 or 09:00 too); what is null or a flag is told here.
# libyaml's parser gives the same nodes and marks ten times as fast.
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
NODES_MAX = 1_000_000  # more than 2 MiB hold without aliases
# `password:abc` and `password=abc` are one key for YAML; faults reach logs and the audit.
_GLUED = re.compile(r"^(password|secrets)(?!\w).+", re.DOTALL)
_TEXT = "tag:yaml.org,2002:str"
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def compose(source: str) -> yaml.Node | None:
    """The node tree of one YAML document; raises PolicyInvalid with the line of a syntax error."""
    if len(source) > SIZE_MAX:
        raise PolicyInvalid([Fault(0, "", f"the policy is larger than {SIZE_MAX // 1024} KiB")])
    try:
        node: yaml.Node | None = yaml.compose(source, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise PolicyInvalid([Fault(mark.line + 1 if mark else 0, "", f"not YAML: {_problem(error, source)}")]) from None
    except (yaml.YAMLError, UnicodeEncodeError):
        raise PolicyInvalid([Fault(0, "", "not YAML: a character that YAML does not allow")]) from None
    except RecursionError:
        raise PolicyInvalid([Fault(0, "", "not YAML: nested too deep")]) from None
    if node is not None and "*" in source:
        _check_aliases(node)
    return node


def _problem(error: yaml.MarkedYAMLError, source: str) -> str | None:
    """The parser's words, or better ones where those name no remedy."""
    if "duplicate anchor" in (error.context or ""):
        return "an anchor (&) of this name was there before"
    if error.problem == "found character that cannot start any token" and error.problem_mark is not None:
        found = source[error.problem_mark.index : error.problem_mark.index + 1]
        if found == "\t":
            return "a tab where YAML wants spaces"
        if found in ("@", "`", "%"):
            return f"a value that begins with {found} needs quotes"
    return error.problem


def _check_aliases(root: yaml.Node) -> None:
    """A few lines of aliases to aliases may stand for more values than there is memory and time for."""
    sizes: dict[int, int] = {}
    within: set[int] = set()
    ahead: list[tuple[yaml.Node, bool]] = [(root, False)]
    while ahead:
        node, is_done = ahead.pop()
        if id(node) in sizes:
            continue
        if isinstance(node, yaml.ScalarNode):
            sizes[id(node)] = 1
            continue
        parts = node.value if isinstance(node, yaml.SequenceNode) else [one for pair in node.value for one in pair]
        if is_done:
            within.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes[id(one)] for one in parts)
            continue
        within.add(id(node))
        if any(id(one) in within for one in parts):
            line = node.start_mark.line + 1
            raise PolicyInvalid([Fault(line, "", "an alias (*) stands within what it is an alias of")])
        ahead.append((node, True))
        ahead.extend((one, False) for one in parts)
    if sizes[id(root)] > NODES_MAX:
        raise PolicyInvalid([Fault(0, "", f"with its aliases (*) the policy has more than {NODES_MAX:,} values")])


def nearest(word: str, known: Sequence[str]) -> str:
    """`; did you mean ...?` for a mistyped word, or what there is to choose from."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known are {', '.join(sorted(known))}" if known else ""


class Section:
    """One mapping of the file; `line` is that of its key."""

    def __init__(self, node: yaml.Node | None, path: str, line: int, faults: list[Fault]) -> None:
        self.path = path
        self.line = line
        self.faults = faults
        self._asked: set[str] = set()
        self._broken = False
        self._entries: dict[str, tuple[int, yaml.Node]] = {}
        if isinstance(node, yaml.MappingNode):
            self._take(node)
        elif node is not None and not _is_null(node):
            self._broken = True
            self.fault("expects a mapping")

    def _take(self, node: yaml.MappingNode) -> None:
        for key_node, value in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.faults.append(Fault(line, self.path, "expects plain names as keys"))
                continue
            key = key_node.value
            if key in self._entries:
                first = self._entries[key][0]
                self.faults.append(Fault(line, self.at(key), f"is given twice, first on line {first}"))
                continue
            self._entries[key] = (line, value)

    def at(self, key: str) -> str:
        """Dotted path of a key here; of a secret that lacks the blank before it, no more than what it is."""
        shown = _GLUED.sub(r"\1:(a blank is missing)", key)
        return f"{self.path}.{shown}" if self.path else shown

    def line_of(self, key: str) -> int:
        """Line of a key, or of the section where the key is absent."""
        return self._entries[key][0] if key in self._entries else self.line

    def fault(self, message: str, key: str | None = None) -> None:
        """Notes a fault of a key or of the section itself."""
        path = self.path if key is None else self.at(key)
        self.faults.append(Fault(self.line if key is None else self.line_of(key), path, message))

    def lacks(self, what: str, key: str | None = None) -> None:
        """Notes that something is missing, unless what stands there instead is a fault already."""
        path = self.path if key is None else self.at(key)
        if not any(fault.path == path or fault.path.startswith((f"{path}.", f"{path}[")) for fault in self.faults):
            self.fault(what, key)

    def has(self, key: str) -> bool:
        """Whether a key is given, be it null."""
        self._asked.add(key)
        return key in self._entries

    def is_null(self, key: str) -> bool:
        """Whether a key is given as null."""
        return self.has(key) and _is_null(self._entries[key][1])

    def section(self, key: str) -> Section:
        """The mapping under a key; an empty one where it is absent or null."""
        self._asked.add(key)
        line, node = self._entries.get(key, (self.line, None))
        return Section(node, self.at(key), line, self.faults)

    def named(self, check: Callable[[str], Any]) -> Iterator[tuple[str, Section]]:
        """Every entry as a section of its own, where the keys are names; `check` raises BadValue for a bad one."""
        for key in self._entries:
            self._asked.add(key)
            try:
                check(key)
            except BadValue as bad:
                self.fault(str(bad), key)
                continue
            yield key, self.section(key)

    def value(self, key: str, default: T, read: Callable[[str], T]) -> T:
        """A scalar read by `read`; the default where absent, null or bad."""
        self._asked.add(key)
        line, node = self._entries.get(key, (0, None))
        if node is None or _is_null(node):
            return default
        found = _read(node, read, Fault(line, self.at(key), ""), self.faults)
        return default if found is None else found

    def required(self, key: str, default: T, read: Callable[[str], T]) -> T:
        """Like `value`, but a missing one is a fault."""
        if not self.has(key) or self.is_null(key):
            if not self._broken:
                self.faults.append(Fault(self.line, self.at(key), "is missing"))
            return default
        return self.value(key, default, read)

    def choice(self, key: str, default: str, known: Sequence[str]) -> str:
        """One word of a few."""
        return self.value(key, default, _one_of(known))

    def number(self, key: str, default: int, least: int, most: int) -> int:
        """A whole number in a range."""
        return self.value(key, default, lambda text: whole(text, least, most))

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        self._asked.add(key)
        line, node = self._entries.get(key, (0, None))
        if node is None or _is_null(node):
            return default
        found = _flag(node)
        if found is not None:
            return found
        self.faults.append(Fault(line, self.at(key), "expects true or false"))
        return default

    def texts(
        self, key: str, default: tuple[T, ...], read: Callable[[str], T], *, alone: bool = False
    ) -> tuple[T, ...]:
        """A list of scalars without repeats; with `alone` a single one may stand without its brackets."""
        self._asked.add(key)
        line, node = self._entries.get(key, (0, None))
        if node is None or _is_null(node):
            return default
        if alone and isinstance(node, yaml.ScalarNode):
            value = _read(node, read, Fault(line, self.at(key), ""), self.faults)
            return default if value is None else (value,)
        if not isinstance(node, yaml.SequenceNode):
            self.faults.append(Fault(line, self.at(key), "expects a list"))
            return default
        found: list[T] = []
        for index, item in enumerate(node.value):
            where = Fault(item.start_mark.line + 1, f"{self.at(key)}[{index}]", "")
            value = _read(item, read, where, self.faults)
            if value is not None and value in found:
                self.faults.append(Fault(where.line, where.path, "is in the list twice"))
            elif value is not None:
                found.append(value)
        return tuple(found)

    def limit(self, key: str, default: Limit | None) -> Limit | None:
        """`{rate_per_s, burst}`; null lifts the limit; a missing burst is one second's worth."""
        if not self.has(key):
            return default
        if self.is_null(key):
            return None
        before = len(self.faults)
        inner = self.section(key)
        rate_per_s = inner.required("rate_per_s", 1.0, rate)
        burst = inner.number("burst", max(1, round(rate_per_s)), 1, BURST_MAX)
        inner.finish()
        return Limit(rate_per_s, burst) if len(self.faults) == before else default

    def finish(self) -> None:
        """Notes every key that no reader asked for, with the nearest known one."""
        for key, (line, _node) in self._entries.items():
            if key not in self._asked:
                merge = "; merge keys are not taken, an alias (*) in the place of a whole value is"
                hint = merge if key == "<<" else nearest(key, sorted(self._asked))
                self.faults.append(Fault(line, self.at(key), f"unknown key{hint}"))


def _one_of(known: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in known:
            raise BadValue(f"expects one of {', '.join(known)}")
        return text

    return read


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and not node.style and node.value in _NULLS


def _flag(node: yaml.Node) -> bool | None:
    return _FLAGS.get(node.value.lower()) if isinstance(node, yaml.ScalarNode) and not node.style else None


def _read(node: yaml.Node, read: Callable[[str], T], where: Fault, faults: list[Fault]) -> T | None:
    if not isinstance(node, yaml.ScalarNode):
        faults.append(Fault(where.line, where.path, "expects a single value"))
        return None
    if node.tag != _TEXT or _is_null(node) or _flag(node) is not None:
        faults.append(Fault(where.line, where.path, "expects a text or number: put it in quotes"))
        return None
    try:
        return read(node.value)
    except BadValue as bad:
        faults.append(Fault(where.line, where.path, str(bad)))
        return None
