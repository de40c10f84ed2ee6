"""`strom run`: a program here, and its jobs on the cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Annotated, Final

import typer

from . import answers
from .cluster import Address

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
    program: Annotated[str, typer.Argument(help="A Python file; or, with --module, a module.")],
    module: Annotated[bool, typer.Option("--module", "-m", help="As `python -m` does.")] = False,
    detached: Annotated[
        bool, typer.Option("--detached", "-d", help="Do not wait for its jobs: they outlive it.")
    ] = False,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Run a program here, and its jobs on the cluster. What stands behind PROGRAM is its own.

    What the program sets itself counts more. The exit code is the program's."""
    environment = os.environ | {"STROM_CONF__STROM__HOST": "ray"}
    if detached:
        environment["STROM_CONF__STROM__ATTACHED"] = "false"
        environment["STROM_CONF__STROM__WAIT"] = "false"
    if address is not None:
        environment["RAY_ADDRESS"] = address
    words = ["-m", program] if module else [program]
    if not module and not os.path.exists(program):
        answers.fail(f"there is no file '{program}'", as_json, answers.USAGE)
    command = [sys.executable, *words, *context.args]
    if not as_json:
        raise typer.Exit(subprocess.run(command, env=environment, check=False).returncode)
    with answers.answering(as_json):
        jobs, code = _listened(command, environment)
        answers.say_json({"jobs": jobs, "exit_code": code})
        raise typer.Exit(code)


def _listened(command: list[str], environment: dict[str, str]) -> tuple[list[str], int]:
    """The ids of the jobs that the program says it has started, and its exit code."""
    from ..rest.program_runs import JOB_LINE

    jobs = []
    with subprocess.Popen(
        command, env=environment, stdout=answers.STDERR, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            os.write(answers.STDERR, line)
            if (found := JOB_LINE.match(line)) is not None:
                jobs.append(found[1].decode())
    return jobs, process.returncode
