"""Calls besides submits share a part of a process's connections to the ledger: slow ones never hold up a submit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

from gateway.admission.problems import OVERLOAD
from gateway.api.answers import Answer, problem_answer
from gateway.api.desk import TenantRef
from gateway.api.exchange import Exchange

Handler = Callable[[Exchange, TenantRef], Awaitable[Answer]]
AT_ONCE: Final = 5  # of the ten connections of a process's pool (`gateway.runtime`)
OF_A_TENANT: Final = 3
PATIENCE_S: Final = 1.0


class Aside:
    """The room of one process: few calls at once, fewer of one tenant; who finds none in a second is told to repeat."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(AT_ONCE)
        self._tenants: dict[int, asyncio.Semaphore] = {}

    def __call__(self, handler: Handler) -> Handler:
        """The handler with its place in the room."""

        async def answer(exchange: Exchange, tenant: TenantRef) -> Answer:
            own = self._tenants.setdefault(tenant.id, asyncio.Semaphore(OF_A_TENANT))
            async with AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(PATIENCE_S):
                        await stack.enter_async_context(own)
                        await stack.enter_async_context(self._room)
                except TimeoutError:
                    return problem_answer(OVERLOAD)
                return await handler(exchange, tenant)

        return answer
