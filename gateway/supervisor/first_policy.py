"""The first policy: the file named at start, or the demo policy on the simulator of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from gateway import logs
from gateway.policy import versions
from gateway.policy.applier import PolicyRefused
from gateway.policy.demo import DEMO_PROVIDER, DEMO_SESSION, demo_policy
from gateway.policy.entry import apply_file, read_file
from gateway.policy.rules.faults import PolicyInvalid
from gateway.policy.rules.parse import read_policy
from gateway.policy.rules.snapshot import Policy
from gateway.policy.secrets import check_all
from gateway.runtime import Runtime, StartRefused

FirstPolicy = Callable[[Runtime], Awaitable[None]]
DEMO_AUTHOR = "demo policy"
_log = logs.get("policy")


def from_file(path: Path | None, *, tell: Callable[[str], None] | None = None) -> FirstPolicy:
    """Applies the file named at start unless its content was applied before (contract section 3).

    What cannot be used leaves the policy in force; without one the start is refused. With `tell` (`up`, where
    people look) it is said there too, and a new policy whose secrets do not resolve here is such a one: no role is up
    yet that could refuse it.
    """

    async def apply(rt: Runtime) -> None:
        if path is None:
            return
        try:
            if tell is not None:
                await _refuse_without_secrets(rt, path)
            await apply_file(rt, path, f"file {path.name}", at_start=True)
        except (PolicyInvalid, PolicyRefused) as error:
            async with rt.pool.acquire() as conn:
                in_force = await versions.active(conn)
            if in_force is None:
                raise StartRefused(f"{path} cannot be used:\n{error}") from error
            _log.error("policy_file_not_applied", file=path.name, in_force=in_force[0], reason=str(error))
            if tell is not None:
                tell(f"warning: {path} is not in force, policy version {in_force[0]} stays:\n{error}")

    return apply


async def _refuse_without_secrets(rt: Runtime, path: Path) -> None:
    """Raises PolicyRefused, PolicyInvalid; what was applied before is none of its business."""
    source = await asyncio.to_thread(read_file, path)
    async with rt.pool.acquire() as conn:
        if await versions.known(conn, versions.digest_of(source)) is not None:
            return
    missing = check_all(await asyncio.to_thread(read_policy, source))
    if missing:
        raise PolicyRefused("\n".join(missing))


def demo(port: int, former_port: int) -> FirstPolicy:
    """Applies the demo policy where none is in force, or where it is in force with a port that had to change."""

    async def apply(rt: Runtime) -> None:
        async with rt.pool.acquire() as conn:
            in_force = await versions.active(conn)
        moved = port != former_port and in_force is not None and in_force[1] == demo_policy(former_port)
        if in_force is None or moved:
            await rt.applier.apply(demo_policy(port), DEMO_AUTHOR)

    return apply


def port_of_demo(in_force: tuple[int, str] | None) -> int | None:
    """The simulator's port where the policy in force (version and text) is the demo's or was written from it."""
    if in_force is None:
        return None
    try:
        provider = read_policy(in_force[1]).providers.get(DEMO_PROVIDER)
    except PolicyInvalid:
        return None
    session = provider.sessions.get(DEMO_SESSION) if provider is not None else None
    return session.port if session is not None and session.host == "127.0.0.1" else None


def speaks_to(policy: Policy, port: int) -> bool:
    """Whether a session of this policy is the simulator of this machine."""
    sessions = (session for provider in policy.providers.values() for session in provider.sessions.values())
    return any(session.host in ("127.0.0.1", "localhost") and session.port == port for session in sessions)
