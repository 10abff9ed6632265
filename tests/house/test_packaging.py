"""What is installed is ours, and nothing names a registry."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["gateway", "scheduler", "smpp"])
def test_generic_names_resolve_into_our_tree(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    assert Path(module.__file__).resolve().is_relative_to(ROOT), f"{name} is shadowed by another distribution"


def test_lock_file_has_hashes_and_no_registry() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock
    assert "--index-url" not in lock
    pinned = re.findall(r"^[A-Za-z0-9_.\-]+==", lock, re.MULTILINE)
    blocks = re.split(r"^(?=[A-Za-z0-9_.\-]+(?:\[[^]]*\])?==)", lock, flags=re.MULTILINE)[1:]
    assert len(pinned) > 30
    assert [block.split("==")[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_what_running_needs_is_a_part_of_the_lock() -> None:
    def entries(name: str) -> dict[str, set[str]]:
        text = (ROOT / name).read_text(encoding="utf-8")
        blocks = re.split(r"^(?=[A-Za-z0-9_.\-]+==)", text, flags=re.MULTILINE)[1:]
        return {re.split(r"[ ;]", one)[0]: set(re.findall(r"--hash=\S+", one)) for one in blocks}

    everything, to_run = entries("requirements.lock"), entries("requirements-run.lock")
    assert {name: everything.get(name) for name in to_run} == to_run
    assert 30 < len(to_run) < len(everything)
    assert not {name.partition("==")[0] for name in to_run} & {"pytest", "mypy", "hypothesis", "locust", "matplotlib"}


def test_no_file_names_a_registry() -> None:
    hosts = re.compile(
        "|".join(map(re.escape, ("pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "debian" + ".org")))
    )
    folders = ("gateway", "scheduler", "smpp", "simulations", "loadtests", "tests", "docs", "deploy", "migrations")
    listed = [*ROOT.glob("*"), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    files = [one for one in listed if one.is_file() and one.suffix not in {".png", ".woff2", ".pyc"}]
    files = [one for one in files if "node_modules" not in one.parts]
    assert len(files) > 500
    assert [path.name for path in files if hosts.search(path.read_text("utf-8", "replace"))] == []


def test_no_colliding_distribution_is_required() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for name in ("scheduler", "smpp", "gateway", "smpp-pdu3", "smpp-twisted3"):
        assert not re.search(rf"^{re.escape(name)}==", lock, re.MULTILINE)
