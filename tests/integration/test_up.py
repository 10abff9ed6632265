"""`sluicegate up` from outside: greeting, a pasted request, restarts, reload, orderly end (contract section 1)."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from gateway.policy.demo import demo_policy
from gateway.supervisor.addresses import free_port
from tests.integration.running_gateway import ROOT, RunningGateway, ask, running, wait_for


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with running("up") as made:
        yield made


def test_the_pasted_line_is_delivered(gateway: RunningGateway) -> None:
    status, message = gateway.paste()
    assert status == 202, message
    delivered = wait_for(lambda: (found := gateway.message(message["id"]))["status"] == "delivered" and found, 20)
    assert delivered["final"] is True
    assert delivered["delivery"]["state"] == "delivered"


def test_pasting_again_sends_no_second_message(gateway: RunningGateway) -> None:
    assert gateway.paste()[1]["id"] == gateway.paste()[1]["id"]


def test_status_names_every_role(gateway: RunningGateway) -> None:
    status = gateway.status()
    assert {"api", "egress", "delivery"} <= {one["role"] for one in status["processes"] if one["healthy"]}
    assert status["policy_version"] == 1
    assert {"otp", "transactional", "marketing", "non_priority"} == set(status["classes"])
    assert set(status["sessions"]) == {"sim-1"}
    # The session binds before the index is there: it must tell it again, or its carrier counts as down.
    wait_for(lambda: gateway.status()["providers"]["simulator"]["state"] == "up", 30)
    for one in status["processes"]:
        line = Path(f"/proc/{one['pid']}/cmdline").read_bytes().split(b"\0")
        assert one["role"].encode() in line or one["role"] == "supervisor"


def test_top_in_a_pipe_is_one_plain_look(gateway: RunningGateway) -> None:
    seen = gateway.command("top")
    assert seen.returncode == 0, seen.stderr
    assert "\x1b" not in seen.stdout
    assert "sim-1" in seen.stdout
    assert "non_priority" in seen.stdout
    told = json.loads(gateway.command("top", "--json").stdout)
    assert set(told["classes"]) == {"otp", "transactional", "marketing", "non_priority"}
    assert told["rates"]["classes"] is not None
    plain = gateway.command("status")
    assert "\x1b" not in plain.stdout
    assert "egress-1" in plain.stdout


def _without_a_size(environment: dict[str, str]) -> dict[str, str]:
    """Workers of pytest-xdist have COLUMNS and LINES, which go before the size of the terminal."""
    return {name: value for name, value in environment.items() if name not in {"COLUMNS", "LINES"}}


@contextmanager
def _hears_ctrl_c() -> Iterator[None]:
    """A test run in the background ignores SIGINT, and what it starts would inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("by_key", [True, False])
def test_top_on_a_terminal_follows_its_size_and_gives_it_back(gateway: RunningGateway, by_key: bool) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (24, 80))
    before = termios.tcgetattr(theirs)
    arguments = [sys.executable, "-m", "gateway.cli", "top", "--every", "0.3", "--data-dir", str(gateway.data_dir)]
    environment = _without_a_size(dict(os.environ)) | gateway.environment | {"TERM": "xterm", "NO_COLOR": "1"}
    with _hears_ctrl_c():
        process = subprocess.Popen(
            arguments, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, env=environment
        )
    shown = bytearray()
    os.set_blocking(ours, False)

    def look(words: bytes) -> bool:
        with suppress(BlockingIOError):
            while part := os.read(ours, 65536):
                shown.extend(part)
        return words in shown

    try:
        wait_for(lambda: look(b"sim-1") and look(b"quits"), 60)
        assert b"held by" not in shown
        termios.tcsetwinsize(ours, (40, 130))
        wait_for(lambda: look(b"held by"), 60)
        if by_key:
            os.write(ours, b"q")
        else:
            process.send_signal(signal.SIGINT)
        wait_for(lambda: look(b"") and process.poll() is not None, 60)
        assert process.returncode == 0
        assert termios.tcgetattr(theirs) == before
        assert not re.search(rb"\x1b\[[0-9;]*3[0-7]m", shown), "NO_COLOR has no colours"
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def test_one_page_of_metrics_for_all_roles(gateway: RunningGateway) -> None:
    status, page = ask("GET", f"{gateway.operators_url}/metrics")
    assert status == 200
    for role, worker in (("api", "api-1"), ("egress", "egress-1"), ("delivery", "delivery-1"), ("supervisor", "up")):
        assert f'sluicegate_policy_version{{role="{role}",worker="{worker}"}} 1.0' in page
    types = [line for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))


