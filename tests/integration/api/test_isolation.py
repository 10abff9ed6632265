"""Two tenants on every call of the tenant port: the one never sees, changes or infers what is the other's.

The calls come from the application's own table, so that a new one fails here until it says how it keeps tenants apart.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from gateway.api.app import calls_of
from gateway.api.door import Door
from gateway.api.messages import Messages
from gateway.domain.ids import uuid7
from gateway.ledger import inbound
from gateway.ledger.inbound import Handed
from gateway.ledger.keys import MANAGE, READ, SEND
from tests.integration.api.conftest import Gateway, Reply, running

NUMBER, HANDSET, FREE, OTHERS = "+447700900123", "+447700900555", "+447700900999", "+447700900888"
APPLICATION, CLIENT_REF, TEXT = "acme-secret-app", "acme-secret-ref", "acme secret text"
UNKNOWN = uuid7(1_700_000_000_000, bytes(10)).hex


@dataclass(frozen=True)
class Mine:
    """What acme has: the words that no answer to another tenant may hold."""

    message: str
    later: str
    inbound: str
    imported: str
    cursor: str
    key: str

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.ids, APPLICATION, CLIENT_REF, TEXT, HANDSET, "acme")

    @property
    def ids(self) -> tuple[str, ...]:
        return self.message, self.later, self.inbound, self.imported


@dataclass(frozen=True)
class Probe:
    """One call as the other tenant makes it with what is acme's, and with what nobody has."""

    foreign: str
    unknown: str
    status: int
    body: Any = None


def probes(mine: Mine) -> dict[tuple[str, str], Probe]:
    """Every call: what the other tenant asks, and the status that it gets for both."""
    unknown_message = "msg_" + UNKNOWN
    found: dict[tuple[str, str], Probe] = {
        ("POST", "/v1/messages"): Probe("/v1/messages", "/v1/messages", 202, _message()),
        ("POST", "/v1/messages/batch"): Probe(
            "/v1/messages/batch", "/v1/messages/batch", 202, {"messages": [_message()]}
        ),
        ("GET", "/v1/messages"): Probe(
            f"/v1/messages?client_ref={CLIENT_REF}", "/v1/messages?client_ref=nobody-has-this", 200
        ),
        ("GET", "/v1/messages/{id}"): Probe(f"/v1/messages/{mine.message}", f"/v1/messages/{unknown_message}", 404),
        ("POST", "/v1/messages/{id}/cancel"): Probe(
            f"/v1/messages/{mine.later}/cancel", f"/v1/messages/{unknown_message}/cancel", 404
        ),
        ("GET", "/v1/messages/{id}/explain"): Probe(
            f"/v1/messages/{mine.message}/explain", f"/v1/messages/{unknown_message}/explain", 404
        ),
        ("GET", "/v1/capacity"): Probe("/v1/capacity", "/v1/capacity", 200),
        ("GET", "/v1/applications"): Probe("/v1/applications", "/v1/applications", 200),
        ("GET", "/v1/inbound"): Probe(f"/v1/inbound?from=%2B{HANDSET[1:]}", f"/v1/inbound?from=%2B{FREE[1:]}", 200),
        ("GET", "/v1/inbound/{id}"): Probe(
            f"/v1/inbound/{mine.inbound}", f"/v1/inbound/{mine.inbound.split('_')[0]}_{UNKNOWN}", 404
        ),
        ("GET", "/v1/imports/{id}"): Probe(
            f"/v1/imports/{mine.imported}", f"/v1/imports/{mine.imported.split('_')[0]}_{UNKNOWN}", 404
        ),
        ("GET", "/v1/usage"): Probe("/v1/usage?group_by=application", "/v1/usage?group_by=application", 200),
    }
    for action in ("pause", "resume", "cancel"):
        path = f"/v1/applications/{{name:path}}/{action}"
        found["POST", path] = Probe(
            f"/v1/applications/{APPLICATION}/{action}", f"/v1/applications/nobody-has-this/{action}", 404
        )
    for path in ("/v1/opt-outs", "/v1/opt-ins"):
        found["POST", f"{path}/import"] = Probe(f"{path}/import", f"{path}/import", 202, f"{OTHERS}\n")
        for method, status in (("GET", 404), ("DELETE", 204), ("PUT", 200)):
            found[method, f"{path}/{{number}}"] = Probe(f"{path}/{NUMBER}", f"{path}/{FREE}", status)
    return found


