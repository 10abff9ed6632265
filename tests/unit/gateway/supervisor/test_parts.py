"""Children: restarted when they die, with back-off; gone when asked; dead with their parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from gateway.embedded import child
from gateway.supervisor.parts import Part, role_arguments, role_environment

SLEEP = "import time; time.sleep(600)"


def command(code: str, **more: object) -> child.ChildCommand:
    return child.ChildCommand([sys.executable, "-c", code], **more)  # type: ignore[arg-type]


async def until(look: object, patience_s: float = 20.0) -> None:
    end = time.monotonic() + patience_s
    while not look():  # type: ignore[operator]
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


async def test_a_dead_child_is_started_again_and_its_death_told() -> None:
    dead: list[int] = []
    part = Part("sleeper", lambda: child.start(command(SLEEP)), dead.append)
    part.launch()
    first = part.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until(lambda: part.pid not in (None, first))
    assert dead == [first]
    assert part.restarts == 1
    second = part.pid
    assert await part.stop() == -signal.SIGTERM
    assert second is not None
    assert not child.alive(second)


async def test_a_child_that_never_lives_is_not_started_in_a_tight_loop() -> None:
    part = Part("breaker", lambda: child.start(command("raise SystemExit(3)")))
    part.launch()
    await asyncio.sleep(1.5)
    await part.stop()
    assert 1 <= part.restarts <= 6


async def test_a_deaf_child_is_killed_in_the_end() -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    )
    deaf = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert deaf.stdout is not None
    with deaf.stdout:
        deaf.stdout.readline()
        assert await child.stop(deaf, (signal.SIGTERM, 0.2)) == -signal.SIGKILL


def test_children_die_with_a_killed_parent() -> None:
    code = (
        "import sys, time\n"
        "from gateway.embedded import child\n"
        f"one = child.start(child.ChildCommand([sys.executable, '-c', {SLEEP!r}]))\n"
        "print(one.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
    assert child.alive(pid)
    parent.kill()
    parent.wait()
    assert child.wait_all_gone([pid], 10.0)


def test_the_command_line_shows_the_role() -> None:
    assert "egress" in role_arguments("egress", "--worker", "egress-1")


def test_settings_replace_both_forms_of_the_environment(monkeypatch: object) -> None:
    os.environ["SLUICEGATE_DATABASE_URL_FILE"] = "/secret"
    try:
        made = role_environment({"SLUICEGATE_DATABASE_URL": "x"})
    finally:
        del os.environ["SLUICEGATE_DATABASE_URL_FILE"]
    assert made["SLUICEGATE_DATABASE_URL"] == "x"
    assert "SLUICEGATE_DATABASE_URL_FILE" not in made


def test_working_directories_find_what_a_dead_server_left(tmp_path: Path) -> None:
    left = subprocess.Popen([sys.executable, "-c", SLEEP], cwd=tmp_path)
    try:
        assert child.working_in(tmp_path.resolve()) == [left.pid]
    finally:
        left.kill()
        left.wait()
