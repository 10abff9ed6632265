"""Stop lists and consent as tenants hand them in: a CSV of numbers, read line by line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gateway.admission import numbering, senders
from gateway.domain.keywords import own_number
from gateway.policy.rules.lookup import tenant_rules
from gateway.policy.rules.snapshot import Policy

FAULTS_SHOWN: Final = 100
_FIELD_MAX: Final = 200
_NUMBER, _SENDER = "number", "sender"


class ListUnreadable(ValueError):
    """A list that cannot be read at all; the text says why and quotes nothing."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a list: the entry that it asks for, or what is wrong with it."""

    line: int
    entry: tuple[str, str] | None
    fault: str | None = None


def rows_of(source: bytes) -> list[list[str]]:
    """The rows of a CSV in UTF-8 with commas or semicolons, blank ones left out; each begins with its line number.

    A first row that names its columns says where they stand; else the number comes first and then the sender.
    Raises ListUnreadable.
    """
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ListUnreadable("is not text in UTF-8") from None
    if "\0" in text:
        raise ListUnreadable("holds NUL")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text))
    found: list[list[str]] = []
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                found.append([str(reader.line_num), *(cell.strip()[:_FIELD_MAX] for cell in row)])
    except csv.Error:
        raise ListUnreadable("is not CSV") from None
    return _in_order(found)


def _delimiter(text: str) -> str:
    head = text[:4096].partition("\n")[0]
    return ";" if head.count(";") > head.count(",") else ","


def _in_order(rows: list[list[str]]) -> list[list[str]]:
    """[line, number, sender] whatever the order of the columns."""
    if not rows:
        return rows
    names = [name.lower() for name in rows[0][1:]]
    number_at, sender_at, body = 1, 2, rows
    if _NUMBER in names:
        number_at, body = 1 + names.index(_NUMBER), rows[1:]
        sender_at = 1 + names.index(_SENDER) if _SENDER in names else 0
    return [[row[0], _cell(row, number_at), _cell(row, sender_at)] for row in body]


def _cell(row: list[str], at: int) -> str:
    return row[at] if 0 < at < len(row) else ""


def read_rows(rows: list[list[str]], policy: Policy, tenant: str) -> Iterator[Row]:
    """The entries that rows of `rows_of` ask for, as this tenant writes numbers."""
    accept_00 = tenant_rules(policy, tenant).accept_00_prefix
    for line, written, sender in rows:
        number = numbering.normalise(written, accept_00_prefix=accept_00)
        covered = read_sender(policy, tenant, sender)
        if number is None:
            yield Row(int(line), None, "number: must be in E.164 form")
        elif covered is None:
            yield Row(int(line), None, "sender: cannot be a sender")
        else:
            yield Row(int(line), (number, covered))


def read_sender(policy: Policy, tenant: str, written: str) -> str | None:
    """Which sender an entry is for, as the policy writes it; '' for all of them, None where it cannot be one."""
    if not written:
        return ""
    return own_number(policy, tenant, written) or senders.normalise(written)
