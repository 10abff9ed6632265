"""What handsets wrote, who may be written to, and what was used, as tenants meet it (contract section 2)."""

from __future__ import annotations

import asyncio
import csv
import io
import itertools
import os
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from gateway.api import front
from gateway.api.opt_lists import OPEN_MAX
from gateway.api.usage import _wants_csv
from gateway.domain.ids import day_of, uuid7
from gateway.inbound import lists
from gateway.inbound.importer import Importer
from gateway.ledger import consents, inbound, retention
from gateway.ledger.inbound import Handed
from tests.integration.api.conftest import POLICY, Gateway, running

NUMBER = "+447700900123"
OWNED = POLICY.replace(
    "  other:\n",
    '  listed:\n    classes: [marketing, transactional]\n    inbound_numbers: ["+447700900777", "60070"]\n  other:\n',
)


@pytest.fixture
async def gateway(database_url: str, redis_url: str) -> AsyncIterator[Gateway]:
    async with running(database_url, redis_url, OWNED) as made:
        for tenant in ("acme", "other", "listed"):
            await made.give_key(tenant, tenant, scopes=["send", "read", "manage"])
        yield made


async def tenant_id(gateway: Gateway, name: str) -> int:
    return int(await gateway.rt.pool.fetchval("SELECT id FROM tenants WHERE name = $1", name))


async def send(gateway: Gateway, tenant: str = "listed", **fields: Any) -> Any:
    return await gateway.send({"to": NUMBER, "from": "60070", "text": "offer", "class": "marketing"} | fields, tenant)


async def test_an_entry_is_put_read_and_deleted(gateway: Gateway) -> None:
    path = f"/v1/opt-outs/{NUMBER}"
    assert (await gateway.call("GET", path)).status == 404
    put = await gateway.call("PUT", path)
    assert (put.status, put.json["number"], put.json["sender"], put.json["source"]) == (200, NUMBER, None, "api")
    assert (await gateway.call("PUT", path)).json == put.json  # the date stands
    assert (await gateway.call("GET", path.replace("+", "%2B"))).json == put.json
    assert (await gateway.call("GET", path, "other")).status == 404
    assert (await gateway.call("DELETE", path, "other")).status == 204
    assert (await gateway.call("GET", path)).status == 200
    gone = await gateway.call("DELETE", path)
    assert (gone.status, gone.octets) == (204, b"")
    assert (await gateway.call("GET", path)).status == 404
    assert (await gateway.call("DELETE", path)).status == 204


async def test_entries_for_one_sender(gateway: Gateway) -> None:
    path = f"/v1/opt-outs/{NUMBER}"
    await gateway.call("PUT", path + "?sender=447700900777", "listed")
    both = (await gateway.call("PUT", path + "?sender=60070", "listed")).json
    assert [entry["sender"] for entry in both["entries"]] == ["+447700900777", "60070"]
    assert (await gateway.call("GET", path + "?sender=60070", "listed")).json["sender"] == "60070"
    assert (await gateway.call("GET", path + "?sender=ACME", "listed")).status == 404
    await gateway.call("DELETE", path + "?sender=60070", "listed")
    left = (await gateway.call("GET", path, "listed")).json
    assert [entry["sender"] for entry in left["entries"]] == ["+447700900777"]


async def test_a_number_that_is_none_is_told(gateway: Gateway) -> None:
    written_so = ["12", "+4477009001ab", "00447700900123", "+44%00", "+1"]
    for written, method in itertools.product(written_so, ("GET", "PUT", "DELETE")):
        refused = await gateway.call(method, f"/v1/opt-ins/{written}")
        assert (refused.status, refused.pointers) == (422, ["/number"])


