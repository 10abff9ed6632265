"""`make flood`: one tenant floods marketing at ten times the rate, another sends codes through the same provider.

    python -m loadtests.flood                     both settings at full length; table, picture, results/flood-DATE.json
    python -m loadtests.flood --only fast --seconds 20
    python -m loadtests.flood --only fast --rate 300   a flood of 3,000 messages a second

Each setting starts a whole gateway of its own and a carrier with a journal. Tenant `a` is flooded by locust
(`flood_users.py`), beside it a small obedient client of the same tenant honours every Retry-After; tenant `b` sends
codes at random instants. Door to carrier is from the moment the request begins to the submit_sm in the carrier's
journal, both on this machine's monotonic clock. Ends with 1 when a promise is broken or a code's p99 is over its bound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from loadtests.bench import PARTS, cpu_s
from loadtests.evidence import settle
from loadtests.flood_evidence import FloodCall, Kept, Report, Sides, Submit, judge
from loadtests.flood_picture import draw
from loadtests.obedient import ObedientClient, Offer
from loadtests.world import ROOT, Shape, World

LOCUST = Path(sys.executable).with_name("locust")
POLICY = """\
classes:
  otp: {wait_budget: 10s, ttl: {default: 2m, max: 10m}, weight: 60, quantum: 1, unconfirmed: resend_once, max_attempts: 3}
  marketing: {wait_budget: 20s, ttl: {default: 10m, max: 1h}, weight: 10, quantum: 32, when_full: refuse, unconfirmed: fail, max_attempts: 5}
tenants:
  a: {limits: {rate_per_s: 5000, burst: 5000}, requests: {rate_per_s: DOOR, burst: DOOR}, classes: [marketing], default_class: marketing, default_sender: "60070"}
  b: {limits: {rate_per_s: 5000, burst: 5000}, requests: {rate_per_s: 500, burst: 500}, classes: [otp], default_class: otp, default_sender: "60071"}
providers:
  carrier:
    sessions:
      only: {host: 127.0.0.1, port: {port}, system_id: load, password: secret, bind: transceiver, window: 50SESSION}
routes:
  everything: {match: {}, provider: carrierROUTE}
"""  # noqa: E501 - lines of YAML
_SETTLE_S = 90.0
_KEPT = (
    "SELECT id, client_ref, status, created_at, submit_by, predicted_wait_ms, expiry ->> 'cause' AS cause FROM messages"
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One flood. `limit`: whose rate it is, `route` or `session`; `bound_ms`: for the codes' p99."""

    name: str
    limit: str
    rate_per_s: float
    burst: float
    bound_ms: float
    seconds: float
    codes_per_s: float
    obedient_per_s: float
    batch: int
    users: int
    times: float = 10.0

    @property
    def policy(self) -> str:
        """Its policy, with {port} for the carrier's port. Half of the flood is over the tenant's door rate."""
        limits = f", limits: {{rate_per_s: {self.rate_per_s:g}, burst: {self.burst:g}}}"
        text = POLICY.replace("DOOR", f"{self.rate_per_s * self.times / 2:g}")
        for place in ("session", "route"):
            text = text.replace(place.upper(), limits if place == self.limit else "")
        return text


SETTINGS = (
    Setting("fast", "route", 100, 10, 100, 60, codes_per_s=20, obedient_per_s=3, batch=100, users=20),
    Setting("slow", "session", 5, 1, 1000, 120, codes_per_s=1, obedient_per_s=0.5, batch=5, users=10),
)


async def play(setting: Setting, home: Path) -> tuple[Sides, Report]:
    """One gateway, one flood; returns what was written down and what it came to."""
    world = World(home, Shape(answer_delay_ms=20), setting.policy)
    await world.start()
    try:
        keys = {tenant: world.new_key(tenant) for tenant in ("a", "b")}
        await _warm(setting, world, keys)
        before, began_mono = cpu_s(world), time.monotonic()
        flooded, obedient, codes = await _rage(setting, world, keys)
        after, lasted_s = cpu_s(world), time.monotonic() - began_mono
        if not await settle(world, _SETTLE_S):
            raise RuntimeError("not every accepted message came to its end")
        kept = await _kept(world)
    finally:
        await world.stop()
    sides = Sides(
        calls=flooded,
        obedient=obedient.answers,
        codes=codes.answers,
        kept=kept,
        submits=_submits(world.journal_path),
        rate_per_s=setting.rate_per_s,
        burst=setting.burst,
    )
    report = judge(sides)
    report.figures["cores_used"] = {part: round((after[part] - before[part]) / lasted_s, 2) for part in PARTS}
    report.say(obedient.cut + codes.cut, "requests without an answer")
    return sides, report


