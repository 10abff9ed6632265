"""The policy: its versions and who entered them, what one would change in words, checking, applying, going back.

A text is applied only as it was checked, and only while the version it was compared with is still in force. Secrets of
what is in the database never reach a page; a form shows what its sender wrote.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from gateway.console.visit import GUARDS, Site, Visit, act, page, refused
from gateway.policy import versions
from gateway.policy.applier import PolicyRefused
from gateway.policy.rules.diff import describe
from gateway.policy.rules.faults import Fault, PolicyInvalid
from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.snapshot import Policy
from gateway.policy.rules.warnings import warn
from gateway.policy.shown import hide, with_secrets

SOURCE_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said of a text before it is applied."""

    faults: tuple[Fault, ...] = ()
    warnings: list[Fault] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)


def routes(site: Site) -> list[Route]:
    """The pages and forms of the policy."""
    return [
        page(site, "/console/policy", _history),
        page(site, "/console/policy/versions/{version:int}", _version),
        page(site, "/console/policy/edit", _edit),
        page(site, "/console/policy/check", _to_edit),
        page(site, "/console/policy/apply", _to_edit),
        act(site, "/console/policy/check", _check),
        act(site, "/console/policy/apply", _apply),
        act(site, "/console/policy/rollback/{version:int}", _rollback),
    ]


async def _history(visit: Visit) -> Response:
    async with visit.desk.rt.pool.acquire() as conn:
        entered = await versions.history(conn)
    return visit.show("policy.html", entered=entered, in_force=visit.desk.rt.policies.current.version)


async def _version(visit: Visit) -> Response:
    rt, version = visit.desk.rt, visit.request.path_params["version"]
    async with rt.pool.acquire() as conn:
        found, source = await versions.entered(conn, version), await versions.source_of(conn, version)
    if found is None or source is None:
        advice = "The list of all versions says which there are."
        return refused(visit.site, visit.request, 404, f"There is no policy version {version}", advice)
    verdict = await judge(rt.policies.current, source)
    return visit.show(
        "policy_version.html",
        one=found,
        source=await asyncio.to_thread(hide, source, version),
        verdict=verdict,
        in_force=rt.policies.current.version,
    )


async def _edit(visit: Visit) -> Response:
    rt = visit.desk.rt
    asked = visit.query("from", 9)
    version = int(asked) if asked.isascii() and asked.isdecimal() else rt.policies.current.version
    async with rt.pool.acquire() as conn:
        source = await versions.source_of(conn, version)
    if source is None:
        return refused(
            visit.site, visit.request, 404, f"There is no policy version {version}", "Choose one of the list."
        )
    return _editor(visit, await asyncio.to_thread(hide, source, version), None)


async def _to_edit(_visit: Visit) -> Response:
    return RedirectResponse("/console/policy/edit", 303, headers=GUARDS)


def _editor(
    visit: Visit, source: str, verdict: Verdict | None, refusal: str | None = None, code: int = 200
) -> Response:
    return visit.show(
        "policy_edit.html",
        code,
        source=source,
        verdict=verdict,
        refusal=refusal,
        checked=_digest(source),
        base=visit.desk.rt.policies.current.version,
    )


async def _check(visit: Visit) -> Response:
    source = _source(visit)
    verdict = await judge(visit.desk.rt.policies.current, await with_secrets(visit.desk.rt.pool, source))
    return _editor(visit, source, verdict, code=422 if verdict.faults else 200)


async def _apply(visit: Visit) -> Response:
    rt, source = visit.desk.rt, _source(visit)
    whole = await with_secrets(rt.pool, source)
    verdict = await judge(rt.policies.current, whole)
    if visit.form.get("checked") != _digest(source):
        return _editor(visit, source, verdict, "The text changed after it was checked: look at it once more.", 409)
    if visit.form.get("base") != str(rt.policies.current.version):
        now = f"Version {rt.policies.current.version} came into force meanwhile: look at what would change now."
        return _editor(visit, source, verdict, now, 409)
    try:
        version = await rt.applier.apply(whole, visit.actor, visit.form.get("note", "")[:200].strip())
    except PolicyInvalid:
        return _editor(visit, source, verdict, code=422)
    except PolicyRefused as refusal:
        return _editor(visit, source, verdict, f"Not applied: {refusal}", 409)
    await rt.policies.look()
    return visit.done("/console/policy", f"Policy version {version} is in force.")


async def _rollback(visit: Visit) -> Response:
    rt, version = visit.desk.rt, visit.request.path_params["version"]
    try:
        made = await rt.applier.rollback(version, visit.actor)
    except LookupError as error:
        return refused(visit.site, visit.request, 404, str(error).capitalize(), "Nothing was done.")
    except (PolicyInvalid, PolicyRefused) as refusal:
        advice = f"The policy in force stays: {refusal}"
        return refused(visit.site, visit.request, 409, f"Version {version} cannot be used now", advice)
    await rt.policies.look()
    return visit.done("/console/policy", f"Policy version {made} is in force, with the text of version {version}.")


async def judge(in_force: Policy, source: str) -> Verdict:
    """Every fault of a text, or else its warnings and what it would change."""
    if len(source.encode("utf-8", "surrogatepass")) > SOURCE_MAX:
        return Verdict((Fault(0, "", "is over 1 MiB"),))
    try:
        policy = await asyncio.to_thread(read_policy, source)
    except PolicyInvalid as invalid:
        return Verdict(invalid.faults)
    return Verdict(warnings=warn(policy), changes=describe(in_force, policy))


def _source(visit: Visit) -> str:
    """The text of the form; browsers write line ends as two characters."""
    return visit.form.get("source", "").replace("\r\n", "\n")


def _digest(source: str) -> str:
    return sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
