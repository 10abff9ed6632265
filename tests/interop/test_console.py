"""The console in a real Chromium: pages without faults in both colours, an act with its audit, forms of others."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.running_gateway import RunningGateway, ask, running, wait_for
from tests.interop.node import HERE

pytestmark = pytest.mark.interop
PAGES = (
    "",
    "/carriers",
    "/tenants",
    "/tenants?name=demo",
    "/messages",
    "/policy",
    "/policy/edit",
    "/policy/versions/1",
    "/audit",
)


class Browser:
    """A Chromium that does one thing after the other."""

    def __init__(self) -> None:
        found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        assert found, "a Chromium is needed (Debian: apt-get install chromium)"
        self.process = subprocess.Popen(
            ["node", "browser.js", found], cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._answer() == {"event": "ready"}

    def do(self, verb: str, **order: Any) -> Any:
        """One order; its result."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": verb, **order}) + "\n")
        self.process.stdin.flush()
        answer = self._answer()
        assert answer["event"] == "done", (verb, order, answer)
        return answer["result"]

    def faults(self) -> list[str]:
        """What Chromium complained of since the last time; a poll that leaving its page cut off is no fault."""
        return [one for one in self.do("faults") if "htmx:error" not in one]

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def stop(self) -> None:
        """Ends it."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with running("console") as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    made = Browser()
    yield made
    made.stop()


@pytest.mark.timeout(400)
def test_the_console_in_a_browser(gateway: RunningGateway, browser: Browser) -> None:
    console = f"{gateway.operators_url}/console"
    assert browser.do("goto", url=f"{console}/login?token=wrong") == 401
    assert "used already" in browser.do("text", selector="#main")
    browser.do("faults")  # Chromium writes the 401 into its console
    assert browser.do("goto", url=gateway.login_link) == 200
    browser.do("wait", selector="#live")
    status, message = gateway.paste()
    assert status == 202

    for scheme in ("light", "dark"):
        browser.do("colours", scheme=scheme)
        for path in (*PAGES, f"/messages/{message['id']}", f"/messages?q={message['to'].replace('+', '%2B')}"):
            assert browser.do("goto", url=console + path) == 200, path
            browser.do("wait", selector="#main h1", state="attached")
            assert browser.faults() == [], (scheme, path)
    browser.do("goto", url=console)
    browser.do("wait", selector=".chart canvas")
    before = browser.do("text", selector=".asof time")
    wait_for(lambda: browser.do("text", selector=".asof time") != before, 60)
    assert browser.faults() == []

    browser.do("goto", url=f"{console}/carriers")
    browser.do("click", selector="button[aria-label='Pause session sim-1']")
    assert "Pause session sim-1?" in browser.do("text", selector="#sure")
    browser.do("press", key="Escape")
    assert gateway.command("status", "--json").returncode == 0
    browser.do("click", selector="button[aria-label='Pause session sim-1']")
    browser.do("click", selector="#sure-yes")
    browser.do("wait", selector="button[aria-label='Resume session sim-1']")
    assert "Session sim-1 is paused" in browser.do("text", selector="#notice")
    assert browser.faults() == []
    browser.do("goto", url=f"{console}/audit?action=session.")
    assert "session.pause" in browser.do("text", selector="#main")
    assert "console, link of" in browser.do("text", selector="#main")

    # The session's cookie alone is not enough: neither without the token nor from another origin.
    refused = browser.do(
        "eval",
        script="fetch('/console/sessions/sim-1/resume', {method: 'POST', body: new URLSearchParams({csrf: 'x'})})"
        ".then(answer => answer.status)",
    )
    assert refused == 403
    browser.do("goto", url=f"{console}/carriers")
    browser.do("wait", selector="button[aria-label='Resume session sim-1']")
    browser.do("click", selector="button[aria-label='Resume session sim-1']")
    browser.do("wait", selector="button[aria-label='Pause session sim-1']")

    browser.do("size", width=390, height=800)
    browser.do("goto", url=console)
    overflow = browser.do("eval", script="document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0, "nothing is wider than a small screen"
    browser.do("size", width=1360, height=900)
    browser.do("click", selector=".tools form button")
    browser.do("wait", selector="#key")
    assert ask("GET", console)[0] == 401
