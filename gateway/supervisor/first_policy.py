"""The first policy: the file named at start, or the demo policy on the simulator of this machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from gateway import logs
from gateway.policy import versions
from gateway.policy.applier import PolicyRefused
from gateway.policy.demo import demo_policy
from gateway.policy.entry import apply_file
from gateway.policy.rules.faults import PolicyInvalid
from gateway.policy.rules.snapshot import Policy
from gateway.runtime import Runtime, StartRefused

FirstPolicy = Callable[[Runtime], Awaitable[None]]
DEMO_AUTHOR = "demo policy"
_log = logs.get("policy")


def from_file(path: Path | None) -> FirstPolicy:
    """Applies the file named at start unless its content was applied before (contract section 3).

    What cannot be used leaves the policy in force; without one the start is refused.
    """

    async def apply(rt: Runtime) -> None:
        if path is None:
            return
        try:
            await apply_file(rt, path, f"file {path.name}", at_start=True)
        except (PolicyInvalid, PolicyRefused) as error:
            async with rt.pool.acquire() as conn:
                in_force = await versions.active(conn)
            if in_force is None:
                raise StartRefused(f"{path} cannot be used:\n{error}") from error
            _log.error("policy_file_not_applied", file=path.name, in_force=in_force[0], reason=str(error))

    return apply


def demo(port: int, former_port: int) -> FirstPolicy:
    """Applies the demo policy where none is in force, or where it is in force with a port that had to change."""

    async def apply(rt: Runtime) -> None:
        async with rt.pool.acquire() as conn:
            in_force = await versions.active(conn)
        moved = port != former_port and in_force is not None and in_force[1] == demo_policy(former_port)
        if in_force is None or moved:
            await rt.applier.apply(demo_policy(port), DEMO_AUTHOR)

    return apply


def speaks_to(policy: Policy, port: int) -> bool:
    """Whether a session of this policy is the simulator of this machine."""
    sessions = (session for provider in policy.providers.values() for session in provider.sessions.values())
    return any(session.host in ("127.0.0.1", "localhost") and session.port == port for session in sessions)
