"""The text of a receipt: `id: sub: dlvrd: submit date: done date: stat: err: text:` (SMPP 3.4, appendix B).

The layout is vendor specific: fields may be absent, in another case, in another order, or say `null`; fields of the
carrier's own may stand among them; other names, an equals sign, nothing but a blank after the name or nothing at all in
front of it are read where the usual reading finds no id or no state.
"""

from __future__ import annotations

import re

from smpp.receipts.states import BY_WORD

_KEY = re.compile(
    r"(?:^|(?<=[\s,;|]))"
    r"(id|sub|dlvrd|(?:submit|done)[ _]?(?:date|time)|stat(?:us)?|err(?:or)?(?:[ _]?code)?|text)[ \t]*:[ \t]*",
    re.IGNORECASE,
)
_LOOSE_KEY = re.compile(
    r"""(?:^|(?<=[\s,;|&{"']))((?:msg|message|sms)?[ _-]?id|sub|dlvrd|(?:submit|done)[ _-]?(?:date|time)|"""
    r"""stat(?:us|e)?|err(?:or)?(?:[ _-]?code)?|text)["']?(?:[ \t]*[:=][ \t]*|[ \t]+(?=[^\s:=]))""",
    re.IGNORECASE,
)
# No sign between a value and the next name: `id:77005sub:001stat:DELIVRD`.
_RUN_ON_KEY = re.compile(
    r"((?<![A-Za-z])id|sub|dlvrd|(?:submit|done)[ _-]?(?:date|time)|stat(?:us|e)?|err(?:or)?(?:[ _-]?code)?|text)"
    r"[ \t]*[:=][ \t]*",
    re.IGNORECASE,
)
# A field that only this carrier has; the value in front of it ends here.
_OTHER_KEY = re.compile(r"""[\s,;|&{}"'][A-Za-z][\w-]*["']?[ \t]*[:=]""")
# The first word of such a field's name, where it has two: an id ends before it.
_WORD_BEHIND = re.compile(r"\s[A-Za-z]+$")
# The form of appendix B to the letter, which most receipts have: read ten times as fast.
_USUAL = re.compile(
    r"id:([0-9A-Za-z._+-]+) sub:([0-9A-Za-z]+) dlvrd:([0-9A-Za-z]+) submit date:([0-9]+) done date:([0-9]+)"
    r" stat:([A-Za-z]+) err:([0-9A-Za-z]+)"
    r"(?: *| [Tt]ext:.*)",
    re.DOTALL,
)
# The same with what carriers leave out of it: nothing that a person would write.
_WHOLE = re.compile(
    r"\s*id:([!-~]+)(?: +sub:[!-~]+)?(?: +dlvrd:[!-~]+)? +submit date:[0-9]+ +done date:[0-9]+"
    r" +stat:([A-Za-z]+)(?: +err:[0-9A-Za-z]+)?(?:\s*| +text:.*)",
    re.IGNORECASE | re.DOTALL,
)
_USUAL_NAMES = ("id", "sub", "dlvrd", "submit date", "done date", "stat", "err")
_PUNCTUATION = " ,;|&\"'{}"
_BEFORE_STATE = ("done date", "submit date", "dlvrd", "sub")
_NAMES = {
    "submitdate": "submit date",
    "submittime": "submit date",
    "donedate": "done date",
    "donetime": "done date",
    "status": "stat",
    "state": "stat",
    "error": "err",
    "errcode": "err",
    "errorcode": "err",
    "msgid": "id",
    "messageid": "id",
    "smsid": "id",
}
_SIGNS = str.maketrans("", "", " _-")
_ABSENT = frozenset({"", "null", "none", "nil"})
_NEEDED = frozenset({"id", "stat"})
_LENGTH_MAX = 255  # longer values are no identifiers; a receipt's text is at most one message


def read_fields(content: str) -> dict[str, str]:
    """The fields that are there, by their names in appendix B; the echo after `text:` is not looked into."""
    usual = _USUAL.fullmatch(content)
    if usual is not None and len(usual.group(1)) <= _LENGTH_MAX and _is_plain(usual.groups()):
        return dict(zip(_USUAL_NAMES, usual.groups(), strict=True))
    return read_any_fields(content)


def is_whole(content: str) -> bool:
    """Whether a text is a receipt from `id:` to `stat:` in the form of appendix B, as no handset's owner writes one."""
    return _WHOLE.fullmatch(content.rstrip("\0")) is not None


def _is_plain(values: tuple[str, ...]) -> bool:
    return not any(
        value.lower() in _ABSENT or value[-1] in _PUNCTUATION or value[0] in _PUNCTUATION for value in values
    )


def read_any_fields(content: str) -> dict[str, str]:
    """The same for every form, usual or not."""
    found = _fields_by(_KEY, content)
    if "id" in found and "stat" in found:
        return found
    for keys in (_LOOSE_KEY, _RUN_ON_KEY):
        other = _fields_by(keys, content)
        if len(_NEEDED.intersection(other)) > len(_NEEDED.intersection(found)):
            found = other
    return found


def _fields_by(keys: re.Pattern[str], content: str) -> dict[str, str]:
    found: dict[str, str] = {}
    matches: list[re.Match[str]] = []
    for match in keys.finditer(content):
        matches.append(match)
        if match.group(1).lower() == "text" and len(matches) > 1:
            break  # the echo comes last; where a carrier puts it first, the other fields follow it
    if not matches:
        return found
    ends = [*(match.start() for match in matches[1:]), len(content)]
    named = [(_name(match.group(1)), content[match.end() : end]) for match, end in zip(matches, ends, strict=True)]
    if named[0][0] == "text":
        named.reverse()  # what the sender wrote may look like fields; the carrier's own follow it
    for name, written in named:
        if name == "text" or name in found:
            continue
        value = _value(written, name)
        if value.lower() not in _ABSENT:
            found[name] = value[:_LENGTH_MAX]
    if "stat" not in found:
        _take_unnamed_state(found)
    return found


def _take_unnamed_state(found: dict[str, str]) -> None:
    """A state without its name ends the field in front of it: `done date:2401010102 DELIVRD err:000`."""
    for name in _BEFORE_STATE:
        value, _, word = found.get(name, "").rpartition(" ")
        if value and word.upper() in BY_WORD:
            found[name], found["stat"] = value.rstrip(_PUNCTUATION), word
            return


def _value(written: str, name: str) -> str:
    value = printable(written).strip(_PUNCTUATION)
    other = _OTHER_KEY.search(value)
    if other is None:
        return value
    value = value[: other.start()].rstrip(_PUNCTUATION)
    return _WORD_BEHIND.sub("", value) if name == "id" else value


def printable(text: str) -> str:
    """The text without NUL and other control characters, which text columns refuse."""
    if text.isprintable():
        return text.strip()
    return "".join(char if char.isprintable() else " " for char in text).strip()


def _name(key: str) -> str:
    bare = key.lower().translate(_SIGNS)
    return _NAMES.get(bare, bare)
