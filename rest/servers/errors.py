"""How the API says no: `{"errors": [...]}`, as Flink's does, with the status that fits."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict

from ...core.errors import CheckpointError, StromError
from ...core.redaction import redacted
from ..catalogs.catalog import NoSuchJob, Refused, Unavailable
from ..programs.runs import NoSuchRun
from ..programs.uploads import NoSuchProgram

log = logging.getLogger("strom")


class Errors(TypedDict):
    errors: list[str]


STATUSES: dict[type[StromError], int] = {
    NoSuchJob: 404,
    NoSuchProgram: 404,
    NoSuchRun: 404,
    Unavailable: 503,
    Refused: 409,
}

RESPONSES: dict[int | str, dict[str, Any]] = {
    code: {"model": Errors, "description": text}
    for code, text in {
        400: "The request is wrong.",
        401: "A token is needed.",
        403: "The token does not allow this, or the request comes from elsewhere.",
        404: "There is no such thing.",
        409: "It cannot be done, or not now.",
        408: "The body comes too slowly.",
        413: "The body is too large.",
        421: "The request is for another host.",
        503: "Who knows does not answer now.",
    }.items()
}
"""What every path may answer besides."""


def refusal(status: int, *reasons: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"errors": list(reasons)}, status, headers)


def install(app: FastAPI) -> None:
    """Have everything that is raised in `app` answered so."""

    @app.exception_handler(StromError)
    async def known(request: Request, error: StromError) -> JSONResponse:
        status = 503 if isinstance(error, CheckpointError) else STATUSES.get(type(error), 400)
        return refusal(status, redacted(str(error)))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers) if error.headers else None
        return refusal(error.status_code, str(error.detail), headers=headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return refusal(400, *_reasons(error.errors()))

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        log.error("REST: %s %s", request.method, request.url.path, exc_info=error)
        return refusal(500, "strom has no words for this: its log has the traceback")


def _reasons(errors: Sequence[Any]) -> list[str]:
    """Where and what, without the value, which may be a secret."""
    return [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in errors]
