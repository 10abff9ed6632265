"""A tenant's endpoint that takes every callback and writes down which: the callback journal of a run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType

import orjson
from aiohttp import web


@dataclass(frozen=True, slots=True)
class TakenCallback:
    """One POST that was answered with 204."""

    webhook_id: str
    type: str
    message: str
    seq: int
    status: str
    at: int = 0  # UTC ms


class CallbackSink:
    """`async with CallbackSink() as sink`: `sink.url` is the endpoint, `sink.taken` the journal in order of arrival.

    `refuse_every`: each n-th POST is answered with 503, so that retries happen.
    """

    def __init__(self, refuse_every: int = 0) -> None:
        self.taken: list[TakenCallback] = []
        self.url = ""
        self._refuse_every = refuse_every
        self._posts = 0
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> CallbackSink:
        app = web.Application()
        app.router.add_post("/hooks", self._take)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}/hooks"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        try:
            body = orjson.loads(await request.read())
        except ConnectionError:  # its link was cut inside the body
            return web.Response(status=503)
        self._posts += 1
        if self._refuse_every and self._posts % self._refuse_every == 0:
            return web.Response(status=503)
        data = body["data"]
        self.taken.append(
            TakenCallback(
                request.headers["webhook-id"],
                body["type"],
                str(data["id"]),
                int(data["seq"]),
                str(data["status"]),
                time.time_ns() // 1_000_000,
            )
        )
        return web.Response(status=204)
