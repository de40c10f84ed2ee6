"""`strom run`: a program here, and its jobs on the cluster."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Final

import typer

from ..core.errors import ConfigurationError
from . import answers, children
from .cluster import Address, _session
from .run_options import RunOptions

PROGRAM: Final = {
    "allow_extra_args": True,
    "allow_interspersed_args": False,
    "ignore_unknown_options": True,
}
"""What a program is given is not looked at."""

Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="One JSON document on stdout when the program has ended: the ids of its jobs, and its "
        "exit code. What it prints itself goes to stderr.",
    ),
]


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
    as_json: Json = False,
) -> None:
    """Run a program here, and its jobs on the cluster. What stands behind PROGRAM is its own.

    What the program sets itself counts more. The exit code is the program's."""
    with answers.answering(as_json):
        if restore_from is not None:
            restore_from = _place(restore_from, address, as_json)
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
            raise ConfigurationError(f"there is no file '{there}'")
        command = [sys.executable, *words]
        if not as_json:
            raise typer.Exit(children.exit_code(command, environment, working_dir))
        jobs, code = _listened(command, environment, working_dir)
        answers.say_json({"jobs": jobs, "exit_code": code})
        raise typer.Exit(code)


def _place(said: str, address: str | None, as_json: bool) -> str:
    """What to restore from: a place is what it is, a job's id stands for its newest state. Only
    folders are looked for here: what URLs need may be in the program's environment."""
    if "://" in said:
        return said
    if "/" in said or os.path.exists(said):
        cluster = address or os.environ.get("RAY_ADDRESS") or ""
        if not os.path.exists(said) and not cluster.startswith("ray://"):
            raise ConfigurationError(f"--restore-from: there is no folder '{said}'")
        return os.path.abspath(said)
    record, _ = _session(address, as_json).job(said)
    from ..cluster.savepoints import newest_state

    return newest_state(record)


def _words_of_graph(path: str, options: RunOptions) -> list[str]:
    """ConfigurationError if there is no graph in the file, as far as that can be told without
    running it."""
    if options.changes_processes:
        why = "a saved graph has its files and packages from the program that saved it"
        raise ConfigurationError(why)
    _check_graph(path)
    words = ["-m", "strom.cluster.saved_graphs", path]
    if options.detached:
        words.append("--detached")
    if options.restore_from is not None:
        words += ["--restore-from", options.restore_from]
    return words


def _check_graph(path: str) -> None:
    """ConfigurationError. As `cluster.saved_graphs.load` will, which runs it."""
    from ..engine.graph.model import SAVED

    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        return  # it can be read but once
    try:
        with open(path, "rb") as file:
            head = file.readline(100)
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            last = file.read()
    except OSError as error:
        raise ConfigurationError(f"the graph {path} cannot be read: {error}") from None
    if head == SAVED and last == pickle.STOP:
        return
    if head == SAVED:
        why = "its end is missing"
    elif head.startswith(b"strom graph"):
        found, wanted = (one.decode("ascii", "replace").strip() for one in (head, SAVED))
        why = f"it begins with '{found}', and this is '{wanted}'"
    else:
        why = "it is no graph"
    raise ConfigurationError(
        f"{path} cannot be opened: {why}: save it anew, with env.get_job_graph().save(path)"
    )


def _listened(
    command: list[str], environment: dict[str, str], folder: str | None
) -> tuple[list[str], int]:
    """The ids of the jobs that the program says it has started, and its exit code."""
    from ..rest.programs.runs import JOB_LINE

    jobs = []

    def heard(lines: Sequence[bytes]) -> None:
        for line in lines:
            with suppress(OSError):  # it is full, or nobody reads it: jobs are told all the same
                os.write(answers.STDERR, line)
            if (found := JOB_LINE.match(line)) is not None:
                jobs.append(found[1].decode())

    code = children.exit_code(command, environment, folder, answers.STDERR, heard)
    return jobs, code
