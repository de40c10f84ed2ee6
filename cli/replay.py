"""`strom replay`: an operator again, on what a job recorded of it; in one process and thread."""

from __future__ import annotations

import contextlib
import os
import pdb
import runpy
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from ..core.errors import ConfigurationError
from ..core.failure_text import described, traced
from ..core.texts import printable_lines
from . import answers

if TYPE_CHECKING:
    import pyarrow as pa

    from ..engine.graph.model import JobGraph
    from ..replaying import Replayed

PROGRAM: Final = {"allow_extra_args": True, "ignore_unknown_options": False}
"""What stands behind PATH is the program's."""

_FORMATS: Final = (".arrow", ".parquet")


def replay(
    context: typer.Context,
    path: Annotated[
        str,
        typer.Argument(
            help="What `env.record` was given, or the folder of one job in it: a path or an fsspec "
            "URL. Pickles in it are run: only for recordings that you trust."
        ),
    ],
    operator: Annotated[
        str | None, typer.Option(help="Its uid, name or id; else what failed.")
    ] = None,
    subtask: Annotated[int | None, typer.Option(help="From 0; else what failed.", min=0)] = None,
    attempt: Annotated[
        int | None, typer.Option(help="From 0; else the last that failed, or the last.", min=0)
    ] = None,
    program: Annotated[
        str | None,
        typer.Option(
            "--program",
            "--module",
            help="A Python file, run up to its first job: the operator is taken from that, and not "
            "from the recording. Words behind `--` are its arguments.",
        ),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--pdb", help="Python's debugger where the operator fails.")
    ] = False,
    output: Annotated[
        str | None, typer.Option(help="A file for all results: NAME.arrow or NAME.parquet.")
    ] = None,
    limit: Annotated[
        int, typer.Option(help="Results that are shown, the last ones; 0: all.", min=0)
    ] = 20,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="One JSON document. What functions print goes to stderr."),
    ] = False,
) -> None:
    """Run an operator again on what a job recorded of it, from its last checkpoint on.

    Exit code 1 if it fails."""
    with answers.answering(as_json):
        if debug and as_json:
            raise ConfigurationError("--pdb talks on stdout, where --json has its document")
        if output is not None and Path(output).suffix not in _FORMATS:
            raise ConfigurationError(f"--output {output}: say NAME.arrow or NAME.parquet")
        if context.args and program is None:
            raise ConfigurationError(f"'{context.args[0]}' is for a program: say --program FILE")
        _import_from_here()
        began = time.perf_counter()
        with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
            graph = None if program is None else _graph_of(program, context.args)
            from ..replaying import replay as run

            found = run(
                path,
                operator,
                subtask=subtask,
                attempt=attempt,
                graph=graph,
                singly=not debug,
                failed=_debugged if debug else None,
            )
        took_s = time.perf_counter() - began
        table = found.table()
        if output is not None:
            _write(table, output)
        if as_json:
            answers.say_json(_document(found, table, limit, took_s))
        else:
            _say(found, table, limit, took_s)
    if found.error is not None:
        raise typer.Exit(answers.DIFFERENT)


def _import_from_here() -> None:
    """As `python` does: what the program imported may be beside it."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


class _Taken:
    """A host that runs nothing: the program ends where it would run a job, as by `sys.exit`."""

    def __init__(self) -> None:
        from ..api.jobs.host import open_host

        self.graph: JobGraph | None = None
        self._local = open_host("local")

    def open_cache(self) -> Any:
        """For the records of cached streams, of which there will be none."""
        return self._local.open_cache()  # type: ignore[attr-defined]

    def submit(self, graph: JobGraph, job_name: str) -> NoReturn:
        self.graph = self.graph or graph
        raise SystemExit(0)


def _graph_of(program: str, arguments: list[str]) -> JobGraph:
    """Of its first job. ConfigurationError if it submits none."""
    from ..api.jobs.host import send_all_jobs_to

    if not os.path.isfile(program):
        raise ConfigurationError(f"--program: there is no file '{program}'")
    host = _Taken()
    send_all_jobs_to(host)
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path(program).absolute().parent))
    ended = ""
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as error:
        ended = f": it exits with {error.code}" if error.code else ""
    except Exception as error:
        if host.graph is None:
            raise ConfigurationError(
                f"--program {program}: {described(error)}\n{traced(error)}"
            ) from error
    if host.graph is None:
        raise ConfigurationError(f"--program {program} submits no job{ended}")
    return host.graph


def _debugged(error: BaseException) -> None:
    answers.say_lines(printable_lines(traced(error).rstrip("\n")), flush=True)
    pdb.post_mortem(error.__traceback__)


def _write(table: pa.Table, output: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if output.endswith(".parquet"):
            pq.write_table(table, output)
            return
        with pa.OSFile(output, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    except (OSError, pa.ArrowException) as error:
        raise ConfigurationError(f"--output {output}: {error}") from error


def _document(found: Replayed, table: pa.Table, limit: int, took_s: float) -> dict[str, Any]:
    error, fault = found.error, found.fault
    return {
        "job": {"id": found.job_id, "name": found.job_name},
        "operator": found.operator,
        "subtask": found.subtask,
        "parallelism": found.parallelism,
        "attempt": found.attempt,
        "checkpoint": found.checkpoint,
        "records": found.records,
        "seconds": round(took_s, 3),
        "failed": error is not None,
        "error": None if error is None else described(error),
        "traceback": None if error is None else traced(error),
        "fault": None if fault is None else {"text": str(fault), **vars(fault)},
        "recorded_failure": found.recorded_failure,
        "notes": found.notes,
        "results": table.num_rows,
        "sides": {tag: len(found.side_outputs(tag)) for tag in found.sides},
        "data": _last(table, limit).to_pylist(),
    }


def _say(found: Replayed, table: pa.Table, limit: int, took_s: float) -> None:
    if found.error is not None:
        answers.say_lines(printable_lines(traced(found.error).rstrip("\n")))
        answers.say(f"failed at {found.fault}")
        if found.fault is not None and found.fault.record is not None:
            answers.say(f"  {found.fault.record!r}"[:2000])
    state = f"checkpoint {found.checkpoint}" if found.checkpoint else "its start"
    answers.say(
        f"operator '{found.operator}', subtask {found.subtask} of {found.parallelism}, attempt "
        f"{found.attempt} of job '{found.job_name}' ({found.job_id}): {found.records:,} records "
        f"from {state} on, {table.num_rows:,} results, in {took_s:.1f} s"
    )
    if found.error is None and found.recorded_failure is not None:
        answers.say(f"it does not fail here; in the job: {found.recorded_failure}")
    for note in found.notes:
        answers.say(f"note: {note}")
    if table.num_rows:
        answers.say_rows("", _last(table, limit), None)


def _last(table: pa.Table, limit: int) -> pa.Table:
    return table if not limit else table.slice(max(0, table.num_rows - limit))
