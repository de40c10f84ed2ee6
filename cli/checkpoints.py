"""`strom checkpoints`: those of a job, and what it was restored from."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import answers
from .asking import catalog
from .cluster import Address, Json
from .jobs import Job

if TYPE_CHECKING:
    from ..engine.hosts.job_view import CheckpointView, JobView

COLUMNS = ("id", "kind", "status", "triggered (UTC)", "took", "wrote", "holds", "subtasks", "")


def checkpoints(
    job: Job,
    limit: Annotated[
        int, typer.Option(help="So many of the last; 0: all that are known.", min=0)
    ] = 20,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """The checkpoints and savepoints of JOB, the newest first: how long they took, what they wrote
    and hold (bytes), why some failed; and what the job was restored from."""
    with answers.answering(as_json):
        view = catalog(address).view(job)
        document = document_of(view, limit)
        if as_json:
            answers.say_json(document)
            return
        rows = [_row(one) for one in document["history"]]
        answers.say_table(f"Checkpoints of job {view['name']}", COLUMNS, rows)
        answers.say(_counts(document))
        for line in _latest(document):
            answers.say(line)


def document_of(view: JobView, limit: int = 0) -> dict[str, Any]:
    """Of a job. Times are ms since the epoch, durations ms, sizes bytes."""
    known = dict(view["checkpoints"])
    history: list[CheckpointView] = view["checkpoints"]["history"]
    now_ms = view["now_ms"]
    latest = {
        name: None if known[name] is None else _document(known[name], now_ms)
        for name in ("latest_completed", "latest_savepoint", "latest_failed")
    }
    shown = history[:limit] if limit else history
    job = {"job_id": view["id"], "name": view["name"], "status": view["status"]}
    return {**job, **known, **latest, "history": [_document(one, now_ms) for one in shown]}


def _document(one: CheckpointView | Any, now_ms: int) -> dict[str, Any]:
    found = {name: value for name, value in one.items() if name != "parts"}
    end = now_ms if one["ended_ms"] is None else one["ended_ms"]
    kind = "savepoint" if one["savepoint"] else "terminal" if one["terminal"] else "checkpoint"
    return {**found, "kind": kind, "duration_ms": max(0, end - one["triggered_ms"])}


def _row(one: dict[str, Any]) -> tuple[Any, ...]:
    return (
        str(one["id"]),
        one["kind"],
        one["status"],
        _time(one["triggered_ms"]),
        f"{one['duration_ms']:,} ms",
        f"{one['new_size']:,}",
        f"{one['size']:,}",
        f"{one['acknowledged']} of {one['subtasks']}",
        one["reason"] or one["path"] or "",
    )


def _counts(document: dict[str, Any]) -> str:
    return (
        f"{document['completed']} complete, {document['failed']} failed; "
        f"{document['savepoints']} savepoints, {document['savepoints_failed']} failed; "
        f"restored {document['restores']} times"
    )


def _latest(document: dict[str, Any]) -> list[str]:
    lines = []
    for name, label in (("completed", "checkpoint"), ("savepoint", "savepoint")):
        one = document[f"latest_{name}"]
        if one is not None:
            where = one["path"] or "in the memory of the coordinator"
            lines.append(f"latest {label}: {one['id']}, {where}")
    if (restored := document["restored"]) is not None:
        what = "savepoint" if restored["savepoint"] else "checkpoint"
        lines.append(f"restored from: {what} {restored['id']}, {_time(restored['time_ms'])} UTC")
    return lines


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
