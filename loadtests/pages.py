"""Puts a table of results into a page of docs/, between two comments that stay."""

from __future__ import annotations

from pathlib import Path


class NoPlace(ValueError):
    """The page has no such place; the text names what is missing."""


def put(page: Path, name: str, text: str) -> None:
    """Replaces what stands between `<!-- name -->` and `<!-- /name -->`; raises NoPlace."""
    whole = page.read_text()
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found_begin, rest = whole.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise NoPlace(f"{page} has no place {begin} ... {end}")
    page.write_text(f"{before}{begin}\n{text.strip()}\n{end}{after}")
