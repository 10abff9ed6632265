"""The policy file on disk: written in pieces, swapped, unreadable, empty, linked as Kubernetes does, not judged."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.policy import entry
from gateway.policy.applier import PolicyBusy, PolicyRefused
from gateway.policy.entry import read_file, watch_file
from gateway.policy.rules import watch as rules
from gateway.policy.rules.document import SIZE_MAX
from gateway.policy.rules.faults import Fault, PolicyInvalid
from gateway.policy.rules.watch import SETTLE_S, UNFINISHED_S, Sight, Watch

ONE, TWO = Sight(1, 1, 10, 0, 7), Sight(2, 2, 20, 0, 7)
OLD, NEW = b"old", b"new"


def due_at(watch: Watch, sight: Sight | None, is_whole: bool = True) -> float:
    """After how many seconds of the same sight the file is to be read."""
    for tenth in range(100):
        if watch.is_due(sight, is_whole, tenth / 10):
            return tenth / 10
    return float("inf")


def test_what_did_not_change_is_never_read() -> None:
    assert due_at(Watch(ONE, OLD), ONE) == float("inf")
    assert due_at(Watch(None, None), None) == float("inf")


def test_a_change_is_read_once_it_has_settled_and_without_its_last_line_end_later() -> None:
    assert due_at(Watch(ONE, OLD), TWO) == SETTLE_S
    assert due_at(Watch(ONE, OLD), TWO, is_whole=False) == UNFINISHED_S
    growing = Watch(ONE, OLD)
    assert not any(growing.is_due(TWO._replace(size=size), True, size / 10) for size in range(100))


def test_a_change_that_is_taken_back_is_none() -> None:
    watch = Watch(ONE, OLD)
    assert not watch.is_due(TWO, True, 0.0)
    assert not watch.is_due(ONE, True, 0.1)
    assert not watch.is_pending
    assert not watch.is_due(TWO, True, 9.0)  # its time begins anew


def test_each_change_is_dealt_with_once() -> None:
    watch = Watch(ONE, OLD)
    assert due_at(watch, TWO) == SETTLE_S
    assert watch.is_news(NEW)
    assert watch.is_pending  # and stays so until it was judged
    watch.entered(NEW)
    assert due_at(watch, TWO) == float("inf")
    touched = TWO._replace(written_at=3)
    assert due_at(watch, touched) == SETTLE_S
    assert not watch.is_news(NEW)
    assert due_at(watch, touched) == float("inf")


def test_a_refused_text_is_judged_again_when_it_is_touched() -> None:
    watch = Watch(ONE, OLD)
    due_at(watch, TWO)
    assert watch.is_news(NEW)
    watch.refused()
    assert due_at(watch, TWO) == float("inf")
    assert due_at(watch, TWO._replace(written_at=3)) == SETTLE_S
    assert watch.is_news(NEW)


def test_what_cannot_be_read_is_looked_at_again_and_told_once() -> None:
    watch = Watch(ONE, OLD)
    for told in (True, False, False):
        assert due_at(watch, TWO, is_whole=False) == UNFINISHED_S
        assert watch.is_untold("no right") is told
    assert due_at(watch, None, is_whole=False) == UNFINISHED_S
    assert watch.is_untold("gone")


class Installation:
    """Applies what it is given, or fails as told; a text with `bad` is no policy."""

    pool: Any = None

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.failures: list[Exception] = []
        self.tries = 0

    @property
    def applier(self) -> Any:
        return self

    async def apply_latest(self, read: Callable[[], str], by: str, *, unless_known: bool = False) -> int:
        self.tries += 1
        if self.failures:
            raise self.failures.pop(0)
        text = read()
        if not text or "bad" in text:
            raise PolicyInvalid([Fault(1, "", "bad")])
        self.entered.append(text)
        return len(self.entered)


async def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


class Eyes:
    """Counts looks at the file."""

    def __init__(self, look: Callable[[Path], Any]) -> None:
        self._look, self.looks = look, 0

    def __call__(self, path: Path) -> Any:
        self.looks += 1
        return self._look(path)

    async def look(self, times: int = 12) -> None:
        enough = self.looks + times
        await until(lambda: self.looks >= enough)


@pytest.fixture
def eyes(monkeypatch: pytest.MonkeyPatch) -> Eyes:
    found = Eyes(entry._look)
    monkeypatch.setattr(entry, "_look", found)
    monkeypatch.setattr(entry, "LOOK_S", 0.005)
    monkeypatch.setattr(entry, "_LOOK_AGAIN_S", 0.005)
    monkeypatch.setattr(rules, "SETTLE_S", 0.01)
    monkeypatch.setattr(rules, "UNFINISHED_S", 0.02)
    return found


@pytest.fixture
async def watched(eyes: Eyes, tmp_path: Path) -> AsyncIterator[tuple[Path, Installation]]:
    path, installation = tmp_path / "policy.yaml", Installation()
    path.write_text("one\n")
    task = asyncio.create_task(watch_file(installation, path))
    await eyes.look(1)
    yield path, installation
    task.cancel()
    await asyncio.wait({task}, timeout=30)


async def test_a_file_written_in_pieces_is_taken_whole(
    watched: tuple[Path, Installation], eyes: Eyes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, installation = watched
    monkeypatch.setattr(rules, "UNFINISHED_S", 3600.0)
    for piece in ("", "tenants: {}\nrou", "tenants: {}\nroutes:"):
        path.write_text(piece)
        await eyes.look()
    assert installation.tries == 0
    path.write_text("tenants: {}\nroutes: {}\n")
    await until(lambda: installation.entered == ["tenants: {}\nroutes: {}\n"])


async def test_a_file_without_its_last_line_end_is_taken_all_the_same(watched: tuple[Path, Installation]) -> None:
    path, installation = watched
    path.write_text("two")
    await until(lambda: installation.entered == ["two"])


async def test_an_empty_file_is_refused_and_the_next_text_taken(watched: tuple[Path, Installation]) -> None:
    path, installation = watched
    path.write_text("")
    await until(lambda: installation.tries == 1)
    path.write_text("two\n")
    await until(lambda: installation.entered == ["two\n"])


async def test_a_rename_over_it_and_a_swap_as_editors_do(watched: tuple[Path, Installation], eyes: Eyes) -> None:
    path, installation = watched
    other = path.with_suffix(".new")
    other.write_text("two\n")
    other.replace(path)
    await until(lambda: installation.entered == ["two\n"])
    path.rename(path.with_suffix(".yaml~"))
    await eyes.look()
    path.write_text("three\n")
    await until(lambda: installation.entered == ["two\n", "three\n"])
    path.unlink()
    await eyes.look()
    path.write_text("three\n")
    await eyes.look()
    assert installation.tries == 2


async def test_a_switched_link_as_kubernetes_mounts_a_configmap(eyes: Eyes, tmp_path: Path) -> None:
    def publish(name: str, text: str) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.yaml").write_text(text)
        (tmp_path / "..data_tmp").symlink_to(name)
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")

    publish("..1", "one\n")
    path, installation = tmp_path / "policy.yaml", Installation()
    path.symlink_to("..data/policy.yaml")
    task = asyncio.create_task(watch_file(installation, path))
    try:
        await eyes.look(1)
        publish("..2", "two\n")
        await until(lambda: installation.entered == ["two\n"])
        publish("..3", "two\n")  # another file of the map changed
        await eyes.look()
        assert installation.tries == 1
    finally:
        task.cancel()


async def test_a_file_that_may_not_be_read_is_told_once_and_taken_as_soon_as_it_may(
    watched: tuple[Path, Installation], eyes: Eyes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, installation = watched
    told: list[str] = []
    monkeypatch.setattr(entry._log, "warning", lambda event, **_: told.append(event))
    forbidden = True

    def reading(file: Path) -> str:
        if forbidden:
            raise PolicyInvalid([Fault(0, "", "cannot be read: Permission denied")])
        return read_file(file)

    monkeypatch.setattr(entry, "read_file", reading)  # root may read what nobody may
    path.write_text("two\n")
    await until(lambda: bool(told))
    await eyes.look(30)
    assert told == ["policy_file_not_readable"]
    forbidden = False
    path.chmod(0o600)
    await until(lambda: installation.entered == ["two\n"])


async def test_a_change_with_the_old_time_and_size_is_seen(watched: tuple[Path, Installation]) -> None:
    path, installation = watched
    before = path.stat()
    path.write_text("two\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    await until(lambda: installation.entered == ["two\n"])


async def test_a_pipe_in_its_place_is_told_and_holds_nothing_up(
    watched: tuple[Path, Installation], eyes: Eyes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, installation = watched
    told: list[str] = []
    monkeypatch.setattr(entry._log, "warning", lambda event, **_: told.append(event))
    path.unlink()
    os.mkfifo(path)
    await until(lambda: bool(told))
    await eyes.look(30)
    assert told == ["policy_file_not_readable"]
    path.unlink()
    path.write_text("two\n")
    await until(lambda: installation.entered == ["two\n"])


@pytest.mark.parametrize("special", ["/dev/zero", "/dev/null", "/dev", "/proc/self/fd"])
def test_only_a_regular_file_is_watched(special: str, tmp_path: Path) -> None:
    link = tmp_path / "policy.yaml"
    link.symlink_to(special)
    with pytest.raises(PolicyInvalid, match="not a regular file"):
        read_file(link)


def test_a_person_may_pipe_a_policy_and_an_endless_one_is_too_large() -> None:
    assert len(read_file(Path("/dev/zero"), piped=True)) == SIZE_MAX + 1
    reading, writing = os.pipe()
    os.write(writing, b"classes: {}\n")
    os.close(writing)
    try:
        assert read_file(Path(f"/dev/fd/{reading}"), piped=True) == "classes: {}\n"
    finally:
        os.close(reading)


async def test_what_is_not_utf8_is_no_policy(watched: tuple[Path, Installation], eyes: Eyes) -> None:
    path, installation = watched
    path.write_bytes(b"caf\xe9: \xff\n")
    await eyes.look(30)
    assert installation.tries == 0
    path.write_text("two\n")
    await until(lambda: installation.entered == ["two\n"])


async def test_what_could_not_be_judged_is_tried_again_and_what_was_refused_is_not(
    watched: tuple[Path, Installation], eyes: Eyes
) -> None:
    path, installation = watched
    installation.failures = [OSError("PostgreSQL is away"), PolicyBusy("another"), TimeoutError()]
    path.write_text("two\n")
    await until(lambda: installation.entered == ["two\n"])
    assert installation.tries == 4
    installation.failures = [PolicyRefused("a process lags")]
    path.write_text("three\n")
    await until(lambda: installation.tries == 5)
    await eyes.look(30)
    assert installation.tries == 5
    path.touch()
    await until(lambda: installation.entered == ["two\n", "three\n"])


async def test_a_change_while_one_is_judged_is_taken_after_it(watched: tuple[Path, Installation]) -> None:
    path, installation = watched
    installation.failures = [OSError("PostgreSQL is away")] * 3
    path.write_text("two\n")
    await until(lambda: installation.tries >= 1)
    path.write_text("three\n")
    await until(lambda: "three\n" in installation.entered)
    assert installation.entered[-1] == "three\n"
