"""Secrets by reference: `env:NAME` and `file:PATH` are read by the process that uses them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from gateway.policy.rules.carriers import PASSWORD_MAX
from gateway.policy.rules.scalars import is_reference
from gateway.policy.rules.snapshot import Policy

_SIZE_MAX = 64 * 1024


class SecretMissing(Exception):
    """A secret cannot be had here; names the reference and never a value."""

    def __init__(self, reference: str, reason: str) -> None:
        super().__init__(f"{reference}: {reason}")
        self.reference = reference


def resolve(reference: str) -> str:
    """The value behind `env:NAME` or `file:PATH` (without the newline at its end), or a literal as it is.

    Raises SecretMissing.
    """
    if reference.startswith("env:"):
        value = os.environ.get(reference[4:])
        if value is None:
            raise SecretMissing(reference, "is not in this process's environment")
        return value
    if reference.startswith("file:"):
        return _read_file(reference)
    return reference


def path_of(reference: str) -> Path:
    """The path of a `file:` reference, for files that others read (TLS); raises SecretMissing if unreadable."""
    path = Path(reference.removeprefix("file:"))
    if not path.is_file() or not os.access(path, os.R_OK):
        raise SecretMissing(reference, "is no file that this process can read")
    return path


def _read_file(reference: str) -> str:
    path = Path(reference[5:])
    try:
        with path.open(encoding="utf-8") as source:
            value = source.read(_SIZE_MAX)
    except (OSError, UnicodeDecodeError) as error:
        raise SecretMissing(reference, f"cannot be read ({type(error).__name__})") from None
    return value.rstrip("\r\n")


def check(policy: Policy, role: str) -> list[str]:
    """What a role cannot resolve of the secrets that it uses, in words; empty when it has all of them.

    egress uses passwords and TLS files of sessions, delivery the callback secrets, api none.
    """
    found: list[str] = []
    if role == "egress":
        found.extend(_faults_of_sessions(policy))
    elif role == "delivery":
        found.extend(_faults_of_callbacks(policy))
    return found


def check_all(policy: Policy) -> list[str]:
    """What cannot be resolved here of all the secrets of a policy, in words."""
    return [fault for role in ("egress", "delivery") for fault in check(policy, role)]


def _faults_of_sessions(policy: Policy) -> Iterator[str]:
    for provider in policy.providers.values():
        for session in provider.sessions.values():
            path = f"providers.{provider.name}.sessions.{session.name}"
            try:
                password = resolve(session.password)
            except SecretMissing as missing:
                yield f"{path}.password: {missing}"
            else:
                if len(password) > PASSWORD_MAX or not password.isascii():
                    yield f"{path}.password: expects at most {PASSWORD_MAX} characters of ASCII (SMPP 3.4)"
            for reference in (session.tls.ca, session.tls.cert, session.tls.key) if session.tls else ():
                if reference is not None:
                    try:
                        path_of(reference)
                    except SecretMissing as missing:
                        yield f"{path}.tls: {missing}"


def _faults_of_callbacks(policy: Policy) -> Iterator[str]:
    for tenant in (policy.tenant_defaults, *policy.tenants.values()):
        path = f"tenants.{tenant.name}" if tenant.name else "tenant_defaults"
        for reference in tenant.callbacks.secrets if tenant.callbacks else ():
            try:
                value = resolve(reference)
            except SecretMissing as missing:
                yield f"{path}.callbacks.secrets: {missing}"
            else:
                if not value.removeprefix("whsec_").strip():
                    yield f"{path}.callbacks.secrets: {reference if is_reference(reference) else 'a secret'} is empty"
