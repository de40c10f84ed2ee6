"""What stands before every request: for this host, from this origin, with a token, of a size.

    400  the path holds a line break or the like, which routes overlook at a path's end
    421  the Host header names another machine: a page in a browser that a name was rebound for
    403  the request comes from a page of another origin; or the token may not operate
    401  no token, or a wrong one
    413  the body is larger than allowed, which is noticed while it comes
    408  the body comes too slowly

There are no cookies: a browser that sends a token was told it by the page it shows.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..programs.uploads import NO_PROGRAMS
from .errors import refusal
from .tokens import Role, Tokens

READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})

HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Of every answer."""

PROFILES: Final = re.compile(r"(/v1)?/jobs/[^/]*/vertices/[^/]*/flamegraph")
"""Reading them makes something happen: processes are looked into."""

UPLOADS: Final = tuple(f"{v}/{what}/upload" for v in ("", "/v1") for what in ("programs", "jars"))


@dataclass(frozen=True)
class Access:
    """`tokens`: None lets everybody in who reaches the port. `hosts`: names that the server may be
    called by, beside addresses and localhost. `public`: paths that need no token, those below them
    if they end with a slash. Sizes are bytes, times seconds."""

    tokens: Tokens | None = None
    hosts: frozenset[str] = frozenset()
    public: tuple[str, ...] = ()
    programs: bool = True
    """Whether uploads are taken; else nobody's is read."""
    body_limit: int = 1 << 20
    upload_limit: int = 100 << 20
    body_s: float = 20.0
    """How long a body may take."""
    upload_s: float = 600.0
    piece_s: float = 20.0
    """How long a body may pause."""

    def is_public(self, path: str) -> bool:
        return any(
            path == one or (len(one) > 1 and one.endswith("/") and path.startswith(one))
            for one in self.public
        )


class Guard:
    """See the module. An ASGI application around another."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        headers = _headers(scope)
        refused = self._refused(scope, headers)
        secured = _Secured(send)
        if refused is not None:
            status, why = refused
            extra = {"WWW-Authenticate": "Bearer"} if status == 401 else None
            await refusal(status, why, headers=extra)(scope, receive, secured)
            return
        limit, seconds = self._limits(scope["path"])
        body = _Body(receive, limit, seconds, self._access.piece_s)
        await self._app(scope, body, secured)

    def _limits(self, path: str) -> tuple[int, float]:
        access = self._access
        if path in UPLOADS:
            return access.upload_limit, access.upload_s
        return access.body_limit, access.body_s

    def _refused(self, scope: Scope, headers: dict[str, list[str]]) -> tuple[int, str] | None:
        """(status, why), or None: it may pass."""
        if not scope["path"].isprintable():
            return 400, "the path has characters that none has"
        hosts = headers.get("host", [])
        if len(hosts) != 1 or not self._is_mine(hosts[0]):
            return 421, "this server is not called so: use its address, localhost or a known name"
        reading = scope["method"] in READING and not PROFILES.fullmatch(scope["path"])
        if not _same_origin(headers, hosts[0], reading):
            return 403, "the request comes from a page of another origin"
        if not self._access.is_public(scope["path"]):
            refused = self._refused_by_token(headers, "read" if reading else "operate")
            if refused is not None:
                return refused
        if scope["path"] in UPLOADS and not self._access.programs:
            return 403, NO_PROGRAMS
        lengths = headers.get("content-length", [])
        limit, _ = self._limits(scope["path"])
        if any(length.isdigit() and int(length[:20]) > limit for length in lengths):
            return 413, f"the body is larger than {limit} bytes"
        return None

    def _refused_by_token(
        self, headers: dict[str, list[str]], needed: Role
    ) -> tuple[int, str] | None:
        if self._access.tokens is None:
            return None
        given = headers.get("authorization", [])
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        role = self._access.tokens.role_of(token.strip()) if scheme.lower() == "bearer" else None
        if role is None:
            return 401, "send a token: Authorization: Bearer <token>"
        if needed == "operate" and role != "operate":
            return 403, "this token may read only: send the one to operate"
        return None

    def _is_mine(self, host: str) -> bool:
        name = _name(host)
        if name in {"localhost", *self._access.hosts}:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def _name(host: str) -> str:
    """Of `name:port` or `[address]:port`."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _same_origin(headers: dict[str, list[str]], host: str, reading: bool) -> bool:
    for origin in headers.get("origin", []):
        if origin.partition("://")[2].lower() != host.lower():
            return False
    sites = headers.get("sec-fetch-site", [])
    return reading or all(site in ("same-origin", "none") for site in sites)


class _Secured:
    """Sends on, with the headers of every answer."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            known = {name.lower() for name, _ in message.get("headers", ())}
            more = [one for one in HEADERS if one[0] not in known]
            if b"cache-control" not in known:
                more.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await self._send(message)


class _Body:
    """Receives, until there is too much of it or it takes too long."""

    def __init__(self, receive: Receive, limit: int, seconds: float, piece_s: float) -> None:
        self._receive = receive
        self._limit = limit
        self._left = limit
        self._ends = time.monotonic() + seconds
        self._piece_s = piece_s
        self._whole = False

    async def __call__(self) -> Message:
        if self._whole:  # what is waited for now is the end of the connection
            return await self._receive()
        wait = min(self._piece_s, self._ends - time.monotonic())
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, wait))
        except TimeoutError:
            raise HTTPException(
                408, "the body comes too slowly", headers={"Connection": "close"}
            ) from None
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._left < 0:
                raise HTTPException(
                    413,
                    f"the body is larger than {self._limit} bytes",
                    headers={"Connection": "close"},
                )
        return message
