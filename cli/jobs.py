"""`strom list`, `info` and `cancel`: the jobs of a cluster, with a dispatcher or without."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

import typer

from . import answers
from .asking import account
from .cluster import Address, Json

Job = Annotated[str, typer.Argument(help="The id of the job, as `strom list` shows it.")]


def list_jobs(
    address: Address = None,
    ended: Annotated[int, typer.Option(help="So many of those that are over.", min=0)] = 20,
    as_json: Json = False,
) -> None:
    """The jobs of the cluster: those that run or wait, and the last that are over.

    Without a dispatcher: those that ended within the last minutes."""
    with answers.answering(as_json):
        found = account(address).jobs(ended)
        if as_json:
            answers.say_json([_document(record, why) for record, why in found])
            return
        rows = [
            (r.job_id, r.name, _shown(r), f"{r.cpus:g}", _since(r), why or r.error or "")
            for r, why in found
        ]
        answers.say_table("Jobs", ("id", "name", "state", "CPUs", "for", ""), rows)


def info(job: Job, address: Address = None, as_json: Json = False) -> None:
    """One job: what is known of it, while it runs and when it is over."""
    with answers.answering(as_json):
        jobs = account(address)
        record, why = jobs.job(job)
        known = _document(record, why)
        known |= jobs.archived(job) or {}
        known.pop("record", None)
        if as_json:
            answers.say_json(known)
            return
        rows = [(name, value) for name, value in known.items() if name != "metrics"]
        answers.say_table(f"Job {record.name}", ("", ""), rows)


def cancel(job: Job, address: Address = None, as_json: Json = False) -> None:
    """Have JOB cancelled, whether it runs or waits."""
    with answers.answering(as_json):
        jobs = account(address)
        jobs.cancel(job)
        record, _ = jobs.job(job)
        if as_json:
            answers.say_json(_document(record, ""))
        else:
            answers.say(f"job {record.name} ({job}) is {_shown(record)}")


def _document(record: Any, why: str) -> dict[str, Any]:
    return asdict(record) | {"waits_for": why or None}


def _shown(record: Any) -> str:
    """One word for where a job is."""
    if record.cancelling and record.phase != "ENDED":
        return "CANCELLING"
    return str(record.status if record.phase in ("ENDED", "RUNNING") else record.phase)


def _since(record: Any) -> str:
    """How long the job has run, or ran, or waits."""
    begun = record.started_ms if record.started_ms is not None else record.submitted_ms
    end = record.ended_ms if record.ended_ms is not None else time.time_ns() // 1_000_000
    seconds = max(0, end - begun) // 1000
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
