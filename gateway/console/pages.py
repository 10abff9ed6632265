"""The console: pages for a browser that came by a login link."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from gateway.operators.desk import COOKIE, SESSION_S, Desk
from gateway.operators.look import look

_HERE = Path(__file__).parent
_GUARDS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_ASSETS = {"console.css": "text/css", "console.js": "text/javascript"}


def console_routes(desk: Desk) -> list[Route]:
    """The routes of the console."""
    templates = Environment(
        loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    templates.filters["span"] = span

    async def show(request: Request, template: str) -> Response:
        if not desk.has_console(request):
            return HTMLResponse(templates.get_template("login.html").render(), 401, headers=_GUARDS)
        rt = desk.rt
        status = await look(rt.pool, rt.scheduler, rt.policies.current, rt.clock.now_at())
        return HTMLResponse(templates.get_template(template).render(status=status), headers=_GUARDS)

    async def page(request: Request) -> Response:
        return await show(request, "console.html")

    async def now(request: Request) -> Response:
        return await show(request, "status.html")

    async def login(request: Request) -> Response:
        if not desk.links.redeem(request.query_params.get("token", "")):
            return HTMLResponse(templates.get_template("login.html").render(), 401, headers=_GUARDS)
        answer = RedirectResponse("/console", 303, headers=_GUARDS)
        answer.set_cookie(
            COOKIE, desk.sessions.issue(), max_age=int(SESSION_S), path="/console", httponly=True, samesite="strict"
        )
        return answer

    async def asset(request: Request) -> Response:
        kind = _ASSETS.get(request.path_params["name"])
        if kind is None:
            return Response(status_code=404)
        return FileResponse(_HERE / "static" / request.path_params["name"], media_type=kind)

    return [
        Route("/console", page),
        Route("/console/now", now),
        Route("/console/login", login),
        Route("/console/{name}", asset),
    ]


def span(milliseconds: float | None) -> str:
    """A duration in words that fit into a table cell."""
    if milliseconds is None:
        return "?"
    seconds = milliseconds / 1000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{milliseconds:.0f} ms"
