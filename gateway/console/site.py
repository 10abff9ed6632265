"""The routes of the console, its way in and out, and its assets: all from the package, nothing from afar."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from gateway import logs
from gateway.console import audits, carriers, messages, overview, policies, tenants, words
from gateway.console.logins import COOKIE, SESSION_S, Logins, address_of
from gateway.console.visit import (
    GUARDS,
    Site,
    Visit,
    act,
    from_here,
    login_wanted,
    read_form,
    refused,
    render,
)
from gateway.ledger.connect import LEDGER_ERRORS
from gateway.operators.desk import Desk

_HERE: Final = Path(__file__).parent
_STATIC: Final = _HERE / "static"
_KINDS: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_log = logs.get("console")


def console_routes(desk: Desk) -> list[Route]:
    """The routes of the console."""
    templates = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(words.FILTERS)
    files = {path.relative_to(_STATIC).as_posix(): path for path in sorted(_STATIC.rglob("*")) if path.suffix in _KINDS}
    octets = {name: path.read_bytes() for name, path in files.items()}
    assets = {
        name: f"/console/assets/{name}?{hashlib.sha256(content).hexdigest()[:12]}" for name, content in octets.items()
    }
    site = Site(desk, Logins(desk.rt), templates, assets)

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in octets:
            return Response(status_code=404)
        # Its address changes with its content.
        headers = GUARDS | {"Cache-Control": "private, max-age=31536000, immutable"}
        return Response(octets[name], media_type=_KINDS[files[name].suffix], headers=headers)

    return [
        *overview.routes(site),
        *carriers.routes(site),
        *messages.routes(site),
        *tenants.routes(site),
        *policies.routes(site),
        *audits.routes(site),
        act(site, "/console/logout", _logout),
        *_login_routes(site),
        Route("/console/assets/{name:path}", asset),
    ]


def _login_routes(site: Site) -> list[Route]:
    failures = site.desk.failures  # wrong keys in the header of /admin calls count as well

    async def ask(request: Request) -> Response:
        # Looking at a link does not spend it: mail scanners and previews look at links.
        token = request.query_params.get("token", "")
        if not token:
            return render(site, request, "login.html", fault=None, token=None)
        if not site.desk.links.holds(token):
            return login_wanted(site, request, _LINK_SPENT)
        return render(site, request, "login.html", fault=None, token=token)

    async def enter(request: Request) -> Response:
        form = await read_form(request) or {}
        if not from_here(request):
            return refused(site, request, 403, "This form came from somewhere else", "Open the link here, and log in.")
        if failures.too_many(address_of(request)):
            return login_wanted(site, request, "Too many wrong tries from your address: wait a minute.", 429)
        try:
            cookie = await _opened(site, request, form)
        except LEDGER_ERRORS as error:
            _log.warning("console_request_failed", error=type(error).__name__)
            return refused(site, request, 503, "PostgreSQL does not answer", "Nobody can log in without it.")
        if cookie is None:
            failures.note(address_of(request))
            _log.warning("console_login_refused")
            return login_wanted(site, request, _LINK_SPENT if "token" in form else _KEY_WRONG)
        answer = RedirectResponse("/console", 303, headers=GUARDS)
        answer.set_cookie(
            COOKIE, cookie, max_age=SESSION_S, path="/console", httponly=True, samesite="strict",
            secure=request.url.scheme == "https",
        )  # fmt: skip
        return answer

    return [
        Route("/console/login", ask, methods=["GET"]),
        Route("/console/login", enter, methods=["POST"]),
    ]


_LINK_SPENT: Final = "This link was used already, is too old, or is of another process. Ask for a new one."
_KEY_WRONG: Final = "This is no operators' key that may be used from here."


async def _opened(site: Site, request: Request, form: dict[str, str]) -> str | None:
    """The cookie of a new session, for a link's token or an operators' key."""
    if "token" in form:
        by = site.desk.links.redeem(form["token"])
        return None if by is None else await site.logins.begin(f"console, link of {by}")
    key = await site.desk.operators_key(form.get("key", "").strip())
    if key is None or not key.allows_address(address_of(request)):
        return None
    return await site.logins.begin(f"console, key {key.id}", key.id)


async def _logout(visit: Visit) -> Response:
    await visit.site.logins.end(visit.visitor)
    answer = RedirectResponse("/console/login", 303, headers=GUARDS | {"Clear-Site-Data": '"cache"'})
    answer.delete_cookie(COOKIE, path="/console")
    return answer