async def test_wrong_parameters_bodies_and_scopes(gateway: Gateway) -> None:
    path = f"/v1/opt-outs/{NUMBER}"
    assert (await gateway.call("PUT", path + "?sendr=60070")).pointers == ["/sendr"]
    assert (await gateway.call("PUT", path + "?sender=%21")).pointers == ["/sender"]
    assert (await gateway.call("PUT", path, data=b'{"reason": "asked"}')).status == 422
    assert (await gateway.call("PUT", path, data=b"{")).status == 400
    assert (await gateway.call("PUT", path, data=b"{}")).status == 200
    await gateway.give_key("acme", "reader", scopes=["read"])
    await gateway.give_key("acme", "sender", scopes=["send"])
    assert (await gateway.call("GET", path, "reader")).status == 200
    for method, place in (("PUT", path), ("DELETE", path), ("POST", "/v1/opt-outs/import")):
        assert (await gateway.call(method, place, "reader")).status == 403
    for place in (path, "/v1/inbound", "/v1/usage"):
        assert (await gateway.call("GET", place, "sender")).status == 403
    assert (await gateway.call("GET", path, None)).status == 401


async def test_the_stop_list_is_heeded_at_the_door(gateway: Gateway) -> None:
    assert (await send(gateway)).status == 202
    await gateway.call("PUT", f"/v1/opt-outs/{NUMBER}?sender=60070", "listed")
    refused = await send(gateway)
    assert (refused.status, refused.code, refused.json["class"]) == (422, "policy.opted_out", "marketing")
    assert (await send(gateway, **{"from": "ACME"})).code == "policy.opted_out"
    assert (await send(gateway, **{"from": "+447700900777"})).status == 202
    assert (await send(gateway, **{"class": "transactional"})).status == 202
    assert (await send(gateway, to="+447700900124")).status == 202
    assert (await send(gateway, "acme")).status == 202  # another tenant's list is nobody else's business
    rehearsed = await gateway.call("POST", "/v1/messages?dry_run=true", "listed", json={
        "to": NUMBER, "from": "60070", "text": "offer", "class": "marketing",
    })  # fmt: skip
    assert (rehearsed.status, rehearsed.code) == (422, "policy.opted_out")
    await gateway.call("DELETE", f"/v1/opt-outs/{NUMBER}", "listed")
    assert (await send(gateway)).status == 202


async def test_a_refusal_by_the_list_is_not_kept_under_the_key(gateway: Gateway) -> None:
    await gateway.call("PUT", f"/v1/opt-outs/{NUMBER}", "listed")
    body = {"to": NUMBER, "from": "60070", "text": "offer", "class": "marketing"}
    assert (await gateway.send(body, "listed", key="k")).status == 422
    await gateway.call("DELETE", f"/v1/opt-outs/{NUMBER}", "listed")
    assert (await gateway.send(body, "listed", key="k")).status == 202


async def test_a_batch_tells_each_item_and_counts_only_what_it_took(gateway: Gateway) -> None:
    await gateway.call("PUT", f"/v1/opt-outs/{NUMBER}", "listed")
    items = [{"to": f"+44770090{n:04d}"} for n in range(60)] + [{"to": NUMBER}]
    body = {"defaults": {"from": "60070", "text": "offer", "class": "marketing"}, "messages": items}
    reply = await gateway.call("POST", "/v1/messages/batch", "listed", key=uuid4().hex, json=body)
    results = reply.json["results"]
    assert reply.status == 202 and [one["status"] for one in results] == [202] * 60 + [422]
    assert results[-1]["problem"]["code"] == "policy.opted_out"


async def test_opt_in_wants_consent(database_url: str, redis_url: str) -> None:
    asking = OWNED.replace("when_full: defer, unconfirmed: fail, max_attempts: 5}", "when_full: defer, unconfirmed: fail, max_attempts: 5, consent: opt_in}")  # fmt: skip  # noqa: E501
    async with running(database_url, redis_url, asking) as gateway:
        await gateway.give_key("listed", "listed", scopes=["send", "read", "manage"])
        assert (await send(gateway)).code == "policy.no_consent"
        await gateway.call("PUT", f"/v1/opt-ins/{NUMBER}", "listed")
        assert (await send(gateway)).status == 202
        await gateway.call("PUT", f"/v1/opt-outs/{NUMBER}", "listed")
        assert (await send(gateway)).code == "policy.opted_out"


async def test_without_the_lists_nothing_is_taken(gateway: Gateway) -> None:
    await gateway.rt.pool.execute("ALTER TABLE opt_outs RENAME TO away")
    assert (await send(gateway)).code == "capacity.storage"
    assert (await send(gateway, **{"class": "transactional"})).status == 202