async def _warm(setting: Setting, world: World, keys: dict[str, str]) -> None:
    """Messages of each kind, as a gateway that has been up for a while has seen them; they are not counted."""
    for tenant, class_name in (("a", "marketing"), ("b", "otp")):
        client = ObedientClient(world.url, keys[tenant])
        rate_per_s = min(20.0, setting.rate_per_s / 2)
        await client.send(Offer(f"warm-{tenant}", rate_per_s, 2, {"class": class_name}, patience_s=30))
    await asyncio.sleep(2.0)


async def _rage(
    setting: Setting, world: World, keys: dict[str, str]
) -> tuple[list[FloodCall], ObedientClient, ObedientClient]:
    journal, purse = world.home / "locust.jsonl", world.home / "keys.json"
    purse.write_text(json.dumps(keys))
    words = (
        *("-f", str(ROOT / "loadtests/flood_users.py"), "--host", world.url, "--keys", str(purse), "--headless"),
        *("-u", str(setting.users), "-r", str(setting.users), "-t", f"{setting.seconds:g}s", "--journal", str(journal)),
        *("--flood-rate", f"{setting.rate_per_s * setting.times:g}", "--flood-batch", str(setting.batch)),
        *("--only-summary", "--stop-timeout", "10"),
    )
    with (world.home / "locust.log").open("wb") as log:
        locust = await asyncio.create_subprocess_exec(str(LOCUST), *words, cwd=ROOT, stdout=log, stderr=log)
    try:
        async with asyncio.timeout(60):
            while not (journal.exists() and journal.stat().st_size):
                await asyncio.sleep(0.1)
        obedient, codes = ObedientClient(world.url, keys["a"]), ObedientClient(world.url, keys["b"])
        await asyncio.gather(
            obedient.send(_offer(setting, "obedient", setting.obedient_per_s, "marketing", 50_000_000)),
            codes.send(_offer(setting, "code", setting.codes_per_s, "otp", 70_000_000)),
        )
        async with asyncio.timeout(60):
            await locust.wait()
    finally:
        if locust.returncode is None:
            locust.kill()
            await locust.wait()
    if locust.returncode != 0:
        raise RuntimeError((world.home / "locust.log").read_text()[-2000:])
    return _calls(journal), obedient, codes


def _offer(setting: Setting, prefix: str, rate_per_s: float, class_name: str, first_number: int) -> Offer:
    seconds = setting.seconds - 1  # they end while the flood still lasts
    return Offer(
        prefix,
        rate_per_s,
        seconds,
        {"class": class_name},
        poisson=True,
        seed=7,
        patience_s=seconds,
        first_number=first_number,
    )


def _calls(path: Path) -> list[FloodCall]:
    found = []
    for line in path.read_bytes().splitlines():
        told: dict[str, Any] = orjson.loads(line)
        refused = [(status, wait_s) for status, _, wait_s in told["refused"]]
        if not refused and told["status"] != 202:
            refused = [(told["status"], told["retry_after_s"])] * told["messages"]
        found.append(FloodCall(told["began_ns"], told["status"], told["messages"], told["accepted"], refused))
    return found


def _submits(path: Path) -> list[Submit]:
    found = []
    for line in path.read_bytes().splitlines():
        entry: dict[str, Any] = orjson.loads(line)
        if entry["event"] == "submit":
            ref = entry["body_prefix"].split(" ", 1)[0]
            found.append(Submit(ref, entry["t_ns"], entry["at"], entry["status"]))
    return found


async def _kept(world: World) -> dict[str, Kept]:
    ledger = await world.ledger()
    try:
        rows = await ledger.fetch(_KEPT)
    finally:
        await ledger.close()
    return {
        f"msg_{r['id'].hex}": Kept(
            r["client_ref"], r["status"], r["created_at"], r["submit_by"], r["predicted_wait_ms"], r["cause"]
        )
        for r in rows
    }


