"""`strom history-server`: the archive of a session, without Ray."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from . import answers
from .cluster import Json
from .rest_options import RestHost, RestName, RestPort, RestTokenFile, RestTokens, serving_of


def history_server(
    folder: Annotated[
        str, typer.Argument(help="The registry of a session: an fsspec URL or path.")
    ],
    rest_host: RestHost = "127.0.0.1",
    rest_port: RestPort = None,
    rest_tokens: RestTokens = None,
    rest_token_file: RestTokenFile = None,
    rest_name: RestName = None,
    as_json: Json = False,
) -> None:
    """Serve the jobs in FOLDER that are over, over REST, until Ctrl-C."""
    with answers.answering(as_json):
        from ..rest.catalogs.archive import Archive
        from ..rest.servers.api import HISTORY_PORT, serve

        serving = serving_of(rest_host, rest_port, rest_tokens, rest_token_file, rest_name)
        archive = Archive(folder)
        jobs = len(archive.jobs())
        server = serve(archive, serving, HISTORY_PORT)
        try:
            if as_json:
                answers.say_json({"rest": server.url, "rest_tokens": serving.tokens, "jobs": jobs})
            else:
                answers.say(f"{jobs} jobs at {server.url}/v1, until Ctrl-C")
            until_interrupted()
        except KeyboardInterrupt:
            pass
        finally:
            server.close()


def until_interrupted() -> None:
    threading.Event().wait()