def test_health_and_readiness(gateway: RunningGateway) -> None:
    assert ask("GET", f"{gateway.operators_url}/healthz")[0] == 200
    assert wait_for(lambda: ask("GET", f"{gateway.operators_url}/readyz")[0] == 200, 15)


def test_the_console_link_works_once(gateway: RunningGateway) -> None:
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    assert ask("GET", gateway.login_link)[0] == 200, "looking at the link does not spend it"
    origin, _, token = gateway.login_link.partition("/console/login?token=")
    form = urllib.request.Request(f"{origin}/console/login", f"token={token}".encode(), {"Origin": origin})
    assert "simulator" in opener.open(form, timeout=10).read().decode()
    assert "sim-1" in opener.open(f"{gateway.operators_url}/console/carriers", timeout=10).read().decode()
    assert ask("GET", gateway.login_link)[0] == 401
    assert ask("GET", f"{gateway.operators_url}/console")[0] == 401


def test_admin_needs_an_operators_key(gateway: RunningGateway) -> None:
    url = f"{gateway.operators_url}/admin/policy"
    assert ask("GET", url)[0] == 401
    assert ask("GET", url, headers={"Authorization": f"Bearer {gateway.key}"})[0] == 401
    made = gateway.command("key", "create", "--admin")
    assert made.returncode == 0, made.stderr
    key = made.stdout.strip()
    assert made.stdout == key + "\n", "the key stands alone on standard output"
    status, policy = ask("GET", url, headers={"Authorization": f"Bearer {key}"})
    assert (status, policy["version"]) == (200, 1)
    assert "password: hidden:1.1" in policy["source"]
    assert ask("GET", url, headers={"Authorization": f"Bearer {key}", "Host": "rebound.example"})[0] == 421


def test_send_by_hand_waits_for_the_end(gateway: RunningGateway) -> None:
    sent = gateway.command("send", "--to", "+447700900124", "--text", "by hand", "--wait", "--json")
    assert sent.returncode == 0, sent.stderr
    message = json.loads(sent.stdout)
    assert message["status"] == "delivered"
    shown = gateway.command("message", message["id"], "--json")
    assert [one["type"] for one in json.loads(shown.stdout)["events"]][:2] == ["accepted", "claimed"]
    (submit,) = json.loads(shown.stdout)["submits"]
    assert (submit["session"], submit["outcome"], len(submit["parts"])) == ("sim-1", "accepted", 1)
    assert submit["parts"][0]["carrier_id"] in gateway.command("message", message["id"]).stdout
    own = ask(
        "GET", f"{gateway.api_url}/v1/messages/{message['id']}", headers={"Authorization": f"Bearer {gateway.key}"}
    )
    assert (own[0], "submits" in own[1]) == (200, False), "sessions and a carrier's ids are not the tenant's"
    rehearsed = gateway.command("send", "--to", "+447700900124", "--text", "€" * 100, "--dry-run")
    assert rehearsed.returncode == 0, rehearsed.stderr
    assert [line.split()[:2] for line in rehearsed.stdout.splitlines()[-2:]] == [["1", "152"], ["2", "48"]]
    refused = gateway.command("send", "--to", "nobody", "--text", "x")
    assert refused.returncode == 1
    assert "to: must be one number in E.164 form" in refused.stderr


