"""`strom dashboard`: the session's pages, in a browser."""

from __future__ import annotations

import html
import os
import secrets
import subprocess
import sys
import time
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import typer

from . import answers
from .cluster import Address, Json

LEADING: Final = "dashboard"
LEADING_S: Final = 30.0
"""How long a browser may take to start."""

_removing: list[subprocess.Popen[bytes]] = []
"""They outlive this process, and nobody waits for them."""


def dashboard(
    job: Annotated[str | None, typer.Argument(help="The id of a job; else all of them.")] = None,
    open_: Annotated[
        bool, typer.Option("--open/--no-open", help="Open a browser; else only say where it is.")
    ] = True,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """The dashboard of the session: its jobs in a browser."""
    with answers.answering(as_json):
        from ..engine.hosts.ray_connect import join_ray
        from ..rest.servers import session_server
        from ..rest.servers.job_server import link

        join_ray(address, log_to_driver=False)
        found = session_server.about()
        if found is None:
            answers.fail(
                "the cluster has no dashboard: `strom cluster start`", as_json, answers.USAGE
            )
        page = "/jobs" if job is None else f"/jobs/{job}"
        url, tokens = found["rest"], found["rest_tokens"]
        opened = open_ and not as_json and _open(link(url, tokens, page))
        if as_json:
            answers.say_json({"url": f"{url}/#{page}", "tokens": tokens})
            return
        answers.say(f"{'opened' if opened else 'the dashboard'}: {url}/#{page}")
        if tokens is not None and not opened:
            answers.say(f"it asks for a token: {tokens}")


def _open(url: str) -> bool:
    """Whether a browser was found. It is given a file of this user's that leads to `url`: who else
    is on this machine may see what programs are called with, and `url` may hold a token. The file
    is there for `LEADING_S` only."""
    if "#token=" not in url:
        return webbrowser.open(url)
    folder = Path.home() / ".strom"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _tidy(folder)
    leading = folder / f"{LEADING}-{secrets.token_hex(8)}.html"
    made = os.open(leading, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(made, "w", encoding="ascii", errors="xmlcharrefreplace") as file:
        told = html.escape(url, quote=True)
        file.write(f'<meta http-equiv="refresh" content="0;url={told}"><a href="{told}">strom</a>')
    # The browser may take longer to start than this command.
    later = "import os, sys, time; time.sleep(float(sys.argv[1])); os.unlink(sys.argv[2])"
    _removing.append(
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", later, str(LEADING_S), str(leading)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    )
    opened = webbrowser.open(leading.as_uri())
    if not opened:
        leading.unlink(missing_ok=True)
    return opened


def _tidy(folder: Path) -> None:
    """What is left of a machine that was switched off meanwhile."""
    for old in folder.glob(f"{LEADING}*.html"):
        with suppress(FileNotFoundError):
            if time.time() - old.stat().st_mtime > LEADING_S:
                old.unlink()
