"""Every metric of the contract moves when it should and agrees with the ledger, over one incident on a real gateway."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest

from tests.integration.incident.scene import Page, Scene, open_scene

BRITAIN, FRANCE = "+447700900{:03d}", "+336399800{:02d}"


def a_calm_hour(scene: Scene) -> None:
    """Long ones, a batch, a repeat, faults of the caller, texts of handsets, receipts, callbacks."""
    for number in range(6):
        scene.send(BRITAIN.format(number), **{"class": "otp"} if number % 2 else {})
    scene.send(BRITAIN.format(6), "x" * 400)
    scene.send(FRANCE.format(1))
    scene.post(
        {"messages": [{"to": BRITAIN.format(number), "text": "b"} for number in (7, 8)]}, "b1", "/v1/messages/batch"
    )
    scene.post({"to": BRITAIN.format(0), "text": "hello"}, "key-1")
    scene.post({"to": BRITAIN.format(0), "text": "hello", "from": "NOBODYKNOWSME"}, "bad")
    scene.post({"to": "+999", "text": "hello"}, "nowhere")
    assert scene.answers[202, ""] == 10 and scene.answers[422, "request.invalid"] == 2, scene.answers
    scene.north.order(do="inbound", source="447700900777", destination="60070", text="hi")
    scene.until(lambda: scene.number("SELECT count(*) FROM messages WHERE status = 'delivered'") == 10)
    scene.until(lambda: scene.page().total("inbound_total") == 1)
    # Nine finals of ten are in the class of `final`, and the inbound text.
    scene.until(lambda: scene.sink.taken == 11)
    page = scene.page()
    assert page.largest("policy_version") == 1 and page.total("policy_reloads_total", result="applied") == 1
    assert page.largest("partitions_ahead_days") == 7
    assert abs(page.largest("clock_offset_seconds")) < 0.5 and page.values("clock_offset_seconds", role="egress")
    assert page.total("admission_seconds_count") > 0 and page.total("claim_seconds_count") > 0
    assert page.total("submit_response_seconds_count", provider="north") >= 11
    assert {value for value in page.values("ledger_answers")} == {1.0}


def what_waits_is_counted_as_the_ledger_has_it(scene: Scene) -> None:
    """An application is paused: what it sends stands still in the queue, and every gauge of it can be compared."""
    assert scene.call("POST", "/v1/applications/spring/pause")[0] == 200
    for number in range(5):
        scene.send(BRITAIN.format(20 + number), application="spring")
    expected = {
        "queue_depth": {("transactional", "north"): 5},
        "route_queue_depth": {("britain",): 5},
        "tenant_queue_depth": {("bird",): 5},
        "application_queue_depth": {("bird", "spring"): 5},
        "destination_queue_depth": {("britain",): 5},
    }
    labels = {
        "queue_depth": ("class", "provider"),
        "route_queue_depth": ("route",),
        "tenant_queue_depth": ("tenant",),
        "application_queue_depth": ("tenant", "application"),
        "destination_queue_depth": ("destination",),
    }
    assert scene.number("SELECT count(*) FROM messages WHERE status = 'queued'") == 5
    scene.until(lambda: scene.same({name: scene.page().by(name, *labels[name]) for name in labels}, expected))
    scene.until(lambda: scene.page().largest("messages_oldest_seconds", status="queued") > 1)
    page = scene.page()
    oldest_s = scene.number(
        "SELECT extract(epoch FROM now())::bigint - min(created_at) / 1000 FROM messages WHERE status = 'queued'"
    )
    assert 0 < page.largest("messages_oldest_seconds", status="queued") <= oldest_s + 5
    assert page.largest("queue_age_seconds", quantile="1", **{"class": "transactional", "provider": "north"}) > 0
    scene.send(BRITAIN.format(30), application="spring", ttl=1)
    ended = {("transactional", "ttl", "queued"): 1}
    scene.until(lambda: scene.same(scene.page().by("expired_total", "class", "cause", "stage"), ended))
    # A message that was accepted and is then stopped: the last check before the submit sees the stop list.
    scene.send(BRITAIN.format(31), application="spring", **{"class": "marketing"})
    assert scene.call("PUT", "/v1/opt-outs/%2B447700900031")[0] == 200
    assert scene.call("POST", "/v1/applications/spring/resume")[0] == 200
    scene.until(scene.settled)
    assert scene.page().total("suppressed_total") == 1


def a_class_whose_door_closes(scene: Scene) -> None:
    """South takes two a second: the door promises, defers and refuses; what it promised too much expires."""
    while not scene.answers[503, "capacity.class_budget_exceeded"]:
        scene.send(FRANCE.format(2), **{"class": "non_priority"})
    scene.until(lambda: scene.page().largest("predicted_wait_seconds", route="france") > 0)
    deferred = ""
    while deferred != "scheduled":
        deferred = scene.send(FRANCE.format(3), **{"class": "marketing"})["status"]
        assert scene.sent < 400, "hundreds wait at two a second, and nothing is deferred"
    scene.until(lambda: scene.page().total("limit_wait_seconds_count", scope="session") > 0)
    scene.gateway.command("session", "pause", "s1")
    scene.until(lambda: scene.page().largest("oldest_unserved_flow_seconds", **{"class": "non_priority"}) > 0)
    scene.until(lambda: scene.page().total("expired_total", cause="wait_budget") > 0)
    scene.gateway.command("session", "resume", "s1")
    page = scene.page()
    assert page.total("admissions_total", verdict="defer") > 0
    assert (
        page.total("admissions_total", reason="capacity.class_budget_exceeded")
        == scene.answers[503, "capacity.class_budget_exceeded"]
    )


def a_carrier_in_trouble(scene: Scene) -> None:
    """Throttling, temporary and final refusals, silence, a cut, receipts that nobody knows."""
    rules = [
        {"destination": "*900101", "status": 0x14, "times": 1},
        {"destination": "*900102", "status": 0x0B},
        {"destination": "*900103", "silent": True, "times": 1},
        {"destination": "*900104", "receipt": "UNDELIV"},
    ]
    scene.north.order(set={"rules": rules})
    for number in (101, 102, 103, 104):
        scene.send(BRITAIN.format(number), **{"class": "otp"})
    scene.until(lambda: scene.page().largest("session_window_used", session="n1") > 0)
    scene.until(lambda: scene.page().total("possible_duplicates_total") == 1)
    scene.until(lambda: scene.page().largest("retry_share_ratio", provider="north") > 0)
    scene.north.order(set={"rules": [], "throttle_per_s": 10})
    for number in range(30):
        scene.send(BRITAIN.format(200 + number), **{"class": "non_priority"})
    scene.until(lambda: scene.page().total("submits_total", outcome="throttle") > 0)
    scene.until(lambda: 0 < scene.page().largest("session_rate_per_s", session="n1") < 200)
    scene.north.order(set={"throttle_per_s": 0})
    scene.until(scene.settled)
    scene.north.order(do="backlog", count=3, age_s=60)
    scene.until(lambda: scene.page().largest("receipt_inbox_depth") == 3)
    assert scene.page().largest("receipt_inbox_oldest_seconds") >= 0
    scene.north.order(do="cut")
    scene.until(lambda: scene.page().total("reconnects_total", session="n1") == 1)
    scene.until(lambda: scene.page().total("session_state", state="bound") == 2)


def an_endpoint_that_fails_and_policies_that_are_refused(scene: Scene) -> None:
    scene.sink.broken = True
    scene.send(BRITAIN.format(300))
    scene.until(lambda: scene.page().total("callbacks_total", outcome="retried") > 0)
    scene.until(lambda: scene.page().largest("callback_backlog") > 0)
    scene.until(lambda: scene.page().largest("callback_oldest_seconds") > 0)
    scene.sink.broken = False
    broken = scene.folder / "broken.yaml"
    broken.write_text("providers: 7\n")
    assert scene.gateway.command("policy", "apply", str(broken)).returncode == 1
    scene.until(lambda: scene.page().total("policy_reloads_total", result="invalid") == 1)
    scene.write_policy(retry_share="0.2")
    scene.until(lambda: scene.page().total("policy_reloads_total", result="applied") == 2)
    scene.until(lambda: set(scene.page().values("policy_version")) == {2.0})
    scene.until(lambda: scene.page().largest("retry_share_max_ratio") == 0.2)
    scene.until(lambda: not scene.number("SELECT count(*) FROM callbacks"))


def logs_follow_the_policy(scene: Scene) -> None:
    """At level debug a message can be followed through the roles by its id, a request by its own."""
    scene.write_policy(level="debug")
    scene.until(lambda: set(scene.page().values("policy_version")) == {3.0})
    message_id = scene.send(BRITAIN.format(350))["id"]
    scene.until(lambda: scene.lines("egress-1", "submit_ended", message_id))
    (answered,) = scene.until(lambda: scene.lines("api-1", "request_answered", message_id))
    assert answered["request_id"] and answered["status"] == 202 and answered["call"] == "/v1/messages"
    scene.write_policy(level="info")
    scene.until(lambda: set(scene.page().values("policy_version")) == {4.0})
    quiet = scene.send(BRITAIN.format(351))["id"]
    scene.until(scene.settled)
    assert not scene.lines("api-1", "request_answered", quiet)


def counters_agree_with_ledger_carrier_and_clients(scene: Scene) -> None:
    """Everything has ended, so counters, rows, the carriers' journals and the client's own count must be equal."""
    scene.until(scene.settled)
    scene.until(lambda: not scene.number("SELECT count(*) FROM callbacks"))
    scene.until(lambda: scene.page().total("callbacks_total", outcome="taken") == scene.sink.taken)
    page = scene.page()
    accepted = page.by("admissions_total", "class", "verdict")
    by_class = Counter({(name,): count for (name, verdict), count in accepted.items() if verdict == "accept"})
    by_class += Counter({(name,): count for (name, verdict), count in accepted.items() if verdict == "defer"})
    assert by_class == scene.counts("SELECT class, count(*) FROM messages GROUP BY 1")
    assert page.by("segments_admitted_total", "class") == scene.counts(
        "SELECT class, sum(segments)::bigint FROM messages GROUP BY 1"
    )
    assert page.total("admissions_total", verdict="replay") == 1
    refused = Counter({code: count for (status, code), count in scene.answers.items() if status >= 400})
    told = page.by("admissions_total", "reason")
    assert Counter({reason: n for (reason,), n in told.items() if "." in reason}) == refused
    submits = [*scene.north.submits(), *scene.south.submits()]
    assert page.total("segments_submitted_total") == len(submits)
    assert page.total("submits_total") == len([one for one in submits if one["status"] is not None])
    assert page.total("carrier_errors_total") == len([one for one in submits if one["status"]])
    assert page.total("submits_total", outcome="accepted") == scene.number("SELECT count(*) FROM carrier_ids")
    assert page.total("queue_wait_seconds_count") == scene.number(
        "SELECT count(*) FROM attempts WHERE kind = 'submit' AND written_at IS NOT NULL"
    )
    assert page.by("expired_total", "class", "cause", "stage") == scene.counts(
        "SELECT class, expiry->>'cause', expiry->>'stage', count(*) FROM messages"
        " WHERE status = 'expired' GROUP BY 1, 2, 3"
    )
    assert page.by("suppressed_total", "reason") == scene.counts(
        "SELECT error->>'code', count(*) FROM messages WHERE status = 'suppressed' GROUP BY 1"
    )
    assert page.by("unconfirmed_total", "provider") == scene.counts(
        "SELECT provider, count(*) FROM attempts WHERE outcome = 'unconfirmed' GROUP BY 1"
    )
    assert page.total("possible_duplicates_total") == scene.number(
        "SELECT count(*) FROM messages WHERE possible_duplicate"
    )
    assert page.by("receipts_total", "provider", "state") == scene.counts(
        "SELECT provider, state, count(*) FROM receipts GROUP BY 1, 2"
    )
    assert page.by("receipt_delay_seconds_count", "provider") == scene.counts(
        "SELECT provider, count(*) FROM messages WHERE status IN ('delivered', 'undelivered') GROUP BY 1"
    )
    assert page.total("inbound_total") == scene.number("SELECT count(*) FROM inbound")
    assert page.largest("policy_version") == scene.number("SELECT version FROM policy_active")


def a_process_that_is_killed(scene: Scene) -> None:
    """Its open submits are in doubt, whoever closes them, and counted as such."""
    before = scene.page()
    scene.north.order(set={"drop_ratio": 1})
    for number in range(4):
        scene.send(BRITAIN.format(400 + number))
    scene.until(lambda: scene.number("SELECT count(*) FROM attempts WHERE outcome IS NULL AND written_at IS NULL") == 4)
    doubts = scene.number("SELECT count(*) FROM attempts WHERE outcome = 'unconfirmed'")
    (egress,) = scene.pids("egress")
    os.kill(egress, signal.SIGKILL)
    scene.north.order(set={"drop_ratio": 0})
    scene.until(lambda: scene.page().total("role_restarts_total", part="egress-1") == 1)
    scene.until(lambda: scene.number("SELECT count(*) FROM attempts WHERE outcome IS NULL") == 0)
    found = scene.number("SELECT count(*) FROM attempts WHERE outcome = 'unconfirmed'") - doubts
    # Those who bury are the new egress process, whose counter is new, and delivery, whose counter went on.
    told = scene.page().total("unconfirmed_total") - _of(before, "delivery")
    assert found == told > 0


def _of(page: Page, role: str) -> float:
    return sum(page.values("unconfirmed_total", role=role))


def coverage(scene: Scene) -> None:
    """It counts from six hours back on: the hours of the ledger are moved there, and a fresh delivery process looks."""
    scene.sql("UPDATE coverage_hours SET hour_at = hour_at - 12 * 3600000")
    sums = scene.sql(
        "SELECT provider, sum(sent)::float8, sum(decided)::float8, sum(delivered)::float8"
        " FROM coverage_hours GROUP BY 1"
    )
    (delivery,) = scene.pids("delivery")
    os.kill(delivery, signal.SIGKILL)

    def agrees() -> bool:
        page = scene.page()
        return all(
            abs(page.largest("receipt_coverage_ratio", provider=name) - decided / sent) < 1e-9
            and abs(page.largest("receipt_delivered_ratio", provider=name) - delivered / decided) < 1e-9
            for name, sent, decided, delivered in sums
        )

    assert sums and scene.until(agrees)


STEPS = (
    a_calm_hour,
    what_waits_is_counted_as_the_ledger_has_it,
    a_class_whose_door_closes,
    a_carrier_in_trouble,
    an_endpoint_that_fails_and_policies_that_are_refused,
    logs_follow_the_policy,
    counters_agree_with_ledger_carrier_and_clients,
    a_process_that_is_killed,
    coverage,
)


@pytest.mark.timeout(400)
def test_every_metric_moves_and_agrees_with_the_ledger() -> None:
    """One test, since each step stands on the one before: a second try begins with a fresh gateway."""
    with open_scene() as scene:
        for step in STEPS:
            step(scene)
