"""Comments of a policy that is shown: what in them is, or was, a secret goes.

A comment is prose, so this is a net with wide meshes on purpose: it takes the secrets that the text itself writes out,
values that stand behind `password`, `secret` and the like, and commented-out lists and blocks of them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import Final

# Of YAML 1.1: not all that Unicode calls so.
BLANKS: Final = " \t\r\n\x85\u2028\u2029"
_COMMENT: Final = re.compile(rf"(?:^|(?<=[{BLANKS}]))#([^\r\n\x85\u2028\u2029]*)")
_WORD: Final = r"pass(?:word|wd|phrase)?s?|pwd|secrets?|credentials?|api[_-]?keys?"
_KEY: Final = re.compile(rf"\b(?:{_WORD})\b[\"'`]?[ \t]{{0,20}}[:=]", re.IGNORECASE)
_NAMED: Final = re.compile(rf"\b(?:{_WORD})\b", re.IGNORECASE)
_VALUE: Final = re.compile(r"[ \t\[{\"'`]*([^ \t,\]}\"'`]+)[ \t\]}\"'`]*(,?)")
_REFERENCE: Final = re.compile(r"(?:env|file):\S*|hidden(?::[0-9.]+)?[.;)]*|null|~|\.\.\.|…")
_OPEN: Final = re.compile(r"[ \t]*(?:[|>][-+0-9]{0,2}|[&!][^ \t]*)*[ \t\[{\"']*$")
_SIGNING_KEY: Final = re.compile(r"whsec_[^ \t,;\]})\"'`]+")
# In a sentence that speaks of passwords: in quotes, or letters and digits together.
_LIKELY: Final = re.compile(
    r"\"[^\"]+\"|'[^' \t]+'|`[^`]+`|(?<![\w.])(?!env:|file:|hidden)(?=\w*[A-Za-z])(?=\w*[0-9])[\w$!@%&*+/.-]{4,}"
)
_TOLD_LEAST: Final = 4
_GONE: Final = "hidden"


def comments_without_secrets(
    source: str, values: Sequence[tuple[int, int]], told: Collection[str]
) -> Iterator[tuple[int, int, str]]:
    """What to change in the comments of a text: start, end, and what stands there instead.

    `values` are start and end of its scalars, in order (a # in them begins no comment); `told` are its secrets.
    """
    starts = [start for start, _ in values]
    after, column = 0, -1  # of a commented-out key whose value follows: where its comment ends, and where it stands
    comments = [match for match in _COMMENT.finditer(source) if not _inside(match.start(), starts, values)]
    everything = "\n".join(match[1] for match in comments)
    known = [one for one in sorted(told, key=len, reverse=True) if len(one) >= _TOLD_LEAST and one in everything]
    secrets = re.compile("|".join(rf"(?<!\w){re.escape(one)}(?!\w)" for one in known)) if known else None
    for match in comments:
        text = match[1]
        if source[after : match.start()].strip(BLANKS):
            column = -1
        if column >= 0 and _continues(text, column):
            shown = text[: _indent(text)] + _GONE if text.strip("# \t-") else text
        else:
            shown, column = _without(text, secrets)
        after = match.end()
        if shown != text:
            yield match.start(1), match.end(1), shown


def _inside(at: int, starts: Sequence[int], values: Sequence[tuple[int, int]]) -> bool:
    index = bisect_right(starts, at) - 1
    return index >= 0 and at < values[index][1]


def _continues(text: str, column: int) -> bool:
    """Whether a comment goes on with the value of a key that stands in `column` of one before it."""
    inner = text.lstrip("# \t")
    return not inner or inner[0] == "-" or len(text) - len(inner) > column


def _without(text: str, secrets: re.Pattern[str] | None) -> tuple[str, int]:
    """The comment without what may be secret, and the column of a key whose value is still to come (or -1)."""
    column = -1
    keys = list(_KEY.finditer(text))
    for key in keys:
        start, goes_on = _first_secret(text, key.end())
        if start is not None or goes_on:
            column = _indent(text)
            text = text if start is None else text[:start] + _GONE
            break
    named = None if keys else _NAMED.search(text)
    if named is not None:
        text = text[: named.end()] + _LIKELY.sub(_GONE, text[named.end() :])
    if secrets is not None:
        text = secrets.sub(_GONE, text)
    return _SIGNING_KEY.sub(_GONE, text), column


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip("# \t-"))


def _first_secret(text: str, at: int) -> tuple[int | None, bool]:
    """Where the value of a key begins that is no reference, or None; and whether the next comment may go on with it."""
    if _OPEN.match(text, at):
        return None, True
    value = _VALUE.match(text, at)
    is_list = value is not None and "[" in text[at : value.start(1)]
    while value is not None:
        if _REFERENCE.fullmatch(value[1]) is None:
            return value.start(1), True
        if not is_list or not value[2]:
            return None, False
        at = value.end()
        value = _VALUE.match(text, at)
    return None, True