async def test_a_short_list_is_done_with_the_answer(gateway: Gateway) -> None:
    lines = ["number;sender", "+44 7700 900001;", "+447700900002;60070", "", "nonsense;", "+447700900001;"]
    body = "\r\n".join([*lines, "+447700900003;!!", ""])
    reply = await gateway.call("POST", "/v1/opt-outs/import", "listed", data=body.encode("utf-8-sig"))
    made = reply.json
    assert (reply.status, made["status"], made["rows"], made["added"], made["faulty"]) == (202, "done", 5, 2, 2)
    assert made["faults"] == [
        {"line": 5, "message": "number: must be in E.164 form"},
        {
            "line": 7,
            "message": "sender: must be a number, a short code or a name",
        },
    ]
    assert (await gateway.call("GET", reply.headers["location"], "listed")).json == made
    assert (await gateway.call("GET", reply.headers["location"], "acme")).status == 404
    assert (await gateway.call("GET", "/v1/opt-outs/+447700900002", "listed")).json["sender"] == "60070"
    assert (await gateway.call("GET", "/v1/opt-ins/+447700900002", "listed")).status == 404
    assert await gateway.rt.pool.fetchval("SELECT source FROM list_imports") is None


async def test_a_long_list_goes_on_in_the_background_and_survives_a_stop(gateway: Gateway) -> None:
    rows = [f"+4477{n:08d}" for n in range(5_000)]
    reply = await gateway.call("POST", "/v1/opt-ins/import", data="\n".join(rows).encode())
    assert (reply.status, reply.json["status"], reply.json["rows_done"]) == (202, "running", 0)
    progress: list[int] = []
    policy = gateway.rt.policies.current
    async with gateway.rt.pool.acquire() as conn:
        while await Importer(gateway.rt).work(conn, policy):  # a new one each time: nothing is remembered
            progress.append((await gateway.call("GET", reply.headers["location"])).json["rows_done"])
    assert progress == [2_000, 4_000, 5_000]
    done = (await gateway.call("GET", reply.headers["location"])).json
    assert (done["status"], done["added"]) == ("done", 5_000) and done["finished_at"] is not None
    assert await gateway.count("opt_ins") == 5_000


@pytest.mark.timing
async def test_a_list_that_costs_more_than_its_octets_is_refused_at_once(gateway: Gateway) -> None:
    beginning = asyncio.get_running_loop().time()
    for body in (b"a\n" * 2_000_000, b"\n" * 4_000_000, b"\r" * 4_000_000, b"," * 4_000_000, b"a\r\n" * 200_001):
        reply = await gateway.call("POST", "/v1/opt-outs/import", data=io.BytesIO(body))
        assert (reply.status, reply.code) == (400, "request.malformed"), body[:4]
    assert asyncio.get_running_loop().time() - beginning < 30
    assert await gateway.count("list_imports") == 0


