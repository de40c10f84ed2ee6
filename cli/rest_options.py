"""Options of commands that serve the REST API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

RestHost = Annotated[
    str,
    typer.Option("--rest-host", help="The address to listen on; beyond loopback with tokens."),
]
RestPort = Annotated[
    int | None,
    typer.Option(
        "--rest-port", help="0: any that is free; else the usual one if that is.", min=0, max=65535
    ),
]
RestTokens = Annotated[
    bool | None,
    typer.Option(
        "--rest-tokens/--no-rest-tokens",
        help="Whether requests need a token; else only beyond loopback.",
    ),
]
RestTokenFile = Annotated[
    Path | None,
    typer.Option(
        "--rest-token-file", help="Where tokens are; new ones if there is no such file yet."
    ),
]
RestName = Annotated[
    list[str] | None,
    typer.Option("--rest-name", help="What clients call this machine. May be given again."),
]
RestPrograms = Annotated[
    bool | None,
    typer.Option(
        "--rest-programs/--no-rest-programs",
        help="Whether programs may be uploaded and run; else only where tokens are needed.",
    ),
]


def serving_of(
    host: str,
    port: int | None,
    tokens: bool | None,
    file: Path | None,
    names: list[str] | None,
    programs: bool | None = False,
) -> Any:
    """What the options, and tokens in the environment, come to: a `rest.servers.api.Serving`.
    ConfigurationError if they do not fit together."""
    from ..rest.servers.api import Serving
    from ..rest.servers.listener import is_loopback
    from ..rest.servers.tokens import keep_tokens, tokens_in, tokens_of_environment

    given = tokens_of_environment()
    named = given is not None or file is not None
    wanted = (named or not is_loopback(host)) if tokens is None else tokens
    path = (file or Path.home() / ".strom" / "rest-tokens.json").absolute()
    if wanted and given is not None:
        keep_tokens(path, given)
    elif wanted:
        tokens_in(path)
    uploads = wanted if programs is None else programs
    folder = str(Path.home() / ".strom" / "programs") if uploads else None
    return Serving(host, port, str(path) if wanted else None, tuple(names or ()), folder)
