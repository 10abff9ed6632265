"""What `up` prints once everything works: addresses, a login link, a key and a line to paste."""

from __future__ import annotations

import json
import secrets
import shlex

from gateway.embedded.home import Home, write_private
from gateway.ledger import keys, restores
from gateway.policy import versions
from gateway.policy.demo import DEMO_TENANT
from gateway.policy.rules.lookup import candidates, tenant_rules
from gateway.policy.rules.snapshot import Policy, Tenant
from gateway.policy.secrets import check_all
from gateway.runtime import Runtime
from gateway.supervisor.run_file import RunFile

_LACKS_MAX = 10
_KEY_FILE = "demo.key"
_FICTIONAL = "+447700900123"  # from the range that the regulator keeps for drama: no handset ever has it
_DIGITS = "5550100123"


async def text(rt: Runtime, run: RunFile, link: str, home: Home) -> str:
    """The greeting. It holds a key and a login link: for the terminal, never for a log."""
    policy = rt.policies.current
    tenant = tenant_rules(policy, _tenant_name(policy))
    key = await demo_key(rt, home, tenant.name)
    lines = [
        "",
        "Sluicegate is up.",
        "",
        *_lacks(policy),
        *await _paused(rt, home),
        f"  API       {run.api_url}  (docs: {run.api_url}/docs)",
        f"  console   {run.operators_url}/console/login?token={link}  (works once)",
        f"  metrics   {run.operators_url}/metrics",
        f"  API key   {key}  (tenant {tenant.name})",
        "",
        "Paste this to send a message:",
        "",
        curl_line(run.api_url, key, example(policy, tenant)),
        "",
        f"Data: {home.directory}. Ctrl-C drains and stops everything; the next start goes on with the same data.",
        "",
    ]
    return "\n".join(lines)


async def _paused(rt: Runtime, home: Home) -> list[str]:
    """Carriers that a restore paused: nothing leaves before somebody has looked."""
    async with rt.pool.acquire() as conn:
        paused = (await restores.standing(conn)).paused
    if not paused:
        return []
    verb = f"sluicegate restored --data-dir {shlex.quote(str(home.directory))}"
    return [
        f"This database was restored: {', '.join(paused)} paused, nothing is sent yet.",
        f"Look at `{verb}`, decide, then let it go on with `{verb} --resume`.",
        "",
    ]


def _lacks(policy: Policy) -> list[str]:
    """Secrets that do not resolve: their carriers or callbacks stay silent until they do."""
    missing = check_all(policy)
    if not missing:
        return []
    shown = [f"warning: policy version {policy.version}: {fault}" for fault in missing[:_LACKS_MAX]]
    more = [f"warning: and {len(missing) - _LACKS_MAX} more"] if len(missing) > _LACKS_MAX else []
    return [*shown, *more, ""]


async def demo_key(rt: Runtime, home: Home, tenant: str) -> str:
    """A key of this tenant that works: the one of an earlier start, or a new one.

    The ledger holds only its digest; the readable form lies in the data directory (0600) beside the stores' passwords.
    """
    path = home.directory / _KEY_FILE
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["tenant"] == tenant and await keys.KeyRing(rt.pool, rt.clock).verify(kept["key"]) is not None:
            return str(kept["key"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    async with rt.pool.acquire() as conn:
        await versions.create_tenants(conn, [tenant], rt.clock.now_at())
        wish = keys.KeyWish(tenant, (keys.SEND, keys.READ, keys.MANAGE))
        written = await keys.create(conn, wish, "up", rt.clock.now_at())
    write_private(path, json.dumps({"tenant": tenant, "key": written}))
    return written


def example(policy: Policy, tenant: Tenant) -> dict[str, str]:
    """The fields of a message that this policy would take from this tenant, as far as one can tell."""
    sender = tenant.default_sender or next(iter(tenant.senders or ()), "Sluicegate")
    fields = {"to": _number(policy, tenant, sender), "text": "Hello from Sluicegate"}
    return fields if tenant.default_sender else fields | {"from": sender}


def curl_line(api_url: str, key: str, fields: dict[str, str]) -> str:
    """One line for a shell; its idempotency key is new, so that pasting it twice sends one message."""
    body = json.dumps(fields, separators=(",", ":"))
    return (
        f"curl -sS {api_url}/v1/messages -H 'Authorization: Bearer {key}'"
        f" -H 'Idempotency-Key: first-{secrets.token_hex(4)}' -H 'Content-Type: application/json' -d '{body}'"
    )


def _tenant_name(policy: Policy) -> str:
    return DEMO_TENANT if DEMO_TENANT in policy.tenants else next(iter(policy.tenants), DEMO_TENANT)


def _number(policy: Policy, tenant: Tenant, sender: str) -> str:
    prefixes = [
        *(tenant.destinations or ()),
        *(prefix for route in policy.routes.values() for prefix in route.prefixes),
    ]
    guesses = [_FICTIONAL, *(prefix + _DIGITS[: max(0, 12 - len(prefix))] for prefix in prefixes)]
    for number in guesses:
        allowed = tenant.destinations is None or any(number.startswith(prefix) for prefix in tenant.destinations)
        if allowed and candidates(policy, tenant.name, tenant.default_class, sender, number):
            return number
    return _FICTIONAL
