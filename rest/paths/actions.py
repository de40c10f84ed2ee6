"""Paths that change jobs: cancel, savepoint, stop, rescale."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from fastapi import APIRouter, HTTPException, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from ...checkpoint.savepoints import Stop
from ..catalogs.catalog import Balanced
from .long_work import Operation, Subject
from .parameters import ID, Catalog, Common, JobParameter

router = APIRouter(prefix="/jobs/{jobid}", tags=["actions"])

Place = Annotated[str | None, Field(max_length=4096, min_length=1)]
Format = Literal["CANONICAL", "NATIVE"]
TriggerId = Annotated[str | None, Field(pattern=ID, alias="triggerId")]
TriggerParameter = Annotated[str, Path(alias="triggerid", pattern=ID)]


class SavepointRequest(BaseModel):
    """`cancel-job`: the job ends with it. All of strom's savepoints have one format."""

    model_config = ConfigDict(extra="forbid")
    directory: Place = Field(None, alias="target-directory")
    cancel: bool = Field(False, alias="cancel-job")
    format: Format | None = Field(None, alias="formatType")
    trigger: TriggerId = None


class StopRequest(BaseModel):
    """`drain`: the sources end first, and all windows fire."""

    model_config = ConfigDict(extra="forbid")
    directory: Place = Field(None, alias="targetDirectory")
    drain: bool = False
    format: Format | None = Field(None, alias="formatType")
    trigger: TriggerId = None


Triggered = TypedDict("Triggered", {"request-id": str})


class Nothing(TypedDict):
    pass


class Status(TypedDict):
    id: Literal["IN_PROGRESS", "COMPLETED"]


FailureCause = TypedDict("FailureCause", {"class": str, "stack-trace": str})


Done = TypedDict(
    "Done",
    {
        "location": NotRequired[str],
        "jobid": NotRequired[str],
        "silence-ms": NotRequired[int],
        "stopped-tasks": NotRequired[int],
        "held-tasks": NotRequired[int],
        "kept-tasks": NotRequired[int],
        "balance": NotRequired[dict[str, Balanced]],
        "failure-cause": NotRequired[FailureCause],
    },
)


class Progress(TypedDict):
    status: Status
    operation: NotRequired[Done]


@router.patch("", status_code=202)
def cancel_job(
    job: JobParameter,
    catalog: Catalog,
    mode: Annotated[Literal["cancel"], Query()] = "cancel",
) -> Nothing:
    """Have the job cancelled. Of one that is over this changes nothing."""
    catalog.cancel(job)
    return {}


@router.post("/savepoints", status_code=202)
def take_savepoint(
    job: JobParameter, catalog: Catalog, api: Common, wanted: SavepointRequest | None = None
) -> Triggered:
    """Take a savepoint; what becomes of it is told under the id."""
    wanted = wanted or SavepointRequest.model_validate({})
    stop: Stop | None = "halt" if wanted.cancel else None
    return _begin(job, catalog, api, wanted.directory, stop, wanted.trigger)


@router.post("/stop", status_code=202)
def stop_job(
    job: JobParameter, catalog: Catalog, api: Common, wanted: StopRequest | None = None
) -> Triggered:
    """Stop the job with a savepoint; what becomes of it is told under the id, at `savepoints`."""
    wanted = wanted or StopRequest.model_validate({})
    stop: Stop = "drain" if wanted.drain else "halt"
    return _begin(job, catalog, api, wanted.directory, stop, wanted.trigger)


@router.get("/savepoints/{triggerid}")
def savepoint_status(job: JobParameter, trigger: TriggerParameter, api: Common) -> Progress:
    """What has become of a savepoint, or of a stop."""
    return progress_of(api, (job, "savepoints"), trigger)


@router.patch("/rescaling")  # 200, as Flink's: clients made of its description know no other
def rescale_job(
    job: JobParameter,
    catalog: Catalog,
    api: Common,
    parallelism: Annotated[int, Query(ge=1, le=32768)],
    directory: Annotated[
        str | None, Query(alias="targetDirectory", max_length=4096, min_length=1)
    ] = None,
    mode: Annotated[Literal["savepoint", "live"], Query()] = "savepoint",
    balance: Annotated[bool, Query()] = False,
) -> Triggered:
    """Stop the job with a savepoint and start it again at another parallelism, under another id,
    which is told under the id of the request; or, `live`, have it go on at that as the same job;
    with `balance`, key groups are dealt to its subtasks by their load."""
    catalog.job(job)
    if mode == "live" and directory is not None:
        raise HTTPException(400, "a live rescale takes no savepoint: leave targetDirectory out")

    if mode != "live" and balance:
        raise HTTPException(400, "key groups are dealt by load where mode is live")

    def work() -> dict[str, Any]:
        if mode == "live":
            made = catalog.rescale_live(job, parallelism, balance)
            spread = {"balance": dict(made.balance)} if balance else {}
            return {
                "jobid": job,
                "silence-ms": made.silence_ms,
                "stopped-tasks": made.stopped_tasks,
                "held-tasks": made.held_tasks,
                "kept-tasks": made.kept_tasks,
                **spread,
            }
        moved = catalog.rescale(job, parallelism, directory)
        return {"jobid": moved.job_id, "location": moved.savepoint}

    return {"request-id": api.triggers.begin((job, "rescaling"), work)}


@router.get("/rescaling/{triggerid}")
def rescaling_status(job: JobParameter, trigger: TriggerParameter, api: Common) -> Progress:
    """What has become of a rescaling."""
    return progress_of(api, (job, "rescaling"), trigger)


def _begin(
    job: str,
    catalog: Catalog,
    api: Any,
    directory: str | None,
    stop: Stop | None,
    trigger: str | None,
) -> Triggered:
    catalog.job(job)

    def work() -> dict[str, Any]:
        return {"location": catalog.savepoint(job, directory, stop)}

    return {"request-id": api.triggers.begin((job, "savepoints"), work, trigger)}


def progress_of(api: Any, subject: Subject, trigger: str) -> Progress:
    """HTTPException 404 for what nobody asked for."""
    found: Operation | None = api.triggers.get(subject, trigger)
    if found is None:
        job, what = subject
        raise HTTPException(
            404, f"nobody asked job '{job}' for '{trigger}' of its {what}, or it was long ago"
        )
    if not found.done:
        return {"status": {"id": "IN_PROGRESS"}}
    if found.error is not None:
        cause: FailureCause = {"class": found.error_class, "stack-trace": found.error}
        return {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": cause}}
    done: Any = found.result
    return {"status": {"id": "COMPLETED"}, "operation": done}
