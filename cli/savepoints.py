"""`strom savepoint` and `strom stop`: savepoints of jobs that run on a Ray cluster."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer

from . import answers

Job = Annotated[str, typer.Argument(help="The id of the job, as `strom: job ... has the id` says.")]
Directory = Annotated[
    str | None,
    typer.Argument(help="Where its folder is made: an fsspec URL or path; else the job's default."),
]
Address = Annotated[
    str | None,
    typer.Option(help="The Ray cluster, as for ray.init; else RAY_ADDRESS, or the one here."),
]
Timeout = Annotated[float | None, typer.Option(help="Seconds to wait; else for ever.", min=0)]
Json = Annotated[bool, typer.Option("--json", help="One JSON document.")]


def savepoint(
    job: Annotated[str | None, typer.Argument(help="The id of the job.")] = None,
    directory: Directory = None,
    dispose: Annotated[
        str | None,
        typer.Option("--dispose", "-d", help="Remove the savepoint in this folder instead."),
    ] = None,
    address: Address = None,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Take a savepoint of JOB, which goes on; or remove one."""
    if (job is None) == (dispose is None):
        answers.fail("give the id of a job, or --dispose and a path", as_json, answers.USAGE)
    with answers.answering(as_json):
        if job is None:
            from ..snapshots import dispose as remove

            assert dispose is not None
            remove(dispose)
            _say({"disposed": dispose}, as_json, f"removed {dispose}")
        else:
            future = _client(job, address).trigger_savepoint(directory)
            _say_path(future, timeout, as_json)


def stop(
    job: Job,
    savepoint_path: Annotated[
        str | None,
        typer.Option(
            "--savepoint-path", "-p", help="Where its folder is made; else the job's default."
        ),
    ] = None,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain", "-d", help="End the job for good: windows fire, timers go off, then it is."
        ),
    ] = False,
    address: Address = None,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Stop JOB with a savepoint."""
    with answers.answering(as_json):
        future = _client(job, address).stop_with_savepoint(
            savepoint_directory=savepoint_path, drain=drain
        )
        _say_path(future, timeout, as_json)


def _client(job: str, address: str | None) -> Any:
    from .. import attach

    return attach(job, address)


def _say_path(future: Any, timeout: float | None, as_json: bool) -> None:
    """Wait for the savepoint, and tell where it is."""
    try:
        path = future.result(None if timeout is None else timedelta(seconds=timeout))
    except TimeoutError:
        answers.fail(
            f"there is no answer after {timeout} s; the savepoint may still be taken",
            as_json,
            answers.USAGE,
        )
    _say({"savepoint": path}, as_json, path)


def _say(document: dict[str, str], as_json: bool, text: str) -> None:
    if as_json:
        answers.say_json(document)
    else:
        answers.say(text)