async def test_a_long_list_holds_nobody_up(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server runs in this very thread: not one row of the list may be read in it."""
    body = b"".join(b"+4477%08d,60070\n" % n for n in range(150_000))
    readers: list[threading.Thread] = []
    honest = lists.rows_of

    def rows_of(source: bytes) -> Iterator[list[str]]:
        for row in honest(source):
            readers.append(threading.current_thread())
            yield row

    monkeypatch.setattr(lists, "rows_of", rows_of)
    reply = await gateway.call("POST", "/v1/opt-outs/import", data=io.BytesIO(body))
    assert (reply.status, reply.json["rows"]) == (202, 150_000)
    assert len(readers) == 150_000 and threading.current_thread() not in readers


async def test_a_tenant_has_a_few_lists_in_work(gateway: Gateway) -> None:
    body = b"".join(b"+4477%08d\n" % n for n in range(2_001))
    taken = [await gateway.call("POST", "/v1/opt-outs/import", data=body) for _ in range(OPEN_MAX + 1)]
    assert [reply.status for reply in taken] == [202] * OPEN_MAX + [429]
    assert taken[-1].code == "quota.imports" and int(taken[-1].headers["retry-after"]) >= 1
    assert (await gateway.call("POST", "/v1/opt-ins/import", "other", data=body)).status == 202
    async with gateway.rt.pool.acquire() as conn:
        await Importer(gateway.rt).work(conn, gateway.rt.policies.current)
        await Importer(gateway.rt).work(conn, gateway.rt.policies.current)
    assert (await gateway.call("POST", "/v1/opt-outs/import", data=body)).status == 202


async def test_a_short_list_passes_a_long_one_that_came_first(gateway: Gateway) -> None:
    long, short = (b"".join(b"+4477%08d\n" % n for n in range(rows)) for rows in (60_000, 2_001))
    await gateway.call("POST", "/v1/opt-outs/import", data=long)
    mine = (await gateway.call("POST", "/v1/opt-outs/import", "other", data=short)).headers["location"]
    async with gateway.rt.pool.acquire() as conn:
        for _ in range(2):
            await Importer(gateway.rt).work(conn, gateway.rt.policies.current)
    assert (await gateway.call("GET", mine, "other")).json["status"] == "done"


async def test_lists_that_are_none(gateway: Gateway) -> None:
    for body, status in (
        (b"", 422),
        (b"number\n", 422),
        (b"\xff\xfe", 400),
        (b"+447700900001\0", 400),
        (b"x" * 10, 202),
    ):
        assert (await gateway.call("POST", "/v1/opt-outs/import", data=body)).status == status, body


async def test_a_list_has_a_size(gateway: Gateway) -> None:
    assert (
        await gateway.call("POST", "/v1/opt-outs/import", data=io.BytesIO(b"\n" * (front.BODY_MAX + 1)))
    ).status == 422
    over = await gateway.call("POST", "/v1/opt-outs/import", data=io.BytesIO(b"\n" * (front.LIST_BODY_MAX + 1)))
    assert (over.status, over.code) == (413, "request.too_large")


async def hand_over(gateway: Gateway, tenant: str | None, *texts: str, **values: Any) -> list[Any]:
    base = gateway.rt.clock.now_at()
    made = [
        Handed(
            uuid7(base + n, os.urandom(10)),
            None if tenant is None else await tenant_id(gateway, tenant),
            "simulator",
            **({"sender": NUMBER, "recipient": "60070", "text": text, "received_at": base + n} | values),
        )
        for n, text in enumerate(texts)
    ]
    async with gateway.rt.pool.acquire() as conn:
        await inbound.insert(conn, gateway.rt.sealer, made)
    return made


async def test_inbound_is_listed_newest_first_by_cursor(gateway: Gateway) -> None:
    await hand_over(gateway, "listed", *[f"text {n} €" for n in range(5)])
    await hand_over(gateway, "acme", "not yours")
    await hand_over(gateway, None, "nobody's")
    first = (await gateway.call("GET", "/v1/inbound?limit=3", "listed")).json
    assert [one["text"] for one in first["data"]] == ["text 4 €", "text 3 €", "text 2 €"]
    assert set(first["data"][0]) >= {"id", "from", "to", "text", "received_at", "parts"}
    rest = (await gateway.call("GET", f"/v1/inbound?limit=3&cursor={first['next_cursor']}", "listed")).json
    assert [one["text"] for one in rest["data"]] == ["text 1 €", "text 0 €"] and rest["next_cursor"] is None
    stolen = await gateway.call("GET", f"/v1/inbound?cursor={first['next_cursor']}", "acme")
    assert (stolen.status, stolen.pointers) == (422, ["/cursor"])
    entry = first["data"][0]
    assert (await gateway.call("GET", f"/v1/inbound/{entry['id']}", "listed")).json == entry
    assert (await gateway.call("GET", f"/v1/inbound/{entry['id']}", "acme")).status == 404
    assert (await gateway.call("GET", "/v1/inbound/in_nothing", "listed")).status == 404


async def test_inbound_filters(gateway: Gateway) -> None:
    await hand_over(gateway, "listed", "old", received_at=1_000)
    await hand_over(gateway, "listed", "new", recipient="+447700900777", sender="VODAFONE")

    async def found(query: str) -> list[str]:
        return [one["text"] for one in (await gateway.call("GET", f"/v1/inbound?{query}", "listed")).json["data"]]

    assert await found("from=%2B447700900123") == ["old"]
    assert await found("from=+447700900123") == ["old"]
    assert await found("from=VODAFONE") == ["new"]
    assert await found("to=447700900777") == ["new"] and await found("to=60070") == ["old"]
    assert await found("received_before=2020-01-01T00:00:00Z") == ["old"]
    assert await found("received_after=2020-01-01T00:00:00Z") == ["new"]
    assert await found("to=60071") == []
    bad = await gateway.call("GET", "/v1/inbound?limit=0&received_after=now&x=1", "listed")
    assert sorted(bad.pointers) == ["/limit", "/received_after", "/x"]


async def test_usage_is_exact_while_messages_are_written(gateway: Gateway) -> None:
    """Every answer equals the ledger at one moment: accepted segments never shrink and the sum is the rows' own."""
    seen: list[int] = []
    stop = asyncio.Event()

    async def look() -> None:
        while not stop.is_set():
            reply = await gateway.call("GET", "/v1/usage?group_by=class,route")
            seen.append(sum(one["segments"] for one in reply.json["data"]))

    looking = asyncio.create_task(look())
    sends = [
        gateway.send({"to": NUMBER, "from": "ACME", "text": "x" * (200 if n % 3 else 20), "class": "transactional"})
        for n in range(60)
    ]
    assert {reply.status for reply in await asyncio.gather(*sends)} == {202}
    stop.set()
    await looking
    assert seen == sorted(seen)
    (entry,) = (await gateway.call("GET", "/v1/usage?group_by=class,route")).json["data"]
    row = await gateway.rt.pool.fetchrow("SELECT count(*) AS n, sum(segments) AS s FROM messages")
    assert (entry["messages"], entry["segments"], entry["segments_by_status"]["queued"]) == (
        row["n"],
        row["s"],
        row["s"],
    )
    assert sum(entry["segments_by_status"].values()) == entry["segments"] == 100


async def put_message(gateway: Gateway, tenant: str, at: datetime, **values: Any) -> None:
    made_at = int(at.timestamp() * 1000)
    message_id = uuid7(made_at, os.urandom(10))
    row = {
        "day": day_of(message_id), "id": message_id, "tenant_id": await tenant_id(gateway, tenant), "class": "otp",
        "status": "delivered", "recipient": NUMBER, "sender": "ACME", "encoding": "gsm7", "segments": 1,
        "route": "everywhere", "provider": "simulator", "created_at": made_at, "submit_by": made_at,
        "expires_at": made_at, "predicted_wait_ms": 0, "policy_version": 1, "final_at": made_at,
    } | values  # fmt: skip
    names, marks = ", ".join(row), ", ".join(f"${n}" for n in range(1, len(row) + 1))
    await gateway.rt.pool.execute(f"INSERT INTO messages ({names}) VALUES ({marks})", *row.values())


async def test_usage_by_day_application_class_route_and_csv(gateway: Gateway) -> None:
    today = datetime.now(UTC)
    await put_message(gateway, "acme", today, application="=cmd|x", segments=3)
    await put_message(gateway, "acme", today, status="expired", segments=2)
    await put_message(gateway, "acme", today - timedelta(1), status="undelivered", **{"class": "marketing"})
    await put_message(gateway, "other", today, segments=50)
    reply = await gateway.call("GET", "/v1/usage?group_by=day,application,class,route")
    day, before = today.date().isoformat(), (today - timedelta(1)).date().isoformat()
    found = {(one["day"], one["application"], one["class"]): one["segments"] for one in reply.json["data"]}
    assert found == {(day, "=cmd|x", "otp"): 3, (day, None, "otp"): 2, (before, None, "marketing"): 1}
    assert reply.json["group_by"] == ["day", "application", "class", "route"]
    as_csv = await gateway.call("GET", "/v1/usage?group_by=application", headers={"Accept": "text/csv"})
    assert as_csv.headers["content-type"].startswith("text/csv")
    table = list(csv.DictReader(io.StringIO(as_csv.octets.decode())))
    assert [(row["application"], row["segments"], row["delivered"], row["expired"]) for row in table] == [
        ("'=cmd|x", "3", "3", "0"),
        ("", "3", "0", "2"),
    ]
    only = (await gateway.call("GET", f"/v1/usage?from={before}&to={before}T23:59:59Z")).json
    assert [(one["day"], one["segments_by_status"]["undelivered"]) for one in only["data"]] == [(before, 1)]


async def test_usage_survives_the_drop_of_a_day(gateway: Gateway) -> None:
    yesterday = datetime.now(UTC) - timedelta(1)
    await put_message(gateway, "acme", yesterday, segments=4)
    query = "/v1/usage?group_by=day,class"
    before = (await gateway.call("GET", query)).json
    async with gateway.rt.pool.acquire() as conn:
        async with conn.transaction():
            assert (await retention.let_go(conn, yesterday.date())).waits_for is None
        assert (await gateway.call("GET", query)).json == before
        async with conn.transaction():
            assert await retention.bury(conn, yesterday.date())
    assert (await gateway.call("GET", query)).json == before
    assert before["data"][0]["segments"] == 4


async def test_usage_says_what_it_cannot_read(gateway: Gateway) -> None:
    for query, pointer in (
        ("group_by=tenant", "/group_by"),
        ("group_by=day,day", "/group_by"),
        ("from=yesterday", "/from"),
        ("to=2026-13-01", "/to"),
        ("from=2026-01-01&to=2026-06-01", "/from"),
        ("from=2026-02-02&to=2026-02-01", "/from"),
        ("days=3", "/days"),
    ):
        assert (await gateway.call("GET", f"/v1/usage?{query}")).pointers == [pointer], query


async def test_lists_of_many_entries_are_added_once(gateway: Gateway) -> None:
    number = await tenant_id(gateway, "acme")
    async with gateway.rt.pool.acquire() as one, gateway.rt.pool.acquire() as two:
        entries = [(f"+4477{n:08d}", "") for n in range(500)]
        added = await asyncio.gather(
            consents.add(one, "opt_outs", number, entries, ("import", 1)),
            consents.add(two, "opt_outs", number, list(reversed(entries)), ("import", 2)),
        )
    assert sum(added) == 500


async def test_usage_on_days_at_the_ends_of_time_and_in_other_forms(gateway: Gateway) -> None:
    for query in ("to=0001-01-01", "from=0001-01-01&to=0001-01-01", "to=9999-12-31", "to=1970-01-01T00:00:00Z"):
        assert (await gateway.call("GET", f"/v1/usage?{query}")).status == 200, query
    for text in ("2026-W01-1", "%D9%A2026-1-01", "2026-1-001", "0000-01-01", "0001-01-01T00:00:00%2B14:00", "%00"):
        reply = await gateway.call("GET", f"/v1/usage?to={text}")
        assert (reply.status, reply.pointers) == (422, ["/to"]), text


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("text/csv", "text/csv"),
        ("text/csv;q=0", "application/json"),
        ("text/csv; q=0.1, application/json", "application/json"),
        ("application/json;q=0.1,text/csv", "text/csv"),
        ("*/*", "application/json"),
        ("image/png", "application/json"),
        ("text/csv;q=nan", "application/json"),
    ],
)
def test_csv_is_given_where_it_is_wanted_more(accept: str, kind: str) -> None:
    assert _wants_csv(accept) is (kind == "text/csv")


async def test_a_fault_of_ours_is_a_problem_too(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_arguments: Any, **_named: Any) -> None:
        raise KeyError("kanarienvogel")

    for place, path in (
        ("gateway.ledger.usage.count", "/v1/usage"),
        ("gateway.ledger.inbound.find_page", "/v1/inbound"),
        ("gateway.ledger.consents.find", f"/v1/opt-outs/{NUMBER}"),
        ("gateway.ledger.applications.counts", "/v1/applications"),
        ("gateway.ledger.queries.find_page", "/v1/messages"),
    ):
        monkeypatch.setattr(place, broken)
        reply = await gateway.call("GET", path)
        assert (reply.status, reply.headers["content-type"]) == (500, "application/problem+json"), path
        assert reply.code == "internal" and reply.headers["x-request-id"]
        assert b"kanarienvogel" not in reply.octets
