"""`strom rescale`: a job at another parallelism."""

from __future__ import annotations

from typing import Annotated

import typer

from . import answers
from .asking import catalog
from .cluster import Address, Json
from .jobs import Job


def rescale(
    job: Job,
    parallelism: Annotated[
        int,
        typer.Argument(help="Of operators that have none of their own.", min=1, max=32768),
    ],
    directory: Annotated[
        str | None,
        typer.Option(help="Where the savepoint's folder is made; else the job's default."),
    ] = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Stop JOB with a savepoint and start it again from that at PARALLELISM, under another id.

    For detached jobs of a session. What is refused before the job is stopped leaves it as it was;
    from then on it is in the savepoint, which is told: `strom run -s` goes on from that where the
    new job fails."""
    with answers.answering(as_json):
        from ..engine.hosts.savepoint_calls import absolute

        moved = catalog(address).rescale(job, parallelism, absolute(directory))
        if as_json:
            answers.say_json({"job_id": moved.job_id, "savepoint": moved.savepoint, "was": job})
        else:
            answers.say(f"job {job} goes on as {moved.job_id}, from {moved.savepoint}")