def _message() -> dict[str, Any]:
    return {"to": NUMBER, "text": "mine", "class": "transactional"}


@pytest.fixture
async def gateway(database_url: str, redis_url: str) -> AsyncIterator[Gateway]:
    async with running(database_url, redis_url) as made:
        for tenant in ("acme", "other"):
            await made.give_key(tenant, tenant, scopes=[SEND, READ, MANAGE])
        yield made


@pytest.fixture
async def mine(gateway: Gateway) -> Mine:
    key = uuid4().hex
    fields = {"to": NUMBER, "from": "ACME", "text": TEXT, "application": APPLICATION, "client_ref": CLIENT_REF}
    message = await gateway.send(fields, key=key)
    later = await gateway.send(fields)
    assert (message.status, later.status) == (202, 202)
    for path in ("/v1/opt-outs", "/v1/opt-ins"):
        assert (await gateway.call("PUT", f"{path}/{NUMBER}")).status == 200
    imported = await gateway.call("POST", "/v1/opt-outs/import", data=HANDSET, headers={"Content-Type": "text/csv"})
    assert imported.status == 202
    heard = uuid7(gateway.rt.clock.now_at(), os.urandom(10))
    async with gateway.rt.pool.acquire() as conn:
        acme = await conn.fetchval("SELECT id FROM tenants WHERE name = 'acme'")
        await inbound.insert(
            conn,
            gateway.rt.sealer,
            [Handed(heard, acme, "simulator", HANDSET, "60070", TEXT, gateway.rt.clock.now_at())],
        )
    listed = (await gateway.call("GET", "/v1/inbound")).json["data"]
    page = (await gateway.call("GET", "/v1/messages?limit=1")).json
    return Mine(message.json["id"], later.json["id"], listed[0]["id"], imported.json["id"], page["next_cursor"], key)


async def everything_of(gateway: Gateway, name: str) -> dict[str, list[str]]:
    """Every row that carries the tenant's id, by table."""
    pool = gateway.rt.pool
    owner = await pool.fetchval("SELECT id FROM tenants WHERE name = $1", name)
    tables = await pool.fetch(
        "SELECT c.table_name AS name FROM information_schema.columns c JOIN information_schema.tables t"
        " USING (table_schema, table_name)"
        " WHERE c.column_name = 'tenant_id' AND c.table_schema = 'public' AND t.table_type = 'BASE TABLE'"
    )
    assert {"messages", "idempotency", "opt_outs", "inbound"} <= {table["name"] for table in tables}
    kept = {}
    for table in tables:
        # When a key was last used moves with time alone.
        rows = await pool.fetch(
            f"SELECT to_jsonb(t) - 'last_used_at' AS row FROM {table['name']} t WHERE tenant_id = $1", owner
        )
        kept[table["name"]] = sorted(json.dumps(row["row"], sort_keys=True) for row in rows)
    return kept


def comparable(reply: Reply) -> tuple[Any, ...]:
    """What two answers must have in common to tell nothing."""
    told = {"x-request-id", "date", "ratelimit"}
    headers = {name: value for name, value in reply.headers.items() if name not in told}
    return reply.status, headers, reply.octets


def table_of(gateway: Gateway) -> list[tuple[str, str, str]]:
    door = Door(gateway.rt)
    return [
        (method, path, needed) for method, path, needed, _ in calls_of(gateway.rt, door, Messages(gateway.rt, door))
    ]


