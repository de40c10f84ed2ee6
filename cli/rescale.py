"""`strom rescale`: a job at another parallelism."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from . import answers
from .asking import catalog
from .cluster import Address, Json
from .jobs import Job

if TYPE_CHECKING:
    from ..rest.catalogs.catalog import Balanced


def rescale(
    job: Job,
    parallelism: Annotated[
        int,
        typer.Argument(help="Of operators that have none of their own.", min=1, max=32768),
    ],
    operator: Annotated[
        list[str] | None,
        typer.Option(
            help="Only of this one, by name or uid, with all that goes with it; of several, if it "
            "is given several times."
        ),
    ] = None,
    balance: Annotated[
        bool,
        typer.Option(
            "--balance",
            help="Deal key groups to subtasks by their load, so that the busiest has as little as "
            "can be; PARALLELISM may be the one that JOB has.",
        ),
    ] = False,
    savepoint: Annotated[
        bool,
        typer.Option("--savepoint", help="As another job, from a savepoint that stops this one."),
    ] = False,
    directory: Annotated[
        str | None,
        typer.Option(help="Where that is made, else in the job's default; as --savepoint."),
    ] = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Have JOB go on at PARALLELISM, as the same job, from a checkpoint that is taken for it.

    Its tasks stop and start again, but for pipelines that have nothing to do with OPERATOR; what
    speaks against that leaves it as it was. With --savepoint
    it is stopped with one and started again from that under another id: for detached jobs of a
    session. From then on it is in the savepoint, which is told: `strom run -s` goes on from that
    where the new job fails."""
    with answers.answering(as_json):
        if savepoint or directory is not None:
            if balance:
                raise typer.BadParameter("--balance is for a job that goes on, not for --savepoint")
            _move(job, parallelism, operator, directory, address, as_json)
            return
        wanted = parallelism if not operator else dict.fromkeys(operator, parallelism)
        made = catalog(address).rescale_live(job, wanted, balance)
        if as_json:
            answers.say_json(
                {
                    "job_id": job,
                    "before": dict(made.before),
                    "after": dict(made.after),
                    "silence_ms": made.silence_ms,
                    "stopped_tasks": made.stopped_tasks,
                    "held_tasks": made.held_tasks,
                    "kept_tasks": made.kept_tasks,
                    **({"balance": dict(made.balance)} if balance else {}),
                }
            )
        elif not made.after and not made.silence_ms:
            what = "deal of key groups" if balance else "parallelism"
            answers.say(f"job {job} has that {what} already")
        else:
            said = [f"{name}: {made.before[name]} to {n}" for name, n in made.after.items()]
            more = f"; {', '.join(said)}" if said else ""
            held = f", while {made.held_tasks} tasks stood still" if made.held_tasks else ""
            rest = f", while {made.kept_tasks} tasks went on" if made.kept_tasks else ""
            answers.say(f"job {job} goes on after {made.silence_ms} ms{more}{held}{rest}")
        if not as_json:
            for line in _balance_lines(made.balance):
                answers.say(line)


def _balance_lines(balance: Mapping[str, Balanced]) -> Iterator[str]:
    """What became of the busiest subtask, of each operator that was dealt by load."""
    for name, one in balance.items():
        limit = f" ({one['limit']})" if one["limit"] else ""
        yield (
            f"{name}: its busiest subtask had {one['before']:.0%} of the records, and is to have "
            f"{one['after']:.0%}{limit}"
        )


def _move(
    job: str,
    parallelism: int,
    operator: list[str] | None,
    directory: str | None,
    address: str | None,
    as_json: bool,
) -> None:
    """To another job."""
    from ..engine.hosts.savepoint_calls import absolute

    if operator:
        raise typer.BadParameter("--operator is for a job that goes on, not for --savepoint")
    moved = catalog(address).rescale(job, parallelism, absolute(directory))
    if as_json:
        answers.say_json({"job_id": moved.job_id, "savepoint": moved.savepoint, "was": job})
    else:
        answers.say(f"job {job} goes on as {moved.job_id}, from {moved.savepoint}")