def test_tenants_and_keys_by_command(gateway: RunningGateway) -> None:
    assert gateway.command("tenant", "create", "acme").returncode == 0
    assert gateway.command("tenant", "create", "acme").returncode == 1
    key = gateway.command("key", "create", "acme", "--scope", "read").stdout.strip()
    refusal = ask(
        "POST", f"{gateway.api_url}/v1/messages", b"{}", {"Authorization": f"Bearer {key}", "Idempotency-Key": "a"}
    )
    assert refusal[0] == 403
    listed = json.loads(gateway.command("key", "list", "--json").stdout)
    own = next(row for row in listed if row["tenant"] == "acme")
    assert key.split("_")[1] == own["id"]
    assert gateway.command("key", "revoke", own["id"]).returncode == 0
    answer = wait_for(
        lambda: ask("GET", f"{gateway.api_url}/v1/messages", headers={"Authorization": f"Bearer {key}"})[0] == 401, 6
    )
    assert answer
    assert gateway.command("key", "create").returncode == 2


@pytest.mark.parametrize("role", ["api", "egress", "delivery"])
def test_a_role_that_dies_is_restarted(gateway: RunningGateway, role: str) -> None:
    before = wait_for(lambda: gateway.healthy(role), 20)
    os.kill(next(iter(before)), signal.SIGKILL)
    wait_for(lambda: gateway.healthy(role) - before, 20, gateway.tell)
    message = wait_for(lambda: send(gateway), 20, gateway.tell)
    assert wait_for(lambda: gateway.message(message["id"])["status"] == "delivered", 30, gateway.tell)


def send(gateway: RunningGateway) -> dict[str, str] | None:
    """A message by hand; None while it is refused."""
    sent = gateway.command("send", "--to", "+447700900125", "--text", "x", "--json")
    return json.loads(sent.stdout) if sent.returncode == 0 else None


def test_policy_is_checked_applied_and_rolled_back(gateway: RunningGateway, tmp_path: Path) -> None:
    source = gateway.command("policy", "show").stdout
    file = tmp_path / "policy.yaml"
    file.write_text(source.replace("weight: 1,", "weight: 2,", 1))
    assert gateway.command("policy", "check", str(file), data_dir=False).returncode == 0
    assert "weight" in gateway.command("policy", "diff", str(file)).stdout
    applied = gateway.command("policy", "apply", str(file), "--json")
    assert applied.returncode == 0, applied.stderr
    version = json.loads(applied.stdout)["version"]
    in_use = wait_for(lambda: {one["policy_version"] for one in gateway.status()["processes"]} == {version}, 5)
    assert in_use
    file.write_text(source + "\nsurprise: 1\nclasses: {otp: {wait_budget: never}}\n")
    bad = gateway.command("policy", "apply", str(file))
    assert bad.returncode == 1
    assert "surprise" in bad.stderr
    assert "wait_budget" in bad.stderr
    assert gateway.status()["policy_version"] == version
    back = gateway.command("policy", "rollback", "1", "--json")
    assert json.loads(back.stdout)["version"] > version


def test_end_is_orderly_and_the_next_start_goes_on(gateway: RunningGateway) -> None:
    key = gateway.key
    status, message = gateway.paste()
    assert status == 202
    assert gateway.stop() == 0, gateway.greeting
    assert gateway.left_over() == []
    assert not (gateway.data_dir / "run.json").exists()
    assert gateway.command("status").returncode == 1
    gateway.start()
    assert gateway.key == key, "the demo key goes on working"
    assert gateway.message(message["id"])["id"] == message["id"]
    fresh = gateway.paste()[1]
    assert fresh["id"] != message["id"]
    assert wait_for(lambda: gateway.message(fresh["id"])["status"] == "delivered", 20)


