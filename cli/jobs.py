"""`strom run`, `list`, `info` and `cancel`: the jobs of a session."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from . import answers
from .cluster import Address, Json, _session
from .run_options import RunOptions

PROGRAM: Final = {
    "allow_extra_args": True,
    "allow_interspersed_args": False,
    "ignore_unknown_options": True,
}
"""What a program is given is not looked at."""

Job = Annotated[str, typer.Argument(help="The id of the job, as `strom list` shows it.")]


def run(
    context: typer.Context,
    program: Annotated[
        str,
        typer.Argument(help="A Python file; with --module, a module; with --graph, a saved graph."),
    ],
    module: Annotated[bool, typer.Option("--module", "-m", help="As `python -m` does.")] = False,
    graph: Annotated[
        bool,
        typer.Option(
            "--graph", help="PROGRAM is what `graph.save` wrote: a pickle, which runs its code."
        ),
    ] = False,
    detached: Annotated[
        bool, typer.Option("--detached", "-d", help="Do not wait for its jobs: they outlive it.")
    ] = False,
    restore_from: Annotated[
        str | None,
        typer.Option(
            "--restore-from",
            "-s",
            help="What its next job starts from: a savepoint, a checkpoint, or the id of a job of "
            "the session for its newest.",
        ),
    ] = None,
    wheel: Annotated[
        list[str] | None,
        typer.Option(help="A wheel that it and its jobs import from. May be given again."),
    ] = None,
    working_dir: Annotated[
        str | None,
        typer.Option(help="A folder that it runs in, and that it and its jobs import from."),
    ] = None,
    pip: Annotated[
        list[str] | None,
        typer.Option(help="A package for the processes of its jobs. May be given again."),
    ] = None,
    env_var: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE, for it and for those. May be given again."),
    ] = None,
    runtime_env: Annotated[
        str | None,
        typer.Option(help="A runtime environment of Ray's, for those: JSON, or a file of it."),
    ] = None,
    address: Address = None,
) -> None:
    """Run a program here, and its jobs on the cluster. What stands behind PROGRAM is its own.

    What the program sets itself counts more. The exit code is the program's."""
    with answers.answering(False):
        if restore_from is not None:
            restore_from = _place(restore_from, address)
        options = RunOptions(
            detached, address, restore_from, wheel or (), working_dir, pip or (), env_var or (),
            runtime_env,
        )  # fmt: skip
        environment = options.environment(os.environ)
    there = program if working_dir is None else os.path.join(working_dir, program)
    if graph:
        words = _words_of_graph(program, options)
    elif module:
        words = ["-m", program, *context.args]
    elif os.path.exists(there):
        words = [program, *context.args]
    else:
        answers.fail(f"there is no file '{there}'", False, answers.USAGE)
    command = [sys.executable, *words]
    done = subprocess.run(command, env=environment, cwd=working_dir, check=False)
    raise typer.Exit(done.returncode)


def _place(said: str, address: str | None) -> str:
    """What to restore from: a place is what it is, a job's id stands for its newest state."""
    if "/" in said or os.path.exists(said):
        return said if "://" in said else os.path.abspath(said)
    record, _ = _session(address, False).job(said)
    from ..cluster.savepoints import newest_state

    return newest_state(record)


def _words_of_graph(path: str, options: RunOptions) -> list[str]:
    if options.changes_processes:
        why = "a saved graph has its files and packages from the program that saved it"
        answers.fail(why, False, answers.USAGE)
    words = ["-m", "strom.cluster.saved_graphs", path]
    if options.detached:
        words.append("--detached")
    if options.restore_from is not None:
        words += ["--restore-from", options.restore_from]
    return words


def list_jobs(
    address: Address = None,
    ended: Annotated[int, typer.Option(help="So many of those that are over.", min=0)] = 20,
    as_json: Json = False,
) -> None:
    """The jobs of the session: those that run or wait, and the last that are over."""
    with answers.answering(as_json):
        found = _session(address, as_json).jobs(ended)
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
        session = _session(address, as_json)
        record, why = session.job(job)
        known = _document(record, why)
        known |= session.archived(job) or {}
        known.pop("record", None)
        if as_json:
            answers.say_json(known)
            return
        rows = [(name, value) for name, value in known.items() if name != "metrics"]
        answers.say_table(f"Job {record.name}", ("", ""), rows)


def cancel(job: Job, address: Address = None, as_json: Json = False) -> None:
    """Have JOB cancelled, whether it runs or waits."""
    with answers.answering(as_json):
        session = _session(address, as_json)
        session.cancel(job)
        record, _ = session.job(job)
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
