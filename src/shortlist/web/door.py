"""Turns pages and forms into endpoints that only a signed-in browser can use."""

import csv
import io
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TypeAlias
from urllib.parse import parse_qsl, urlsplit

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from shortlist.access.jwt import TokenRefused
from shortlist.errors import ShortlistError, StoreError
from shortlist.front.border import Border
from shortlist.web.access import SESSION_SECONDS, Access, Session
from shortlist.web.filters import RANGES
from shortlist.web.guard import SESSION, is_own_form
from shortlist.web.page import Download, MakePage, NoSuchPage, NotForThisToken, Page, Sources, Visit
from shortlist.web.templating import render

MAX_FORM_BYTES = 32_768

PageEndpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
Change: TypeAlias = Callable[[Visit], "str | Page"]
"""Does what a form asks for, in a worker thread, and returns the address to show next, or a page."""


class Door:
    """Makes endpoints of pages and changes. Without a session nobody sees or changes anything."""

    def __init__(self, sources: Sources, access: Access, border: Border) -> None:
        self._sources = sources
        self._access = access
        self._border = border
        self.no_such_page = self.page(_no_such_page)

    def page(self, make: MakePage) -> PageEndpoint:
        """Show a page. It is made in a worker thread, since it reads the store and searches."""

        async def answer(request: Request) -> Response:
            visit = self._visit(request)
            if visit is None:
                return self._closed()
            made = await anyio.to_thread.run_sync(_made, make, visit)
            return _sent(made) if isinstance(made, Download) else _written(made, visit)

        return answer

    def change(self, change: Change) -> PageEndpoint:
        """Do what a form asks for, if a page of this session sent it and its visitor has full rights."""

        async def answer(request: Request) -> Response:
            visit = self._visit(request)
            if visit is None:
                return self._closed()
            form = await _form(request)
            if not is_own_form(request.headers) or not visit.session.allows(form.get("csrf", "")):
                return _written(_REFUSED, visit)
            try:
                if visit.limited:
                    raise NotForThisToken
                done = await anyio.to_thread.run_sync(change, replace(visit, form=form))
            except ShortlistError as error:
                return _written(_failure(error), visit)
            return RedirectResponse(done, 303) if isinstance(done, str) else _written(done, visit)

        return answer

    async def follow_link(self, request: Request) -> Response:
        """Use up a one-time link."""
        secret = self._access.follow(request.query_params.get("key", ""))
        return self._closed("used link") if secret is None else self._opened(request, secret)

    async def sign_in(self, request: Request) -> Response:
        """Sign in with a token: a browser sends no bearer header."""
        given = await _form(request) if is_own_form(request.headers) else {}
        try:
            principal = await self._border.identify(given.get("token", "").strip())
        except TokenRefused as error:
            return self._closed("wrong token", error.reason)
        return self._opened(request, self._access.open(principal))

    async def sign_out(self, request: Request) -> Response:
        visit = self._visit(request)
        if visit is not None and await _is_from(request, visit.session):
            self._access.close(request.cookies.get(self._access.cookie, ""))
        return RedirectResponse("/", 303)

    async def finish_login(self, request: Request) -> Response:
        """Take the answer of a login to a server; its secret state is known only to the browser that began it."""
        logins = self._sources.controls.logins
        try:
            if logins is None:
                raise NoSuchPage("No login is waiting for an answer here.")
            server = await anyio.to_thread.run_sync(logins.finish, dict(request.query_params))
        except ShortlistError as error:
            return HTMLResponse(render("signed_in.html", {"server": "", "problem": str(error)}), 400)
        return HTMLResponse(render("signed_in.html", {"server": server, "problem": ""}))

    def _visit(self, request: Request) -> Visit | None:
        session: Session | None = request.scope[SESSION]
        if session is None:
            return None
        return Visit(
            sources=self._sources,
            session=session,
            base=self._base(request),
            address=request.url.path,
            path=request.path_params,
            query=request.query_params,
        )

    def _base(self, request: Request) -> str:
        public = urlsplit(self._sources.state.settings.oauth.resource)
        scheme, host = (public.scheme, public.netloc) if public.netloc else (request.url.scheme, request.url.netloc)
        return f"{scheme}://{host}"

    def _opened(self, request: Request, secret: str) -> Response:
        # A page that goes on by itself, not a redirect: after a link from another site, the browser sends the strict
        # cookie only from a page of ours.
        response = HTMLResponse(render("opened.html", {}))
        response.set_cookie(
            self._access.cookie,
            secret,
            max_age=int(SESSION_SECONDS),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    def _closed(self, problem: str = "", reason: str = "") -> Response:
        values = {"problem": problem, "reason": reason, "tokens": self._sources.state.settings.has_callers}
        return HTMLResponse(render("closed.html", values), 401)


def _made(make: MakePage, visit: Visit) -> Page | Download:
    try:
        return make(visit)
    except ShortlistError as error:
        return _failure(error)


def _written(page: Page, visit: Visit) -> Response:
    values = {
        "title": page.title,
        "address": visit.address,
        "caller": visit.session.principal,
        "limited": visit.limited,
        "csrf": visit.session.csrf,
        "filter": visit.filter,
        "ranges": RANGES,
        "may_return": visit.state.settings.has_callers,  # a one-time link does not open twice
        **page.values,
    }
    return HTMLResponse(render(page.template, values), page.status)


def _sent(table: Download) -> Response:
    written = io.StringIO()
    rows = csv.writer(written)
    rows.writerow(table.columns)
    rows.writerows([_cell(value) for value in row] for row in table.rows)
    headers = {"Content-Disposition": f'attachment; filename="shortlist-{table.name}.csv"'}
    return Response(written.getvalue(), headers=headers, media_type="text/csv; charset=utf-8")


def _cell(value: object) -> object:
    """Keep a spreadsheet from running what a stranger wrote: a text that begins like a formula gets a quote."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def _failure(error: ShortlistError) -> Page:
    title, status = next((found for kind, found in _FAILURES.items() if isinstance(error, kind)), ("Not possible", 400))
    return Page("problem.html", title, {"message": str(error)}, status)


_FAILURES: Mapping[type[ShortlistError], tuple[str, int]] = {
    NoSuchPage: ("Not found", 404),
    NotForThisToken: ("Not for this token", 403),
    StoreError: ("Nothing to show", 503),
}


def _no_such_page(visit: Visit) -> Page:
    raise NoSuchPage(f"No page {visit.address!r}.")


_REFUSED = Page(
    "problem.html",
    "Refused",
    {"message": "The form is not from this session. Go back, load the page again, retry."},
    403,
)


async def _is_from(request: Request, session: Session) -> bool:
    return is_own_form(request.headers) and session.allows((await _form(request)).get("csrf", ""))


async def _form(request: Request) -> dict[str, str]:
    """Read a small form; one that is too large counts as empty."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            return {}
    return dict(parse_qsl(body.decode("utf-8", "replace")))
