"""The files of the dashboard, as answers: from memory, with an ETag, and nothing but themselves
allowed to run in the page.

A browser asks each time whether what it has is still right (`no-cache`), so that a page never mixes
the files of two versions for longer than a reload.
"""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from fastapi import APIRouter, HTTPException, Request, Response

PUBLIC: Final = ("/", "/static/")
"""Paths that hold no data of jobs: who has no token yet needs them to be asked for it."""

POLICY: Final = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
"""Names of jobs and texts of errors are users' data: even where a page took one for markup, the
browser would refuse to read it as such."""

HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

TYPES: Final = {".js": "text/javascript", ".svg": "image/svg+xml"}
"""Where what the machine says of them may be wrong."""

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Page:
    content: bytes
    media_type: str
    etag: str


@router.get("/")
@router.head("/")
async def index(request: Request) -> Response:
    return _answer(request, "index.html")


@router.get("/static/{name:path}")
@router.head("/static/{name:path}")
async def static(request: Request, name: str) -> Response:
    return _answer(request, name)


def _answer(request: Request, name: str) -> Response:
    page = pages().get(name)
    if page is None:
        raise HTTPException(404, "there is no such file")
    headers = {**HEADERS, "ETag": page.etag}
    known = request.headers.get("if-none-match", "")
    if page.etag in {one.strip().removeprefix("W/") for one in known.split(",")}:
        return Response(status_code=304, headers=headers)
    return Response(page.content, media_type=page.media_type, headers=headers)


@cache
def pages() -> dict[str, Page]:
    """All files by their path below `static`: a quarter of a megabyte."""
    found: dict[str, Page] = {}
    _collect(files(__package__) / "static", "", found)
    return found


def _collect(folder: Traversable, prefix: str, found: dict[str, Page]) -> None:
    for one in folder.iterdir():
        name = f"{prefix}{one.name}"
        if one.is_dir():
            _collect(one, f"{name}/", found)
            continue
        content = one.read_bytes()
        ending = name[name.rfind(".") :]
        media_type = TYPES.get(ending) or mimetypes.guess_type(name)[0] or "text/plain"
        digest = hashlib.sha256(content).hexdigest()[:24]
        found[name] = Page(content, media_type, f'"{digest}"')