def test_a_killed_parent_leaves_nobody_and_loses_nothing(gateway: RunningGateway) -> None:
    status, message = gateway.paste()
    assert status == 202
    gateway.stop(signal.SIGKILL)
    wait_for(lambda: gateway.left_over() == [], 20, gateway.left_over)
    gateway.start()
    assert gateway.message(message["id"])["status"] in ("queued", "sending", "sent", "delivered", "unconfirmed")


def test_ctrl_c_under_make_ends_well() -> None:
    parent = Path(tempfile.mkdtemp(prefix="sluicegate-make-"))
    parent.chmod(0o711)
    makefile = parent / "Makefile"
    command = f"exec {sys.executable} -m gateway.cli up --data-dir {parent}/data --port 0 --admin-port 0"
    makefile.write_text(f"up:\n\t@cd {ROOT} && {command}\n")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("make", ["make", "-f", str(makefile), "up"])
    shown = b""
    try:
        while b"same data." not in shown:
            shown += os.read(terminal, 4096)
        os.write(terminal, b"\x03")
        with suppress(OSError):  # the terminal's end
            while chunk := os.read(terminal, 4096):
                shown += chunk
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0, shown.decode(errors="replace")
    assert b"***" not in shown
    shutil.rmtree(parent, ignore_errors=True)


@pytest.fixture
def own_policy() -> Iterator[tuple[RunningGateway, Path]]:
    """`up --policy FILE` with a carrier simulator of its own."""
    parent = Path(tempfile.mkdtemp(prefix="sluicegate-policy-"))
    parent.chmod(0o711)
    port = free_port()
    carrier = subprocess.Popen(
        [sys.executable, "-m", "gateway.cli", "carrier-sim", "--port", str(port)], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    file = parent / "policy.yaml"
    file.write_text(demo_policy(port))
    running = RunningGateway(parent / "data", "--policy", str(file), "--api-workers", "2").start()
    yield running, file
    running.stop()
    carrier.terminate()
    carrier.wait(10)
    shutil.rmtree(parent, ignore_errors=True)


def test_the_policy_file_is_followed(own_policy: tuple[RunningGateway, Path]) -> None:
    gateway, file = own_policy
    message = gateway.paste()[1]
    assert wait_for(lambda: gateway.message(message["id"])["status"] == "delivered", 20, gateway.tell)
    assert len(gateway.healthy("api")) == 2
    assert not any("carrier-sim" in line for line in gateway.left_over()), "the simulator is not needed here"

    source = file.read_text()
    file.write_text(source.replace("weight: 1,", "weight: 3,", 1))
    wait_for(lambda: all_use(gateway, 2), 8, gateway.tell)
    file.write_text("classes: nonsense\n")
    wait_for(lambda: "nonsense" in gateway.tell() or "classes" in gateway.tell(), 8, gateway.tell)
    assert gateway.status()["policy_version"] == 2

    # Every role reads the file again on SIGHUP, and all of them together make one version of it.
    file.write_text(source.replace("weight: 1,", "weight: 4,", 1))
    gateway.process.send_signal(signal.SIGHUP)
    wait_for(lambda: all_use(gateway, 3), 8, gateway.tell)
    role = next(one["pid"] for one in gateway.status()["processes"] if one["role"] == "egress")
    file.write_text(source.replace("weight: 1,", "weight: 5,", 1))
    os.kill(role, signal.SIGHUP)
    wait_for(lambda: all_use(gateway, 4), 8, gateway.tell)

    # A restart keeps a rollback: the file's content was applied before.
    assert gateway.command("policy", "rollback", "1").returncode == 0
    wait_for(lambda: all_use(gateway, 5), 8, gateway.tell)
    assert gateway.stop() == 0
    gateway.start()
    assert all_use(gateway, 5)


def all_use(gateway: RunningGateway, version: int) -> bool:
    """Whether every process uses exactly this version."""
    return {one["policy_version"] for one in gateway.status()["processes"]} == {version}
