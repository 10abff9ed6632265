"""One request to the console: who asks, whether a form is theirs, and the page that goes back.

A page is shown only to who is logged in; a form counts only with the session's token and from this very origin.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import asyncpg
from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from gateway import logs
from gateway.console.logins import Logins, Visitor
from gateway.ledger.connect import LEDGER_ERRORS
from gateway.operators.desk import Desk

GUARDS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: browsers then send `Origin: null` with forms, and we could not tell whose they are.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
PAGES: Final = (
    ("/console", "Overview"),
    ("/console/carriers", "Carriers"),
    ("/console/tenants", "Tenants"),
    ("/console/messages", "Messages"),
    ("/console/policy", "Policy"),
    ("/console/audit", "Audit"),
)
NOTICE: Final = "sluicegate_notice"
_NOTICE_S: Final = 30
FORM_MAX: Final = 4 << 20  # a policy of 1 MiB, each octet written as three
_FIELDS_MAX: Final = 20
_log = logs.get("console")


@dataclass(slots=True)
class Site:
    """What all pages share."""

    desk: Desk
    logins: Logins
    templates: Environment
    assets: dict[str, str]  # name -> address with its digest
    pages: tuple[tuple[str, str], ...] = PAGES


@dataclass(slots=True)
class Visit:
    """A request of somebody who is logged in."""

    site: Site
    request: Request
    visitor: Visitor
    form: dict[str, str] = field(default_factory=dict)

    @property
    def desk(self) -> Desk:
        """The desk of this port."""
        return self.site.desk

    @property
    def actor(self) -> str:
        """How the audit names who asks."""
        return self.visitor.actor

    def query(self, name: str, longest: int = 200) -> str:
        """A parameter of the address, cut and trimmed."""
        return self.request.query_params.get(name, "")[:longest].strip()

    def show(self, template: str, code: int = 200, **words: Any) -> Response:
        """A page; for htmx only its middle. The notice of the act before is shown once."""
        notice = read_notice(self.site.logins, self.request)
        answer = render(self.site, self.request, template, code, visitor=self.visitor, notice=notice, **words)
        if notice is not None:
            answer.delete_cookie(NOTICE, path="/console")
        return answer

    def done(self, target: str, text: str, tone: str = "good") -> Response:
        """After an act: back to a page that says what was done. `target` is a path of ours."""
        answer = RedirectResponse(target, 303, headers=GUARDS)
        written = base64.urlsafe_b64encode(f"{tone} {text}".encode()).decode()
        signed = f"{written}.{self.site.logins.sign('notice', written)}"
        answer.set_cookie(NOTICE, signed, max_age=_NOTICE_S, path="/console", httponly=True, samesite="strict")
        return answer


Handler = Callable[[Visit], Awaitable[Response]]


def page(site: Site, path: str, handler: Handler) -> Route:
    """A page that only reads."""

    async def answer(request: Request) -> Response:
        return await _guarded(site, request, handler, None)

    return Route(path, answer, methods=["GET"])


def act(site: Site, path: str, handler: Handler) -> Route:
    """A form that changes something."""

    async def answer(request: Request) -> Response:
        form = await read_form(request)
        if form is None:
            return refused(site, request, 413, "The form is too large", "A policy may have up to 1 MiB.")
        return await _guarded(site, request, handler, form)

    return Route(path, answer, methods=["POST"])


async def _guarded(site: Site, request: Request, handler: Handler, form: dict[str, str] | None) -> Response:
    try:
        visitor = await site.logins.visitor(request)
        if visitor is None:
            return login_wanted(site, request)
        if form is not None:
            if not from_here(request):
                return refused(site, request, 403, "This form came from somewhere else", _ELSEWHERE)
            if not hmac.compare_digest(visitor.csrf, form.get("csrf") or request.headers.get("x-csrf-token", "")):
                return refused(site, request, 403, "This form is not of your session", _STALE)
        return await handler(Visit(site, request, visitor, form or {}))
    except LEDGER_ERRORS as error:
        if isinstance(error, asyncpg.DataError):
            return refused(site, request, 422, "That cannot be read", "A value in the address is not what it must be.")
        _log.warning("console_request_failed", error=type(error).__name__)
        return refused(site, request, 503, "PostgreSQL does not answer", _LEDGER_AWAY)
    except Exception as error:
        _log.error("console_request_failed", exc_info=error)
        return refused(site, request, 500, "Something broke here", "The log of this process says what. Try once more.")


_ELSEWHERE: Final = (
    "The browser says that the form was sent by another site, or a proxy in between changes the Host header: it must "
    "pass it on. Nothing was done."
)
_STALE: Final = "Perhaps you logged in again in another window. Nothing was done: reload the page and do it again."
_LEDGER_AWAY: Final = (
    "Nothing can be shown without it. Look whether the server runs and whether SLUICEGATE_DATABASE_URL still points "
    "to it; messages that were accepted are safe, new ones are answered 503 until it is back."
)


def render(site: Site, request: Request, template: str, code: int = 200, **words: Any) -> Response:
    """A template as an answer, with everything that guards it."""
    layout = "part.html" if request.headers.get("hx-request") else "page.html"
    words = {"visitor": None, "notice": None, "path": request.url.path, "pages": site.pages} | words
    text = site.templates.get_template(template).render(layout=layout, assets=site.assets, **words)
    return HTMLResponse(text, code, headers=GUARDS)


def refused(site: Site, request: Request, status: int, title: str, advice: str) -> Response:
    """A page that says what went wrong and what to do; a page that is open already keeps what it shows."""
    answer = render(site, request, "refused.html", status, title=title, advice=advice)
    answer.headers["X-Console-Reason"] = title
    return answer


def login_wanted(site: Site, request: Request, fault: str | None = None, status: int = 401) -> Response:
    """The way in."""
    answer = render(site, request, "login.html", status, fault=fault, token=None)
    if request.headers.get("hx-request"):
        answer.headers["HX-Redirect"] = "/console"
    return answer


def from_here(request: Request) -> bool:
    """Whether a form was sent by a page of this origin (the browser says so, a page cannot)."""
    site = request.headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        return False
    return urlsplit(request.headers.get("origin", "")).netloc == request.headers.get("host", "")


async def read_form(request: Request) -> dict[str, str] | None:
    """The fields of a form, bounded before they are read; None where there is too much of it."""
    taken = bytearray()
    async for chunk in request.stream():
        taken += chunk
        if len(taken) > FORM_MAX:
            return None
    try:
        return dict(parse_qsl(taken.decode("ascii"), keep_blank_values=True, max_num_fields=_FIELDS_MAX))
    except (UnicodeDecodeError, ValueError):
        return {}


def read_notice(logins: Logins, request: Request) -> tuple[str, str] | None:
    """Tone and text of what the act before left to say; only what we signed is shown."""
    written, _, signature = request.cookies.get(NOTICE, "").partition(".")
    if not written or not hmac.compare_digest(logins.sign("notice", written), signature):
        return None
    tone, _, text = base64.urlsafe_b64decode(written).decode().partition(" ")
    return tone, text
