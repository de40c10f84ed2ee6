"""`strom doctor`: what is wrong with this environment, and what to do."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from ..core.texts import printable, printable_lines
from . import answers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..diagnosis.findings import Examined

COLOURS = {"ok": "green", "warning": "yellow", "problem": "bold red", "skipped": "dim"}

Address = Annotated[
    str | None,
    typer.Option(help="The Ray cluster, as for ray.init; else RAY_ADDRESS, or the one here."),
]
Storage = Annotated[
    list[str] | None,
    typer.Option(
        help="A place for checkpoints, as an fsspec URL or path: a small object is written, "
        "listed, read, renamed and deleted there. May be given several times."
    ),
]
LocalDir = Annotated[
    list[str] | None,
    typer.Option(help="A folder for local state; else as the configuration says. Several times."),
]
Spark = Annotated[bool, typer.Option("--spark", help="Look at Spark, also if it is not installed.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document.")]


def doctor(
    address: Address = None,
    storage: Storage = None,
    local_dir: LocalDir = None,
    spark: Spark = False,
    as_json: Json = False,
) -> None:
    """Say what is wrong with this environment, and what to do. Exit code 1: there are problems."""
    with answers.answering(as_json):
        from ..diagnosis.checkup import Request, Surroundings, checkup
        from ..diagnosis.findings import PROBLEM, examined, worst

        request = Request(address, tuple(local_dir or ()), tuple(storage or ()), spark)
        found = list(examined(checkup(request, Surroundings.here())))
        status = worst(one.status for one in found)
        if as_json:
            answers.say_json({"status": status, "checks": [asdict(one) for one in found]})
        else:
            _say(found)
        if status == PROBLEM:
            raise typer.Exit(answers.DIFFERENT)


def _say(findings: Sequence[Examined]) -> None:
    """A table of all that was looked at, and a line that sums it up."""
    table = Table("check", "status", "found", "what to do")
    for one in findings:
        status = Text(one.status, COLOURS[one.status])
        found, advice = printable_lines(one.found), printable_lines(one.advice)
        table.add_row(Text(printable(one.name)), status, Text(found), Text(advice))
    answers.draw(table)
    counted = [
        f"{number} {status}{'s' if number != 1 else ''}"
        for status in ("problem", "warning")
        if (number := sum(one.status == status for one in findings))
    ]
    answers.say(", ".join(counted) or "all is well")
