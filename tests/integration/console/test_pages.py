"""What the pages find and change: messages, their text, the policy, tenants, the audit."""

from __future__ import annotations

import html
import re

import pytest

from gateway.ledger.retention import hashed
from gateway.policy import versions
from tests.integration.api.conftest import POLICY
from tests.integration.console.conftest import Console

NUMBER = "+447700900123"
SECRET_TEXT = "Your code is 271828"


async def sent(console: Console, **fields: str) -> str:
    body = {"to": NUMBER, "from": "ACME", "text": SECRET_TEXT, "client_ref": "order-4711"} | fields
    reply = await console.gateway.send(body)
    assert reply.status == 202, reply.octets
    return str(reply.json["id"])


async def test_a_message_is_found_by_id_number_and_reference(console: Console) -> None:
    message_id = await sent(console)
    await console.log_in()
    _, by_id = await console.get(f"/console/messages?q={message_id}")
    assert message_id in by_id
    assert "Its life" in by_id
    for asked in ("%2B447700900123", "+44 7700 900-123".replace("+", "%2B").replace(" ", "%20"), "order-4711"):
        status, text = await console.get(f"/console/messages?q={asked}")
        assert (status, f'href="/console/messages/{message_id}"' in text) == (200, True), asked
    rt = console.gateway.rt
    await rt.pool.execute("UPDATE messages SET recipient = $1", hashed(rt.pepper, NUMBER))
    _, text = await console.get("/console/messages?q=%2B447700900123")
    assert message_id in text, "retention has hashed the number"
    assert NUMBER not in text.replace('value="+447700900123"', "").replace(f"<code>{NUMBER}</code>", "")
    searched = [row["detail"] for row in await rt.pool.fetch("SELECT * FROM audit WHERE action = 'number.searched'")]
    assert len(searched) == 3
    assert all(NUMBER[1:] not in str(detail) for detail in searched)


@pytest.mark.parametrize(
    "asked", ["nothing", "%2B447700900199", "msg_" + "0" * 32, "%00", "+", "'; DROP TABLE messages", "x" * 500]
)
async def test_what_is_not_found_is_said_so(console: Console, asked: str) -> None:
    await console.log_in()
    status, text = await console.get(f"/console/messages?q={asked}")
    assert status in (200, 404, 422), text
    assert "Something broke" not in text


async def test_a_text_is_shown_only_on_a_click_that_the_audit_keeps(console: Console) -> None:
    message_id = await sent(console)
    await console.log_in()
    page = f"/console/messages/{message_id}"
    _, text = await console.get(page)
    assert SECRET_TEXT not in text
    assert (await console.get(f"{page}/text"))[0] == 405
    status, text = await console.post(f"{page}/text")
    assert (status, SECRET_TEXT in text) == (200, True)
    row = await console.gateway.rt.pool.fetchrow("SELECT * FROM audit WHERE action = 'message.text_read'")
    assert (row["actor"], row["detail"]) == ("console, link of the tests", {"message": message_id})
    await console.gateway.rt.pool.execute("UPDATE messages SET body = NULL")
    status, text = await console.post(f"{page}/text")
    assert (status, "wiped" in text) == (200, True)


async def test_a_policy_is_checked_compared_applied_and_rolled_back(console: Console) -> None:
    await console.log_in()
    _, text = await console.get("/console/policy/edit")
    assert "password: demo" not in text
    shown = html.unescape(text.split("<textarea", 1)[1].partition(">\n")[2].partition("</textarea>")[0])
    fields = dict(re.findall(r'name="(base|checked)" value="([0-9a-f]+)"', text))
    assert fields["base"] == "1"
    changed = POLICY.replace("rate_per_s: 1000, burst: 1000", "rate_per_s: 900, burst: 1000")
    edited = shown.replace("rate_per_s: 1000, burst: 1000", "rate_per_s: 900, burst: 1000")
    status, text = await console.post("/console/policy/check", {"source": "classes: {otp: {wait_budget: never}}\nx: 1"})
    assert (status, "cannot be used" in text, "data-line" in text) == (422, True, True)
    status, text = await console.post("/console/policy/check", {"source": edited.replace("\n", "\r\n")})
    assert (status, "changes from 1000/s" in text) == (200, True)
    fields = dict(re.findall(r'name="(base|checked)" value="([0-9a-f]+)"', text))
    assert (await console.post("/console/policy/apply", {**fields, "source": POLICY + "# other\n"}))[0] == 409
    assert (await console.post("/console/policy/apply", {**fields, "base": "7", "source": edited}))[0] == 409
    assert await console.gateway.rt.pool.fetchval("SELECT version FROM policy_active") == 1
    form = {**fields, "source": edited.replace("\n", "\r\n"), "note": "less for the simulator"}
    status, text = await console.post("/console/policy/apply", form)
    assert (status, "Policy version 2 is in force" in text) == (200, True), text
    async with console.gateway.rt.pool.acquire() as conn:
        assert await versions.active(conn) == (2, changed)
    _, text = await console.get("/console/policy/versions/1")
    assert "changes from 900/s" in text
    assert "password: demo" not in text
    assert "password: hidden:1.1" in text
    status, text = await console.post("/console/policy/rollback/1")
    assert (status, "Policy version 3 is in force" in text) == (200, True)
    assert (await console.post("/console/policy/rollback/77"))[0] == 404
    _, text = await console.get("/console/policy")
    assert "less for the simulator" in text
    assert "rollback to 1" in text


async def test_tenants_show_their_use_and_the_audit_who_did_what(console: Console) -> None:
    await sent(console, application="spring-sale")
    refused = await console.gateway.send({"to": NUMBER, "from": "ACME", "text": "x", "class": "nothing"})
    assert refused.status == 422
    told = console.gateway.rt.tenants_told()
    assert told["acme"]["messages"] == 1
    assert sum(told["acme"]["refused"].values()) == 1
    await console.log_in()
    for path in ("/console/tenants", "/console/tenants?name=acme", "/console/tenants?name=nobody"):
        assert (await console.get(path))[0] == 200
    _, text = await console.get("/console/tenants?name=acme")
    assert "spring-sale" in text
    status, text = await console.post("/console/tenants/acme/applications/spring-sale/pause")
    assert (status, "Application spring-sale of acme is paused" in text) == (200, True)
    assert (await console.post("/console/tenants/acme/applications/no/pause"))[0] == 404
    _, text = await console.get("/console/audit?action=application.")
    assert "application.pause" in text
    assert "console.login" not in text
    _, text = await console.get("/console/audit?actor=nobody")
    assert "Nothing like this" in text
    assert (await console.get("/console/audit?before=99999999999999999999999"))[0] == 200