def show(setting: Setting, report: Report) -> str:
    """The lines of the table for one setting."""
    codes, flood, obedient, ends = (report.figures[name] for name in ("codes", "flood", "obedient", "accepted"))
    door, answer = codes["request_to_carrier_ms"], codes["answer_to_carrier_ms"]
    near = ends["of_them_within_30_percent"]
    lines = [
        f"{setting.name}: {setting.rate_per_s:g}/s by the {setting.limit}, flood of {flood['offered_per_s']:g}/s"
        f" ({flood['offered_by_rate']:g} times the rate), {ends['carrier_per_s']:g}/s at the carrier",
        f"  b  codes: {codes['left']} of {codes['offered']} left, {codes['refusals']} refusals;"
        f" request to carrier p50 {door['p50']:g} ms, p99 {door['p99']:g} ms (bound {setting.bound_ms:g}),"
        f" longest {door['max']:g} ms; answer to carrier p50 {answer['p50']:g} ms, p99 {answer['p99']:g} ms",
        f"  a  messages by answer: {flood['messages_by_answer']}; Retry-After of 503: {flood['retry_after_503_s']} s",
        f"  a  obedient: {obedient['accepted']} of {obedient['messages']} accepted, {obedient['requests_per_accepted']}"
        f" requests each; {obedient['taken_when_they_came']} of {obedient['came_again_after_503']} that came again"
        f" after a 503 were taken; {obedient['told_to_come_after_the_end']} told to come after the end",
        f"  accepted: {ends['messages']}, {ends['by_status']}; of {ends['predicted_from_5_s']} with a predicted wait"
        f" of 5 s or more {'none' if near is None else f'{near:.0%}'} left within 30 % of it;"
        f" worst window {report.figures['worst_window_excess']:+g} submits against the limit",
        "  cores used: " + ", ".join(f"{part} {cores:g}" for part, cores in report.figures["cores_used"].items()),
        *(f"  BROKEN: {line}" for line in report.broken),
    ]
    return "\n".join(lines) + "\n"


def _commit() -> str:
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or "unknown"


def _chosen(asked: argparse.Namespace) -> Sequence[Setting]:
    chosen = [one for one in SETTINGS if asked.only in (None, one.name)]
    if asked.seconds:
        chosen = [replace(one, seconds=asked.seconds) for one in chosen]
    if asked.rate:
        chosen = [replace(one, rate_per_s=asked.rate) if one.name == "fast" else one for one in chosen]
    return chosen


def main() -> int:
    """Play the settings, print the table, write the JSON file and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[one.name for one in SETTINGS])
    parser.add_argument("--seconds", type=float, help="how long each flood lasts (default 60 and 120)")
    parser.add_argument("--rate", type=float, help="messages a second of the route of `fast` (default 100)")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--picture", type=Path, default=Path("docs/live-flood.png"))
    asked = parser.parse_args()
    played: list[tuple[Setting, Sides, Report]] = []
    for setting in _chosen(asked):
        with tempfile.TemporaryDirectory(prefix="sluicegate-flood-") as scratch:
            sides, report = asyncio.run(play(setting, Path(scratch)))
        p99 = report.figures["codes"]["request_to_carrier_ms"]["p99"]
        if p99 > setting.bound_ms:
            report.broken.append(f"1 p99 of codes over its bound: {p99:g} ms")
        sys.stdout.write(show(setting, report))
        sys.stdout.flush()
        played.append((setting, sides, report))
    now, commit = datetime.now(UTC), _commit()
    draw([(s.name, s.bound_ms, sides) for s, sides, _ in played], f"{now:%Y-%m-%d}, {commit}", asked.picture)
    asked.out.mkdir(parents=True, exist_ok=True)
    out = asked.out / f"flood-{now:%Y%m%dT%H%M%SZ}.json"
    written = {
        "commit": commit,
        "load_average": os.getloadavg(),
        "settings": [{"asked": asdict(s), "figures": r.figures, "broken": r.broken} for s, _, r in played],
    }
    out.write_text(json.dumps(written, indent=1) + "\n")
    sys.stdout.write(f"written to {out} and {asked.picture}\n")
    return 1 if any(report.broken for _, _, report in played) else 0


if __name__ == "__main__":
    sys.exit(main())
