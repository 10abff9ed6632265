"""The console on real stores: who may come in, whose forms count, what the buttons do and what the audit says of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.console import site
from gateway.ledger import keys
from tests.integration.console.conftest import Console

ACTOR = "console, link of the tests"


async def test_nobody_sees_anything_without_logging_in(console: Console) -> None:
    for path in ("/console", "/console/carriers", "/console/series"):
        status, text = await console.get(path)
        assert (status, "Operators' key" in text) == (401, True), path
    status, text = await console.get("/console/login?token=wrong")
    assert (status, "used already" in text) == (401, True)
    status, text = await console.post("/console/login", {"token": "wrong"})
    assert (status, "used already" in text) == (401, True)
    status, text = await console.post("/console/login", {"key": console.gateway.keys["acme"]})
    assert (status, "no operators" in text) == (401, True), "a tenant's key is none"
    console.session.cookie_jar.update_cookies({"sluicegate_console": "a" * 32 + "." + "0" * 64})
    assert (await console.get("/console"))[0] == 401, "a cookie that we did not sign"


async def test_a_link_is_looked_at_without_harm_and_spent_once(console: Console) -> None:
    token = console.desk.links.issue("the tests")
    for _ in range(2):
        status, text = await console.get(f"/console/login?token={token}")
        assert (status, token in text) == (200, True)
    assert (await console.post("/console/login", {"token": token}, Origin="https://evil.example"))[0] == 403
    status, text = await console.post("/console/login", {"token": token})
    assert (status, "Nothing is wrong" in text or "findings" in text) == (200, True)
    assert (await console.get("/console"))[0] == 200
    assert (await console.post("/console/login", {"token": token}))[0] == 401
    assert (ACTOR, "console.login") in await console.audit()


async def test_an_operators_key_opens_the_console_until_it_is_revoked(console: Console) -> None:
    key = await console.gateway.give_key(None, "operators")
    assert (await console.post("/console/login", {"key": key}))[0] == 200
    assert (await console.get("/console"))[0] == 200
    async with console.gateway.rt.pool.acquire() as conn:
        assert await keys.revoke(conn, key.split("_")[1], "test", console.gateway.rt.clock.now_at())
    assert (await console.get("/console"))[0] == 401


async def test_logging_out_ends_the_session_for_a_copied_cookie_too(console: Console) -> None:
    await console.log_in()
    cookies = {one.key: one.value for one in console.session.cookie_jar}
    assert (await console.post("/console/logout"))[0] == 200
    console.session.cookie_jar.update_cookies(cookies)
    assert (await console.get("/console"))[0] == 401
    assert (await console.audit())[-1] == (ACTOR, "console.logout")


async def test_forms_of_others_do_nothing(console: Console) -> None:
    await console.log_in()
    pause = "/console/sessions/sim-1/pause"
    assert (await console.post(pause, {"csrf": ""}))[0] == 403
    assert (await console.post(pause, {"csrf": "0" * 64}))[0] == 403
    assert (await console.post(pause, Origin="https://evil.example"))[0] == 403
    assert (await console.post(pause, Origin="null"))[0] == 403
    assert (await console.post(pause, **{"Sec-Fetch-Site": "cross-site"}))[0] == 403
    assert (await console.get(pause))[0] in (404, 405), "a link does nothing"
    assert await console.gateway.count("pauses") == 0


async def test_pausing_and_resuming_is_done_told_and_audited(console: Console) -> None:
    await console.log_in()
    status, text = await console.post("/console/sessions/sim-1/drain")
    assert (status, "Session sim-1 is draining" in text) == (200, True)
    assert await console.gateway.rt.pool.fetchval("SELECT mode FROM pauses WHERE name = 'sim-1'") == "drain"
    status, text = await console.get("/console/carriers")
    assert 'class="notice' not in text, "what was done is said once"
    assert "by console, link of the tests" in text
    for path in ("sessions/sim-1/resume", "providers/slow/pause", "providers/slow/resume", "routes/bulk/pause"):
        assert (await console.post(f"/console/{path}"))[0] == 200
    assert await console.gateway.rt.pool.fetchval("SELECT count(*) FROM pauses WHERE kind = 'route'") == 1
    assert (await console.post("/console/routes/nowhere/pause"))[0] == 404
    told = [(actor, action) for actor, action in await console.audit() if not action.startswith("console.")]
    assert told[-5:] == [
        (ACTOR, action)
        for action in ("session.drain", "session.resume", "provider.pause", "provider.resume", "route.pause")
    ]


async def test_every_page_is_guarded_and_brings_everything_itself(console: Console) -> None:
    await console.log_in()
    async with console.session.get(f"{console.base}/console") as reply:
        policy = reply.headers["Content-Security-Policy"]
        text = await reply.text()
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert reply.headers["Cache-Control"] == "no-store"
    addresses = re.findall(r'(?:src|href)="(/console/assets/[^"]+)"', text)
    assert len(addresses) >= 7
    for address in addresses:
        async with console.session.get(console.base + address) as asset:
            assert asset.status == 200, address
            assert "immutable" in asset.headers["Cache-Control"]
    assert (await console.get("/console/assets/../pages.py"))[0] == 404
    for template in (Path(site.__file__).parent / "templates").glob("*.html"):
        source = template.read_text()
        assert not re.search(r"<style|<script(?![^>]*src=)|\sstyle=|\son[a-z]+=|hx-on|https?://", source), template.name


async def test_htmx_gets_the_middle_and_is_sent_to_the_login_when_the_session_is_over(console: Console) -> None:
    await console.log_in()
    status, text = await console.get("/console", headers={"HX-Request": "true"})
    assert (status, "<nav" in text, '<main id="main"' in text) == (200, False, True)
    await console.post("/console/logout")
    async with console.session.get(f"{console.base}/console", headers={"HX-Request": "true"}) as reply:
        assert (reply.status, reply.headers["HX-Redirect"]) == (401, "/console")


async def test_a_ledger_that_is_away_is_said_so(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    await console.log_in()

    class Away:
        def acquire(self) -> None:
            raise OSError("gone")

    monkeypatch.setattr(console.gateway.rt, "pool", Away())
    async with console.session.get(f"{console.base}/console") as reply:
        text = await reply.text()
    assert reply.status == 503
    assert reply.headers["X-Console-Reason"] == "PostgreSQL does not answer"
    assert "SLUICEGATE_DATABASE_URL" in text


async def test_charts_are_drawn_from_what_processes_told(console: Console) -> None:
    await console.log_in()
    rt = console.gateway.rt
    start = rt.clock.now_at() // 5_000 * 5_000

    async def told(at: int, sent: int) -> None:
        report = {"figures": {"at": at, "sums": {"sent/otp": sent}, "now": {"age_s/otp": 2.0}}}
        await rt.pool.execute("UPDATE processes SET report = $1, heartbeat_at = $2", report, at)

    await told(start, 100)
    rows = await rt.pool.fetch("SELECT id, started_at, report->'figures' AS figures FROM processes")
    console.desk.history.take([], start)
    await told(start + 20_000, 300)
    await console.desk.look()
    assert rows
    async with console.session.get(f"{console.base}/console/series") as reply:
        drawn = await reply.json()
    assert set(drawn["classes"]) == {"otp", "transactional", "marketing", "non_priority"}
    assert drawn["budgets"]["otp"] == {"budget_s": 10.0, "door_share": 0.5}


async def test_an_address_that_guesses_keys_is_told_to_wait_and_nobody_else_is(console: Console) -> None:
    """The bucket of the /admin calls counts: 50 at once, 5 a second; operators elsewhere are not locked out."""
    found = [(await console.post("/console/login", {"key": f"sg_wrong_{n}"}))[0] for n in range(50)]
    assert set(found) == {401}
    status = 401
    for n in range(200):  # a slow machine gives some back meanwhile
        status, text = await console.post("/console/login", {"key": f"sg_more_{n}"})
        if status == 429:
            break
    assert status == 429 and "wait" in text
    assert console.desk.failures.too_many("127.0.0.1")
    assert not console.desk.failures.too_many("192.0.2.7")
