"""`docs/policy-reference.md`, drawn from the readers of the policy file: what they ask for, expect and assume.

`python -m tests.house.policy_reference` writes the page. The readers are run over a small policy with every section,
and over nonsense in each field, so that range and wording are their own; only the sentence per field stands here
(`tests/house/policy_sentences.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from gateway.policy.rules.document import Section
from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.scalars import BadValue
from tests.house.policy_sentences import INTRODUCTION, SECTIONS, SENTENCES

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "policy-reference.md"
SMALL: Final = """
classes: {otp: {}, transactional: {}, marketing: {}, non_priority: {}}
tenants:
  acme: {senders: {ACME: {}}, applications: {spring: {}}, callbacks: {url: "https://e.example", secrets: [s]}}
destinations:
  italy: {prefixes: ["+39"], send_window: {classes: [marketing], from: "09:00", to: "20:00"}}
providers:
  carrier-a:
    dialect: {tlvs: {entity: {tag: "0x1400"}}, address: {international: {ton: 1, npi: 1}}, status_overrides: {"0x45": {retry: later}}}
    sessions: {a1: {host: h, system_id: s, password: p, tls: {ca: "file:/ca"}}}
routes: {main: {match: {}, provider: carrier-a}}
"""  # noqa: E501
_NAMES: Final = {
    "classes": "CLASS", "tenants": "TENANT", "senders": "SENDER", "applications": "APPLICATION",
    "destinations": "DESTINATION", "providers": "PROVIDER", "sessions": "SESSION", "routes": "ROUTE",
    "tlvs": "TLV", "status_overrides": "STATUS",
}  # fmt: skip
_SHORT: Final = {
    "a duration": "a duration", "more than 0": "a duration", "a day or more": "a duration of a day or more",
    "the name of an environment variable": "a secret", "file: and a path": "`file:PATH`",
    "final, all, or one of": "`final`, `all`, or types such as `message.delivered`",
}  # fmt: skip
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms"))


@dataclass(slots=True)
class Field:
    """One field as its reader sees it; where it is left out stands a default, of each class where these differ."""

    takes: str
    defaults: dict[str, str]
    required: bool = False


def fields() -> dict[str, Field]:
    """Every field of the schema by its general path, in the order in which the readers ask."""
    found: dict[str, Field] = {}
    asking = 0

    def note(section: Section, key: str, takes: str, default: str, required: bool = False) -> None:
        path, owner = general(section.at(key))
        field = found.setdefault(path, Field(takes, {}, required))
        field.defaults[owner] = default

    def wrap(name: str, tell: Callable[..., tuple[str, str, bool]]) -> Any:
        inner = getattr(Section, name)

        def asked(self: Section, key: str, *args: Any, **options: Any) -> Any:
            nonlocal asking
            if not asking:  # `number` asks `value` below it: the outer question says more
                note(self, key, *tell(*args, **options))
            asking += 1
            try:
                return inner(self, key, *args, **options)
            finally:
                asking -= 1

        return patch.object(Section, name, asked)

    with (
        wrap("value", lambda default, read: (wording(read), shown(default, read), False)),
        wrap("required", lambda _default, read: (wording(read), "", True)),
        wrap("choice", lambda default, known: (" · ".join(f"`{one}`" for one in known), f"`{default}`", False)),
        wrap("number", lambda default, least, most: (f"{least} to {most}", counted(default, least), False)),
        wrap("flag", lambda default: ("`true` · `false`", "`true`" if default else "`false`", False)),
        wrap("texts", lambda default, read, alone=False: (listed(read, alone), items(default), False)),
        wrap("limit", lambda default: ("a limit", "none" if default is None else limit(default), False)),
    ):  # fmt: skip
        read_policy(SMALL)
    return found


def general(path: str) -> tuple[str, str]:
    """A path with names replaced by what they name, and the class it is about (where it is about one)."""
    steps = path.split(".")
    told: list[str] = []
    owner = ""
    for at, step in enumerate(steps):
        above = steps[at - 1] if at else ""
        if above in _NAMES and not (above == "tlvs" and at > 1 and told[0] == "tenants" and at == len(steps)):
            told.append(_NAMES[above])
            owner = step if above == "classes" else owner
        else:
            told.append(step)
    if "address" in told:
        told[told.index("address") + 1] = "KIND"
    return ".".join(told), owner


def wording(read: Callable[[str], Any]) -> str:
    """What a reader says it expects."""
    for nonsense in ("-1", "\x00 nonsense", "env:", ""):
        try:
            read(nonsense)
        except BadValue as bad:
            said = str(bad).removeprefix("expects ").replace("|", "or")
            return next((short for start, short in _SHORT.items() if said.startswith(start)), said)
        except Exception as fault:
            raise AssertionError(f"{read} breaks on nonsense") from fault
    return "text"


def shown(default: Any, read: Callable[[str], Any]) -> str:
    """A default for people."""
    if default is None or default == "":
        return "none"
    if isinstance(default, int) and "duration" in wording(read):
        for size, unit in _UNITS:
            if default % size == 0:
                return f"`{default // size}{unit}`"
    if "mode and type bits" in wording(read):
        return f"`0x{default:02x}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def counted(default: int, least: int) -> str:
    """A default number; one that is out of range stands for none."""
    return "none" if default < least else f"`{default}`"


def listed(read: Callable[[str], Any], alone: bool) -> str:
    """What a list takes."""
    said = f"list: {wording(read)}"
    return said + " (one may stand alone)" if alone else said


def items(default: Any) -> str:
    """A default list."""
    return "none" if not default else f"`[{', '.join(map(str, default))}]`"


def limit(default: Any) -> str:
    """A default limit."""
    return f"`{{rate_per_s: {default.rate_per_s:g}, burst: {default.burst}}}`"


def default_of(field: Field) -> str:
    """The default column of a field."""
    if field.required:
        return "**required**"
    values = set(field.defaults.values())
    if len(values) == 1:
        return values.pop()
    return ", ".join(f"{owner} {value}" for owner, value in field.defaults.items())


def page() -> str:
    """The whole page. Raises KeyError for a field without a sentence, and for a sentence without a field."""
    known = fields()
    left = set(SENTENCES) - set(known)
    if left:
        raise KeyError(f"sentences without a field: {sorted(left)}")
    lines = [INTRODUCTION.strip(), ""]
    for prefix, (title, text) in SECTIONS.items():
        own = {path: field for path, field in known.items() if section_of(path) == prefix}
        lines += [f"## {title}", "", text.strip(), "", "| field | takes | left out | |", "| --- | --- | --- | --- |"]
        for path, field in own.items():
            name = path.removeprefix(prefix).lstrip(".")
            takes = "a secret" if name == "password" else field.takes
            lines.append(f"| `{name}` | {takes} | {default_of(field)} | {SENTENCES[path]} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def section_of(path: str) -> str:
    """The longest section of the page that a path belongs to."""
    return max((one for one in SECTIONS if path == one or path.startswith(one + ".")), key=len)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
