"""Tenants of several sizes for locust: shops, a bank, a newsletter, and a client without manners.

    make up ARGS="--policy loadtests/locust.policy.yaml"      # and: sluicegate carrier-sim --port 2775
    .venv/bin/locust -f loadtests/locustfile.py --callback-port 8099
    .venv/bin/locust -f loadtests/locustfile.py --callback-port 8099 --headless -u 20 -r 5 -t 1m

docs/load-with-locust.md tells more.
"""

from __future__ import annotations

import random
from typing import Any

import gevent
from locust import between, constant_pacing, task

from loadtests.locust_door import TenantUser, Told, new_number, new_ref

REPEATED = 0.05  # share of accepted requests that are sent again with their key
BURST = (50, 200)  # messages per call of the newsletter


class Shop(TenantUser):
    """A small tenant: an order now and then, patient and obedient."""

    weight = 6
    tenant = "small"
    wait_time = between(0.5, 2.0)

    @task(8)
    def order(self) -> None:
        """Your parcel has left."""
        self.submit({"class": "transactional", "text": "Your parcel has left and comes tomorrow."})

    @task(1)
    def login(self) -> None:
        """A shop has codes too."""
        self.submit({"class": "otp", "text": "Your code is 123456", "ttl": 60}, patience_s=10)

    @task(1)
    def long_text(self) -> None:
        """Three parts."""
        self.submit({"class": "transactional", "text": "Terms and conditions apply. " * 15})


class Bank(TenantUser):
    """A medium tenant that lives on codes; a code that cannot leave within ten seconds is of no use to it."""

    weight = 4
    tenant = "medium"
    wait_time = between(0.1, 0.5)

    @task(9)
    def code(self) -> None:
        """One code; some callers lose the answer and ask again."""
        ref, body = new_ref(), {"to": new_number(), "class": "otp", "text": "Your code is 123456", "ttl": 60}
        first = self.post("/v1/messages", ref, body, "otp")
        if first.status == 202 and random.random() < REPEATED:
            self._repeat(ref, body, first)
        elif first.status in (429, 503) and (first.retry_after_s or 0) <= 10:
            gevent.sleep(first.retry_after_s or 1)
            self.post("/v1/messages", ref, body, "otp again")

    @task(1)
    def statement(self) -> None:
        """A transfer was booked."""
        self.submit({"class": "transactional", "text": "A transfer of 12.50 was booked."})

    def _repeat(self, ref: str, body: dict[str, Any], first: Told) -> None:
        again = self.post("/v1/messages", ref, body, "otp repeated")
        if again.status == 202 and not (again.replayed and again.body["id"] == first.body["id"]):
            self.complain("idempotency", "a repeated key was answered with another message")


class Newsletter(TenantUser):
    """A large tenant: silence, then hundreds at once; a call that is refused as a whole makes it wait."""

    weight = 2
    tenant = "large"
    wait_time = between(2.0, 6.0)

    @task
    def burst(self) -> None:
        """Some calls of many messages, one after the other."""
        for _ in range(random.randint(1, 4)):
            told = self._call(random.randint(*BURST))
            if told.status in (429, 503):
                gevent.sleep(min(told.retry_after_s or 1, 30))

    def _call(self, count: int) -> Told:
        ref = new_ref()
        messages = [{"to": new_number(), "client_ref": f"{ref}.{n}"} for n in range(count)]
        body = {"defaults": {"class": "marketing", "text": "Spring sale: everything must go."}, "messages": messages}
        told = self.post("/v1/messages/batch", ref, body, "marketing batch")
        if told.status == 202 and random.random() < REPEATED:
            again = self.post("/v1/messages/batch", ref, body, "marketing batch repeated")
            if again.status == 202 and again.body != told.body:
                self.complain("idempotency", "a repeated batch was answered differently")
        return told


class Ruffian(TenantUser):
    """A client without manners: never waits, sends rubbish, uses keys twice with other bodies."""

    weight = 1
    tenant = "hostile"
    wait_time = constant_pacing(0.02)

    @task(20)
    def hammer(self) -> None:
        """The next one at once, whatever the last answer said."""
        body = {"to": new_number(), "class": "marketing", "text": "Buy now"}
        self.post("/v1/messages", new_ref(), body, "hostile")

    @task(2)
    def rubbish(self) -> None:
        """Nothing of this may be accepted."""
        body = {"to": "0", "class": "none", "text": "\x00", "unknown": 1}
        self.post("/v1/messages", new_ref(), body, "hostile rubbish", also=(422,))

    @task(1)
    def other_body(self) -> None:
        """The same key for another text: refused, and the first message stays what it is."""
        ref, body = new_ref(), {"to": new_number(), "class": "marketing", "text": "Buy now"}
        if self.post("/v1/messages", ref, body, "hostile").status == 202:
            told = self.post("/v1/messages", ref, {**body, "text": "Buy later"}, "hostile key", also=(422,))
            if told.status == 202:
                self.complain("idempotency", "another body under the same key was accepted")
