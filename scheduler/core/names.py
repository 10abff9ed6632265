"""Names inside the index: escaped, so that no name can be read as a separator or as another name.

Fields of a flow key are joined by `|`; a name may hold any printable character, so `|`, `%`, and control characters
are written as `%` and two hex digits. Keys therefore compare as names do.
"""

from __future__ import annotations

import re

SEPARATOR = "|"
_UNSAFE = re.compile(r"[%|\x00-\x20\x7f]")
_ESCAPED = re.compile(r"%([0-9a-f]{2})")


def escape(name: str) -> str:
    """A name as it stands in keys; ValueError for an empty one."""
    if not name:
        raise ValueError("a name in the index must not be empty")
    return _UNSAFE.sub(lambda found: f"%{ord(found.group()):02x}", name)


def unescape(text: str) -> str:
    """The name behind an escaped one."""
    return _ESCAPED.sub(lambda found: chr(int(found.group(1), 16)), text)


def join(*fields: str) -> str:
    """Fields as one key part, each escaped."""
    return SEPARATOR.join([escape(field) for field in fields])


def split(text: str) -> list[str]:
    """The fields of a key part."""
    return [unescape(field) for field in text.split(SEPARATOR)]


def scope_pair(scope: str) -> tuple[str, str]:
    """`kind:name` as (kind, name)."""
    kind, _, name = scope.partition(":")
    return kind, name
