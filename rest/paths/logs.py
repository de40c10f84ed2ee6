"""What jobs say."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query
from typing_extensions import TypedDict

from ...core.errors import ConfigurationError
from ...core.texts import all_encodable
from ...engine.hosts.job_logs import MOST, PAGE, JobLogs
from ...logs.filters import LogFilter, moment
from ..catalogs.catalog import ENDED, JobCatalog, Unavailable
from .long_work import apart
from .parameters import Catalog, JobParameter

router = APIRouter(tags=["jobs"])

Text = Annotated[str | None, Query(max_length=1_000)]
Number = Annotated[int | None, Query(ge=0, le=1 << 20)]


class LogLines(TypedDict):
    entries: list[dict[str, Any]]
    cursor: str
    more: bool
    missing: dict[str, str]


@router.get("/jobs/{jobid}/logs")
@apart(8)
def logs(
    job: JobParameter,
    catalog: Catalog,
    cursor: Annotated[
        str | None, Query(max_length=100_000, description="Of the page before; else the first.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MOST)] = PAGE,
    tail: Annotated[
        int | None, Query(ge=0, le=MOST, description="The last lines instead, so many.")
    ] = None,
    operator: Text = None,
    subtask: Number = None,
    attempt: Number = None,
    level: Text = None,
    since: Text = None,
    text: Text = None,
) -> LogLines:
    """What the job's processes log and print, from all nodes, in the order of time."""
    over = catalog.job(job).status in ENDED
    try:
        first = None if since is None else moment(since, datetime.now(UTC))
        wanted = LogFilter(operator, subtask, attempt, level, first, text=text)
        kept = (lambda: catalog.lines(job)) if over else None
        found = JobLogs(job, kept, _directory(catalog, job))
        page = found.read(cursor, wanted, limit) if tail is None else found.tail(tail, wanted)
    except ConfigurationError as error:
        raise HTTPException(400, str(error)) from None
    return {
        "entries": all_encodable(page.entries),
        "cursor": page.cursor,
        "more": page.more,
        "missing": page.missing,
    }


def _directory(catalog: JobCatalog, job: str) -> str | None:
    """Where the job was told to keep its files."""
    try:
        return catalog.view(job)["config"].get("logging.directory") or None
    except Unavailable:  # they are found in the usual place, or not
        return None
