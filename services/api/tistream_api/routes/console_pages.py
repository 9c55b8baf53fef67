"""Serves the web console's files at `/console/`. They are read once from the package, and get their data from the
API."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from tistream.errors import UnknownName
from tistream_api.request.raw_path import name_of

INDEX = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# No content from elsewhere, no inline scripts or styles, no framing. No text ever becomes markup (trusted types).
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class Page:
    """One file of the console."""

    body: bytes
    media_type: str
    etag: str


def read_pages() -> dict[str, Page]:
    """Read every file of the console. Returns them by name."""
    found = {}
    for file in files("tistream_api").joinpath("console").iterdir():
        ending = file.name[file.name.rfind(".") :]
        if ending in _TYPES:
            body = file.read_bytes()
            found[file.name] = Page(body, _TYPES[ending], f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return found


def build_pages() -> APIRouter:
    """Build the routes of the console. They need no token, because the files name no tenant and contain no secret."""
    router = APIRouter(include_in_schema=False)
    pages = read_pages()

    @router.get("/")
    async def root() -> Response:
        """Redirect from the server's root to the console."""
        return RedirectResponse("console/", 307, HEADERS)

    @router.get("/docs")
    async def docs() -> Response:
        """Redirect to the page that shows the OpenAPI document."""
        return RedirectResponse("console/docs.html", 307, HEADERS)

    @router.get("/console")
    async def console() -> Response:
        """Redirect to the path at which relative names work, whatever prefix a proxy adds."""
        return RedirectResponse("console/", 308, HEADERS)

    @router.get("/console/{name:path}")
    async def page(request: Request, name: str) -> Response:
        """One file. The name is looked up among the files read at start; no path is opened."""
        found = pages.get(name_of(name) or INDEX)
        if found is None:
            raise UnknownName(f"the console has no file {name[:80]!r}: begin at /console")
        headers = {**HEADERS, "ETag": found.etag}
        if request.headers.get("if-none-match") == found.etag:
            return Response(None, 304, headers)
        return Response(found.body, 200, headers, found.media_type)

    return router
