"""The text of a receipt: `id: sub: dlvrd: submit date: done date: stat: err: text:` (SMPP 3.4, appendix B).

The layout is vendor specific: fields may be absent, in another case, in another order, or say `null`.
"""

from __future__ import annotations

import re

_KEY = re.compile(
    r"(?:^|(?<=[\s,;|]))(id|sub|dlvrd|submit[ _]?date|done[ _]?date|stat(?:us)?|err(?:or)?|text)[ \t]*:[ \t]*",
    re.IGNORECASE,
)
_NAMES = {"submitdate": "submit date", "donedate": "done date", "status": "stat", "error": "err"}
_ABSENT = frozenset({"", "null", "none", "nil"})
_LENGTH_MAX = 255  # longer values are no identifiers; a receipt's text is at most one message


def read_fields(content: str) -> dict[str, str]:
    """The fields that are there, by their names in appendix B; the echo after `text:` is not looked into."""
    found: dict[str, str] = {}
    matches: list[re.Match[str]] = []
    for match in _KEY.finditer(content):
        matches.append(match)
        if match.group(1).lower() == "text":
            break
    for at, match in enumerate(matches):
        name = _name(match.group(1))
        if name == "text" or name in found:
            continue
        end = matches[at + 1].start() if at + 1 < len(matches) else len(content)
        value = printable(content[match.end() : end]).strip(" ,;|")
        if value.lower() not in _ABSENT:
            found[name] = value[:_LENGTH_MAX]
    return found


def printable(text: str) -> str:
    """The text without NUL and other control characters, which text columns refuse."""
    return "".join(char if char.isprintable() else " " for char in text).strip()


def _name(key: str) -> str:
    lower = key.lower()
    bare = lower.replace(" ", "").replace("_", "")
    return _NAMES.get(bare, lower)
