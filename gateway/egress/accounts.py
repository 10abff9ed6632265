"""Accounts at carriers: one bind attempt at a time for each, and none any more once its credentials were refused.

An account that is tried again and again with a wrong password gets locked (reliability.md 3.2, S-stop).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from gateway.egress.owner import Owner
from gateway.policy.rules.snapshot import Session

_WAIT_S: Final = 0.2


def account_of(session: Session) -> str:
    """The account that a session binds with."""
    return f"{session.host}:{session.port}:{session.system_id}"


class Accounts:
    """Of one process; `owner` holds the locks that keep other processes out."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._busy: set[str] = set()  # the owner's locks do not tell two sessions of this process apart
        self._refused: set[tuple[str, str, str]] = set()

    @asynccontextmanager
    async def turn(self, session: Session, leaving: Callable[[], bool]) -> AsyncIterator[bool]:
        """The right to make one attempt, False where the session should not go on waiting for it."""
        account = account_of(session)
        taken = await self._take(account, leaving)
        try:
            yield taken
        finally:
            if taken:
                self._busy.discard(account)
                await self._owner.release_account(account)

    async def _take(self, account: str, leaving: Callable[[], bool]) -> bool:
        while not leaving() and self._owner.may_write():
            if account not in self._busy:
                self._busy.add(account)
                taken = False
                try:
                    taken = await self._owner.take_account(account)
                finally:
                    if not taken:
                        self._busy.discard(account)
                if taken:
                    return True
            await asyncio.sleep(random.uniform(_WAIT_S / 2, _WAIT_S))
        return False

    def refuse(self, session: Session) -> None:
        """The carrier does not take these credentials: no session of this process offers them again."""
        self._refused.add(_credentials(session))

    def is_refused(self, session: Session) -> bool:
        """Whether these credentials were refused since they were last forgiven."""
        return _credentials(session) in self._refused

    def forgive(self, session: Session) -> None:
        """Somebody says that they are right now."""
        self._refused.discard(_credentials(session))

    def forgive_all(self) -> None:
        """A new policy may have put right what was refused."""
        self._refused.clear()


def _credentials(session: Session) -> tuple[str, str, str]:
    return account_of(session), session.password, session.system_type  # the password's reference, or a literal
