"""README and docs: links lead somewhere, `make` targets and verbs exist, command blocks are shell."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from gateway.cli.main import app
from tests.docs_runner import ROOT, Block, blocks_of, commands_of

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"(?<![`!])\[[^\]\n]+\]\(([^)\s]+)\)")
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def verbs(command: Any) -> dict[str, Any]:
    return dict(getattr(command, "commands", {}))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "#", "mailto:")):
            assert (page.parent / target.partition("#")[0]).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page: Path) -> None:
    for block in blocks_of(page):
        if block.language not in ("sh", "bash"):
            continue
        subprocess.run(["bash", "-n"], input=block.text, text=True, timeout=30, check=True)
        for command in commands_of(block):
            words = command.replace(".venv/bin/", "").split()
            if words[0] == "make":
                assert words[1] in TARGETS, command
            if words[0] == "sluicegate":
                known = verbs(get_command(app))
                assert words[1] in known or words[1].startswith("-"), command
                inner = verbs(known.get(words[1]))
                assert not inner or words[2] in inner or words[2].startswith("-"), command


def test_every_page_stands_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


def test_commands_are_taken_whole() -> None:
    text = "a \\\n  b\n# no\nc > x <<'END'\n d 'e\nEND\ncurl -d '{\n \"f\": 1}'\ng  # h\n"
    found = commands_of(Block("sh", text, None))
    assert found == ["a \\\n  b", "c > x <<'END'\n d 'e\nEND", "curl -d '{\n \"f\": 1}'", "g  # h"]
