"""`strom cluster`: the dispatcher of a Ray cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from . import answers
from .rest_options import (
    RestHost,
    RestName,
    RestPort,
    RestPrograms,
    RestTokenFile,
    RestTokens,
    serving_of,
)

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
    retained_jobs: Annotated[
        int | None,
        typer.Option(
            help="How many jobs that are over the registry keeps; of more, those that ended first "
            "are removed. Else 10000.",
            min=1,
        ),
    ] = None,
    ready_tasks: Annotated[
        int | None,
        typer.Option(
            help="How many task processes are kept ready on each node, so that jobs start sooner; "
            "each takes some 150 MB. Never more than two for each CPU of the node. Else 4. With 0 "
            "no coordinator is kept ready either.",
            min=0,
        ),
    ] = None,
    rest: Annotated[bool, typer.Option(help="Serve the REST API, on this machine.")] = True,
    rest_host: RestHost = "127.0.0.1",
    rest_port: RestPort = None,
    rest_tokens: RestTokens = None,
    rest_token_file: RestTokenFile = None,
    rest_name: RestName = None,
    rest_programs: RestPrograms = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Start the dispatcher, or find it. It takes up the jobs in its registry."""
    with answers.answering(as_json):
        from ..cluster import dispatcher_client

        place = registry or str(Path.home() / ".strom" / "registry")
        serving = None
        if rest:
            serving = serving_of(
                rest_host, rest_port, rest_tokens, rest_token_file, rest_name, rest_programs
            )
        client, new = dispatcher_client.start(place, address, retained_jobs, ready_tasks)
        known = client.about() | {"new": new}
        if serving is not None:
            from ..rest.servers import session_server

            known |= session_server.start(serving)
        _say(known, as_json, "started" if new else "runs")


@app.command()
def status(address: Address = None, as_json: Json = False) -> None:
    """What the dispatcher says of itself."""
    with answers.answering(as_json):
        known = _session(address, as_json).about()
        from ..rest.servers import session_server

        _say(known | (session_server.about() or {}), as_json, "runs")


@app.command()
def stop(address: Address = None, as_json: Json = False) -> None:
    """End the dispatcher. Its jobs go on; the next one on the same registry takes them up."""
    with answers.answering(as_json):
        from ..cluster import dispatcher_client

        stopped = dispatcher_client.stop(address)
        from ..rest.servers import session_server

        session_server.stop()
        if not stopped:
            answers.fail("the cluster has no dispatcher", as_json, answers.USAGE)
        if as_json:
            answers.say_json({"stopped": True})
        else:
            answers.say("the dispatcher is stopped; its jobs go on")


def _session(address: str | None, as_json: bool) -> Any:
    from ..cluster import dispatcher_client
    from ..engine.hosts.ray_connect import join_ray

    join_ray(address, log_to_driver=False)
    client = dispatcher_client.find()
    if client is None:
        answers.fail("the cluster has no dispatcher: `strom cluster start`", as_json, answers.USAGE)
    return client


def _say(about: dict[str, Any], as_json: bool, how: str) -> None:
    if as_json:
        answers.say_json(about)
        return
    since = datetime.fromtimestamp(about["since_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    answers.say(f"the dispatcher {how}, since {since} UTC; its registry: {about['registry']}")
    if "rest" in about:
        tokens = f"; its tokens: {about['rest_tokens']}" if about["rest_tokens"] else ""
        answers.say(f"its REST API: {about['rest']}/v1{tokens}")
    answers.say(f"{about['running']} jobs run, {about['queued']} wait, {about['ended']} are over")
