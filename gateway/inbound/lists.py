"""Stop lists and consent as tenants hand them in: a CSV of numbers, read line by line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from gateway.admission import numbering, senders
from gateway.domain.keywords import own_number
from gateway.policy.rules.lookup import tenant_rules
from gateway.policy.rules.snapshot import Policy
from scheduler.core.values import valueclass

FAULTS_SHOWN: Final = 100
ROWS_MAX: Final = 200_000
# Separators that a list of ROWS_MAX may hold; rows or cells without end would cost far more memory than their octets.
_SEPARATORS_MAX: Final = 4 * ROWS_MAX
_FIELD_MAX: Final = 200
_NUMBER, _SENDER = "number", "sender"
_DELIMITERS: Final = ",;\t"


class ListUnreadable(ValueError):
    """A list that cannot be read at all; the text says why and quotes nothing."""


@valueclass
class Row:
    """One line of a list: the entry that it asks for, or what is wrong with it."""

    line: int
    entry: tuple[str, str] | None
    fault: str | None = None


@valueclass
class Taken:
    """A list as it was handed in: how many rows it has, and the first of them."""

    rows_total: int
    head: list[list[str]]


def take(source: bytes, head: int) -> Taken:
    """Reads a whole list and keeps the first `head` rows.

    Takes about a second for the longest one, so no event loop should wait for it. Raises ListUnreadable.
    """
    rows = rows_of(source)
    first = list(islice(rows, head))
    return Taken(len(first) + sum(1 for _ in rows), first)


def rows_of(source: bytes) -> Iterator[list[str]]:
    """[line, number, sender] of each row of a CSV in UTF-8 with commas, semicolons or tabs, blank ones left out.

    A first line `sep=;`, as some spreadsheets want it, is obeyed. A first row that names its columns says where they
    stand; else the number comes first and then the sender.
    Raises ListUnreadable, some faults only at their row.
    """
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ListUnreadable("is not text in UTF-8") from None
    if "\0" in text:
        raise ListUnreadable("holds NUL")
    delimiter = _delimiter(text)
    if text.count("\n") + text.count("\r") - text.count("\r\n") > ROWS_MAX:
        raise ListUnreadable(f"has more than {ROWS_MAX} lines")
    if text.count(delimiter) > _SEPARATORS_MAX:
        raise ListUnreadable("has too many columns")
    return _in_order(_rows(text, delimiter))


def _rows(text: str, delimiter: str) -> Iterator[list[str]]:
    # Strict: a quotation mark that nobody closed would swallow the rows behind it, and nobody would miss their entries.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if reader.line_num == 1 and _declares(delimiter.join(row)):
                continue
            if any(cell.strip() for cell in row):
                yield [str(reader.line_num), *(cell.strip()[:_FIELD_MAX] for cell in row)]
    except csv.Error:
        raise ListUnreadable(
            f"is not CSV: see the quotation marks and the lengths of cells up to line {reader.line_num}"
        ) from None


def _delimiter(text: str) -> str:
    head = text[:4096].partition("\n")[0].partition("\r")[0]
    if _declares(head):
        return head[-1]
    return max(_DELIMITERS, key=head.count)  # the first of them where there is none


def _declares(head: str) -> bool:
    return head[:-1].lower() == "sep=" and head[-1] in _DELIMITERS


def _in_order(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """[line, number, sender] whatever the order of the columns."""
    number_at, sender_at = 1, 2
    for n, row in enumerate(rows):
        names = [name.lower() for name in row[1:]] if n == 0 else ()
        if _NUMBER in names:
            number_at = 1 + names.index(_NUMBER)
            sender_at = 1 + names.index(_SENDER) if _SENDER in names else 0
        else:
            yield [row[0], _cell(row, number_at), _cell(row, sender_at)]


def _cell(row: list[str], at: int) -> str:
    return row[at] if 0 < at < len(row) else ""


def read_rows(rows: Iterable[list[str]], policy: Policy, tenant: str) -> Iterator[Row]:
    """The entries that rows of `rows_of` ask for, as this tenant writes numbers."""
    accept_00 = tenant_rules(policy, tenant).accept_00_prefix
    for line, written, sender in rows:
        number = numbering.normalise(written, accept_00_prefix=accept_00)
        covered = read_sender(policy, tenant, sender)
        if number is None:
            yield Row(int(line), None, "number: must be in E.164 form")
        elif covered is None:
            yield Row(
                int(line),
                None,
                "sender: must be a number, a short code or a name",
            )
        else:
            yield Row(int(line), (number, covered))


def read_sender(policy: Policy, tenant: str, written: str) -> str | None:
    """Which sender an entry is for, as the policy writes it; '' for all of them, None where it cannot be one."""
    if not written:
        return ""
    return own_number(policy, tenant, written) or senders.normalise(written)
