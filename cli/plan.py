"""`strom plan`: what a job, or a program, is made of."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from ..core.texts import all_printable
from . import answers, children
from .asking import catalog
from .cluster import Address, Json

if TYPE_CHECKING:
    from ..engine.hosts.job_view import JobView, OperatorView, VertexView

ARGUMENTS: Final = {"allow_extra_args": True}
"""Those of a program, behind `--`."""

Program = Annotated[
    str | None,
    typer.Option(
        "--program",
        "-p",
        help="Of the first job that this Python file would run, which it does not run. What stands "
        "behind -- is the program's own.",
    ),
]
Module = Annotated[
    str | None, typer.Option("--module", "-m", help="The same of a module, as `python -m` does.")
]
Form = Annotated[
    Literal["text", "mermaid"], typer.Option("--format", help="What people are shown.")
]


def plan(
    context: typer.Context,
    job: Annotated[str | None, typer.Argument(help="The id of a job.")] = None,
    program: Program = None,
    module: Module = None,
    form: Form = "text",
    address: Address = None,
    as_json: Json = False,
) -> None:
    """The graph of JOB, running or over, or of a program: what each operator runs as and why, how
    parallel it is, and how its records are partitioned."""
    arguments = [one for one in (job, *context.args) if one is not None]
    planned = [one for one in (program, module) if one is not None]
    if len(planned) > 1 or (not planned and len(arguments) != 1):
        answers.fail("give the id of a job, or --program, or --module", as_json, answers.USAGE)
    with answers.answering(as_json):
        if planned:
            description = _planned(planned[0], module is not None, arguments, as_json)
        else:
            description = description_of(catalog(address).view(arguments[0]))
        if as_json:
            answers.say_json(description)
            return
        from ..engine.graph.explain import to_mermaid, to_text

        text = to_mermaid if form == "mermaid" else to_text
        answers.say_lines(text(all_printable(description)))


def _planned(program: str, module: bool, arguments: list[str], as_json: bool) -> dict[str, Any]:
    """The description of the program's first job. What the program prints goes to stderr."""
    if not module and not Path(program).is_file():
        answers.fail(f"there is no file '{program}'", as_json, answers.USAGE)
    with tempfile.TemporaryDirectory(prefix="strom-plan-") as folder:
        place = Path(folder, "plan.json")
        how = ["--module"] if module else []
        words = [sys.executable, "-m", "strom.cli.planning", str(place), *how, program, *arguments]
        code = children.exit_code(words, stdout=answers.STDERR)
        if place.exists():
            found: dict[str, Any] = json.loads(place.read_text())
            return found
    if code == children.INTERRUPTED:
        raise KeyboardInterrupt
    why = f"it ended with exit code {code}" if code else "it runs none"
    answers.fail(f"'{program}' came to no job: {why}", as_json, answers.USAGE)


def description_of(view: JobView) -> dict[str, Any]:
    """As `engine.graph.explain.describe` has it of a job graph, of what a view knows."""
    number = {vertex["id"]: str(i + 1) for i, vertex in enumerate(view["vertices"])}
    read = {one["source"] for vertex in view["vertices"] for one in vertex["inputs"]}
    return {
        "level": "job",
        "name": view["name"],
        "job_id": view["id"],
        "status": view["status"],
        "nodes": [_node(vertex, number, read) for vertex in view["vertices"]],
    }


def _node(vertex: VertexView, number: dict[str, str], read: set[str]) -> dict[str, Any]:
    ends = ["source"] * (not vertex["inputs"]) + ["sink"] * (vertex["id"] not in read)
    deal = {"deal": vertex["deal"]} if "deal" in vertex else {}
    return {
        "id": number[vertex["id"]],
        "vertex_id": vertex["id"],
        "name": vertex["name"],
        "kind": "+".join(ends) or "operator",
        "parallelism": vertex["parallelism"],
        "max_parallelism": vertex["max_parallelism"],
        "slot_sharing_group": vertex["slot_sharing_group"],
        **deal,
        "inputs": [
            {
                "from": number[one["source"]],
                "ship": one["ship"],
                "tag": one["tag"],
                "port": one["port"],
            }
            for one in vertex["inputs"]
        ],
        "operators": [_operator(one) for one in vertex["operators"]],
    }


def _operator(one: OperatorView) -> dict[str, Any]:
    made, kind = one["implementation"], one.get("kind")
    return {
        "operator_id": one["id"],
        "name": one["name"],
        "description": one["description"],
        "uid": one["uid"],
        "implementation": None
        if made is None or kind is None
        else {
            "kind": kind,
            "name": made,
            "why_not": one.get("why_not"),
            "remarks": one.get("remarks", []),
        },
        "state_backend": one.get("state_backend"),
    }
