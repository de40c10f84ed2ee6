"""`strom cluster`: the dispatcher of a Ray cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from . import answers

app = typer.Typer(help="The dispatcher of a Ray cluster.", no_args_is_help=True)

Address = Annotated[
    str | None,
    typer.Option(help="The Ray cluster, as for ray.init; else RAY_ADDRESS, or the one here."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document.")]


@app.command()
def start(
    registry: Annotated[
        str | None,
        typer.Option(
            help="Where jobs are kept: an fsspec URL or path that outlives the cluster and that "
            "all nodes reach. Else a folder of your home, which serves a cluster of one machine."
        ),
    ] = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Start the dispatcher, or find it. It takes up the jobs in its registry."""
    with answers.answering(as_json):
        from ..cluster import clusters

        place = registry or str(Path.home() / ".strom" / "registry")
        client, new = clusters.start(place, address)
        _say(client.about() | {"new": new}, as_json, "started" if new else "runs")


@app.command()
def status(address: Address = None, as_json: Json = False) -> None:
    """What the dispatcher says of itself."""
    with answers.answering(as_json):
        _say(_session(address, as_json).about(), as_json, "runs")


@app.command()
def stop(address: Address = None, as_json: Json = False) -> None:
    """End the dispatcher. Its jobs go on; the next one on the same registry takes them up."""
    with answers.answering(as_json):
        from ..cluster import clusters

        if not clusters.stop(address):
            answers.fail("the cluster has no dispatcher", as_json, answers.USAGE)
        if as_json:
            answers.say_json({"stopped": True})
        else:
            answers.say("the dispatcher is stopped; its jobs go on")


def _session(address: str | None, as_json: bool) -> Any:
    from ..cluster import clusters
    from ..engine.hosts.ray_connect import join_ray

    join_ray(address)
    client = clusters.find()
    if client is None:
        answers.fail("the cluster has no dispatcher: `strom cluster start`", as_json, answers.USAGE)
    return client


def _say(about: dict[str, Any], as_json: bool, how: str) -> None:
    if as_json:
        answers.say_json(about)
        return
    since = datetime.fromtimestamp(about["since_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    answers.say(f"the dispatcher {how}, since {since} UTC; its registry: {about['registry']}")
    answers.say(f"{about['running']} jobs run, {about['queued']} wait, {about['ended']} are over")
