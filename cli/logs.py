"""`strom logs`: what a job says, from all nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from ..core.texts import printable
from . import answers
from .cluster import Address
from .jobs import Job
from .streams import note

PAUSE_S: Final = 0.5
"""Between two looks of --follow."""


def logs(
    job: Job,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job is over, or Ctrl-C.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option(help="Begin with so many of the last lines.", min=0)
    ] = None,
    operator: Annotated[
        str | None, typer.Option(help="Of this operator: its name or id, or its chain's name.")
    ] = None,
    subtask: Annotated[int | None, typer.Option(help="Of this subtask, from 0.", min=0)] = None,
    attempt: Annotated[int | None, typer.Option(help="Of this attempt.", min=0)] = None,
    level: Annotated[str | None, typer.Option(help="This level and above.")] = None,
    since: Annotated[
        str | None, typer.Option(help="From then on: a time, or so long ago, as 15m.")
    ] = None,
    text: Annotated[str | None, typer.Option("--grep", help="With this text in them.")] = None,
    address: Address = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document per line.")] = False,
) -> None:
    """What JOB says: lines of its functions and of strom, what functions print, in order.

    Of jobs that are over as long as their files are kept, and the last lines as long as the
    session knows them."""
    with answers.answering(as_json):
        from ..engine.hosts.job_logs import JobLogs
        from ..logs.filters import LogFilter, moment

        wanted = LogFilter(
            operator,
            subtask,
            attempt,
            level,
            None if since is None else moment(since, datetime.now(UTC)),
            text=text,
        )
        session = _connect(address)
        shown = _show(JobLogs(job), wanted, tail, _over(session, job) if follow else None, as_json)
        if shown == 0 and not follow:
            _say_archived(session, job, wanted, tail, as_json)


def _connect(address: str | None) -> Any:
    """The session's dispatcher, if there is one."""
    from ..cluster import dispatcher_client
    from ..engine.hosts.ray_connect import join_ray

    join_ray(address, log_to_driver=False)
    return dispatcher_client.find()


def _show(
    source: Any, wanted: Any, tail: int | None, over: Callable[[], bool] | None, as_json: bool
) -> int:
    """Until there is no more, and the job is over; how many lines it was. `over` None: do not wait
    for that."""
    shown, cursor, told = 0, None, set[str]()
    page = None if tail is None else source.tail(tail, wanted)
    while True:
        last = page is None and over is not None and over()
        if page is None:
            page = source.read(cursor, wanted)
        for entry in page.entries:
            answers.say_lines(line_of(entry, as_json), flush=over is not None)
        for node, why in page.missing.items():
            if node not in told:
                note(printable(f"strom: {node} is missing: {why}"))
                told.add(node)
        shown, cursor, more = shown + len(page.entries), page.cursor, page.more
        page = None
        if more:
            continue
        if over is None or last:
            return shown
        time.sleep(PAUSE_S)


def _over(session: Any, job: str) -> Callable[[], bool]:
    """Whether the job is over, as far as anybody knows."""
    from ..core.errors import ConfigurationError, StromError

    def over() -> bool:
        from .. import attach

        if session is not None:
            try:
                record, _ = session.job(job)
                return bool(record.phase == "ENDED")
            except ConfigurationError:  # it is none of the session's
                pass
        try:
            return bool(attach(job).get_job_status().is_terminal)
        except ConfigurationError:
            return True
        except StromError:  # its coordinator cannot be reached, or is gone
            return False

    return over


def _say_archived(session: Any, job: str, wanted: Any, tail: int | None, as_json: bool) -> None:
    """The last lines, that the session keeps. Without any there may be no such job."""
    from .. import attach

    if session is None:
        attach(job)
        return
    session.job(job)  # ConfigurationError if there is none
    lines = [entry for entry in session.last_lines(job) if wanted.takes(entry)]
    for entry in lines if tail is None else lines[len(lines) - min(tail, len(lines)) :]:
        answers.say_lines(line_of(entry, as_json))


def line_of(entry: dict[str, Any], as_json: bool) -> str:
    """As it is shown. Nothing in it moves the cursor of a terminal."""
    if as_json:
        return answers.json_line(entry)
    when = entry["time"].rstrip("Z").replace("T", " ")[:-3]
    head = f"{when} {entry['level']:<7} {_who(entry)} {entry['logger']}: {entry['message']}"
    lines = [_plain(head)]
    if extra := entry.get("extra"):
        lines[0] += "  " + _plain(" ".join(f"{name}={value}" for name, value in extra.items()))
    lines += [f"    {_plain(line)}" for line in entry.get("error", "").splitlines()]
    return "\n".join(lines)


def _who(entry: dict[str, Any]) -> str:
    """`operator/subtask#attempt`, as far as known."""
    name = entry.get("operator") or entry.get("task") or entry.get("process", "")
    subtask = f"/{entry['subtask']}" if "subtask" in entry else ""
    attempt = f"#{entry['attempt']}" if "attempt" in entry else ""
    return f"[{name}{subtask}{attempt}]"


def _plain(text: str) -> str:
    """Tabs are as they are."""
    return "\t".join(printable(one) for one in text.split("\t"))