def options(probe: Probe, method: str) -> dict[str, Any]:
    if isinstance(probe.body, str):
        return {"data": probe.body, "headers": {"Content-Type": "text/csv"}}
    given: dict[str, Any] = {} if probe.body is None else {"json": probe.body}
    return given | ({"key": uuid4().hex} if method == "POST" else {})


async def test_every_call_keeps_tenants_apart(gateway: Gateway, mine: Mine) -> None:
    asked = probes(mine)
    assert {(method, path) for method, path, _ in table_of(gateway)} == set(asked), "say how the new call is asked"
    before = await everything_of(gateway, "acme")
    # PUT comes last: it makes an entry of the other tenant's own.
    for (method, path), probe in sorted(asked.items(), key=lambda item: item[0][0] == "PUT"):
        foreign = await gateway.call(method, probe.foreign, "other", **options(probe, method))
        unknown = await gateway.call(method, probe.unknown, "other", **options(probe, method))
        assert foreign.status == unknown.status == probe.status, (method, path, foreign.octets, unknown.octets)
        if probe.status in (200, 204, 404) and method != "PUT":
            if path == "/v1/capacity":  # it holds times
                assert foreign.json.keys() == unknown.json.keys()
            else:
                assert comparable(foreign) == comparable(unknown), (method, path)
        for word in mine.words:
            assert word not in foreign.octets.decode(), (method, path, word)
            assert word not in json.dumps(foreign.headers), (method, path, word)
    assert await everything_of(gateway, "acme") == before


async def test_keys_cursors_and_lists_of_others_mean_nothing(gateway: Gateway, mine: Mine) -> None:
    fields = {"to": NUMBER, "from": "ACME", "text": TEXT, "application": APPLICATION, "client_ref": CLIENT_REF}
    own = await gateway.send(fields | {"from": "OTHER"}, "other", key=mine.key)
    assert (own.status, own.headers.get("idempotent-replayed")) == (202, None)
    assert own.json["id"] not in mine.ids
    for cursor in (mine.cursor, mine.cursor[:-2], "garbage"):
        refused = await gateway.call("GET", f"/v1/messages?cursor={cursor}", "other")
        assert (refused.status, refused.pointers) == (422, ["/cursor"])
    for query in ("", f"?to=%2B{NUMBER[1:]}", f"?client_ref={CLIENT_REF}", "?status=queued"):
        listed = await gateway.call("GET", f"/v1/messages{query}", "other")
        assert [one["id"] for one in listed.json["data"]] == [own.json["id"]]
    # acme's stop list stops nobody else, and an application of the same name is the tenant's own.
    assert (await gateway.call("POST", f"/v1/applications/{APPLICATION}/pause", "other")).status == 200
    mine_now = (await gateway.call("GET", "/v1/applications")).json["data"]
    assert [one["paused"] for one in mine_now if one["name"] == APPLICATION] == [False]
    usage = (await gateway.call("GET", "/v1/usage?group_by=application", "other")).json
    assert sum(row["messages"] for row in usage["data"]) == 1


async def test_every_call_needs_its_scope(gateway: Gateway, mine: Mine) -> None:
    scopes = (SEND, READ, MANAGE)
    for scope in scopes:
        await gateway.give_key("acme", f"without-{scope}", scopes=[one for one in scopes if one != scope])
    await gateway.give_key(None, "operators")
    await gateway.give_key("acme", "elsewhere", scopes=scopes, cidrs=["203.0.113.0/24"])
    before = await everything_of(gateway, "acme")
    for method, path, needed in table_of(gateway):
        probe = probes(mine)[method, path]
        for key, status, code in (
            (f"without-{needed}", 403, "auth.scope"),
            ("operators", 403, "auth.scope"),
            ("elsewhere", 403, "auth.scope"),
            (None, 401, "auth.required"),
            ("sg_nothing", 401, "auth.required"),
        ):
            reply = await gateway.call(method, probe.foreign, key, **options(probe, method))
            assert (reply.status, reply.code) == (status, code), (method, path, key)
    assert await everything_of(gateway, "acme") == before
