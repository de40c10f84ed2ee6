"""Paths of programs: upload, run, delete. Flink has them below `/jars`, where they are, too."""

from __future__ import annotations

import shlex
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Path, Request, UploadFile
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from ..programs.runs import MOST_RUNNING, ProgramRuns, Run, Running
from ..programs.uploads import NO_PROGRAMS, PROGRAM_ID, Program, Programs
from .long_work import apart
from .parameters import ID, Common

router = APIRouter(tags=["programs"])

FIRST_JOB_S = 30.0
"""How long an answer waits for the program to start its first job."""

Argument = Annotated[str, Field(max_length=10_000)]
ProgramParameter = Annotated[str, Path(alias="programid", pattern=PROGRAM_ID)]
RunParameter = Annotated[str, Path(alias="runid", pattern=ID)]


class Uploaded(TypedDict):
    filename: str
    status: Literal["success"]
    id: str


class File(TypedDict):
    id: str
    name: str
    uploaded: int
    size: int
    entry: list[dict[str, str]]


class Files(TypedDict):
    address: str
    files: list[File]


class RunRequest(BaseModel):
    """`entryClass`: the module to run, of a wheel or zip. `parallelism` counts where the program
    sets none; `savepointPath`: what its job starts from."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    module: Annotated[str | None, Field(pattern=r"^[A-Za-z_][\w.]{0,200}$")] = Field(
        None, alias="entryClass"
    )
    arguments: Annotated[list[Argument] | None, Field(max_length=1000)] = Field(
        None, alias="programArgsList"
    )
    line: Argument | None = Field(None, alias="programArgs")
    parallelism: Annotated[int | None, Field(ge=1, le=32768)] = None
    savepoint: Annotated[str | None, Field(max_length=4096, min_length=1)] = Field(
        None, alias="savepointPath"
    )
    unmatched: bool = Field(False, alias="allowNonRestoredState")
    claim: Literal["CLAIM", "NO_CLAIM"] | None = Field(None, alias="restoreMode")


RunState = TypedDict(
    "RunState",
    {
        "request-id": str,
        "jobid": str | None,
        "jobids": list[str],
        "status": Literal["RUNNING", "FINISHED", "FAILED"],
        "exit-code": int | None,
        "started": int,
        "output": str,
    },
)


class Deleted(TypedDict):
    pass


@router.get("/jars", include_in_schema=False)
@router.get("/programs")
def programs(request: Request, api: Common) -> Files:
    """Those that were uploaded, the latest first."""
    return {
        "address": str(request.base_url).rstrip("/"),
        "files": [
            {"id": p.id, "name": p.name, "uploaded": p.uploaded_ms, "size": p.size, "entry": []}
            for p in _programs(api).list()
        ],
    }


@router.post("/jars/upload", include_in_schema=False)
@router.post("/programs/upload")
@apart(4)
def upload(api: Common, jarfile: UploadFile) -> Uploaded:
    """A .py file, a zip with a `__main__.py`, or a wheel; as the part `jarfile` of a form."""
    made = _programs(api).add(jarfile.filename or "", jarfile.file, api.access.upload_limit)
    return {"filename": f"{made.id}/{made.name}", "status": "success", "id": made.id}


@router.post("/jars/{programid}/run", include_in_schema=False)
@router.post("/programs/{programid}/run")
@apart(MOST_RUNNING)
def run_program(
    program: ProgramParameter, api: Common, wanted: RunRequest | None = None
) -> RunState:
    """Run a program, whose jobs outlive it. The answer waits for its first job for a while."""
    known = _programs(api).get(program)
    running = _runs(api).start(_run(api, known, wanted or RunRequest.model_validate({})))
    running.wait(FIRST_JOB_S)
    return _state(running)


@router.get("/programs/{programid}/runs/{runid}")
def run_state(program: ProgramParameter, run: RunParameter, api: Common) -> RunState:
    """What has become of a run, and the end of what it printed."""
    _programs(api)
    return _state(_runs(api).get(program, run))


@router.delete("/programs/{programid}/runs/{runid}")
def kill_run(program: ProgramParameter, run: RunParameter, api: Common) -> Deleted:
    """End the program; its jobs go on."""
    _programs(api)
    _runs(api).get(program, run).kill()
    return {}


@router.delete("/jars/{programid}", include_in_schema=False)
@router.delete("/programs/{programid}")
def delete_program(program: ProgramParameter, api: Common) -> Deleted:
    known = _programs(api)
    _runs(api).check_none(program)
    known.remove(program)
    return {}


def _run(api: Any, program: Program, wanted: RunRequest) -> Run:
    if wanted.module is not None and program.name.endswith(".py"):
        raise HTTPException(400, "entryClass: a Python file is run as it is")
    if wanted.module is None and program.name.endswith(".whl"):
        raise HTTPException(400, "entryClass: say which module of the wheel is to be run")
    arguments = list(wanted.arguments or ())
    if wanted.line:
        try:
            arguments += shlex.split(wanted.line)
        except ValueError as error:
            raise HTTPException(400, f"programArgs: {error}") from None
    if any("\0" in argument for argument in arguments) or "\0" in (wanted.savepoint or ""):
        raise HTTPException(400, "an argument cannot hold a zero byte")
    options: dict[str, str] = {}
    if wanted.parallelism is not None:
        options["parallelism.default"] = str(wanted.parallelism)
    if wanted.savepoint is not None:
        options["execution.state-recovery.path"] = wanted.savepoint
    if wanted.unmatched:
        options["execution.state-recovery.ignore-unclaimed-state"] = "true"
    if wanted.claim is not None:
        options["execution.state-recovery.claim-mode"] = wanted.claim
    return Run(program, _programs(api).path(program), arguments, wanted.module, options)


def _state(running: Running) -> RunState:
    code, jobs = running.exit_code, list(running.jobs)
    return {
        "request-id": running.id,
        "jobid": jobs[0] if jobs else None,
        "jobids": jobs,
        "status": "RUNNING" if code is None else "FINISHED" if code == 0 else "FAILED",
        "exit-code": code,
        "started": running.began_ms,
        "output": running.output,
    }


def _programs(api: Any) -> Programs:
    found: Programs | None = api.programs
    if found is None:
        raise HTTPException(403, NO_PROGRAMS)
    return found


def _runs(api: Any) -> ProgramRuns:
    runs: ProgramRuns = api.runs
    return runs
