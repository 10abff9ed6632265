"""The flood of `make flood` as locust users: one tenant, batches of marketing at a fixed rate, whatever is answered."""

from __future__ import annotations

import random
from argparse import ArgumentParser

import gevent
from locust import constant_pacing, events, task

from loadtests.locust_door import TenantUser, new_number, new_ref


@events.init_command_line_parser.add_listener
def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--flood-rate", type=float, default=1000.0, help="messages a second, of all users together")
    parser.add_argument("--flood-batch", type=int, default=100, help="messages per call")


class Flood(TenantUser):
    """Offers its share of the rate and never waits longer for an answer of refusal."""

    tenant = "a"

    def on_start(self) -> None:
        """Takes its key and its share; users have nothing to do with each other, so each begins when it likes."""
        super().on_start()
        options = self.environment.parsed_options
        self.batch = options.flood_batch
        apart_s = options.num_users * options.flood_batch / options.flood_rate
        self._pacing = constant_pacing(apart_s)
        gevent.sleep(random.uniform(0, apart_s))

    def wait_time(self) -> float:
        """Seconds to the next call."""
        pause_s: float = self._pacing(self)
        return pause_s

    @task
    def flood(self) -> None:
        """One call."""
        ref = f"flood-{new_ref()}"
        messages = [
            {"to": new_number(), "client_ref": f"{ref}.{n}", "text": f"{ref}.{n} everything must go"}
            for n in range(self.batch)
        ]
        self.post("/v1/messages/batch", ref, {"defaults": {"class": "marketing"}, "messages": messages}, "flood")
