"""`strom autoscale`: what a job's parallelism should be, by its load; and what its own autoscaler
has decided."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.texts import printable
from . import answers
from .asking import catalog
from .cluster import Address, Json
from .jobs import Job

if TYPE_CHECKING:
    from ..engine.hosts.job_view import JobView


def autoscale(
    job: Job,
    window: Annotated[
        float, typer.Option(help="Seconds of which figures are taken.", min=1.0)
    ] = 60.0,
    last: Annotated[
        bool,
        typer.Option("--last", help="What its own autoscaler has decided lately, instead."),
    ] = False,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Say what parallelism each task of JOB should have for the load of the next seconds, and why.

    It changes nothing. What is aimed at is what the job's configuration says (job.autoscaler.*);
    what that says of waiting does not count here. --last: what was decided by the autoscaler that
    the job has with job.autoscaler.enabled, and what became of it."""
    with answers.answering(as_json):
        if last:
            _say_last(catalog(address).view(job), as_json)
            return
        from .. import attach
        from ..autoscaling.autoscaler import Autoscaler
        from ..core.autoscaler_config import AutoscalerConfig
        from ..engine.hosts.observed_load import sample_of, shape_of

        client = attach(job, address)
        view = client.view()
        config = replace(
            AutoscalerConfig.of_plain(view.get("autoscaler", {})),
            metrics_window=timedelta(seconds=window),
            stabilization=timedelta(0),
            scale_down_interval=timedelta(0),
        )
        scaler = Autoscaler(config, shape_of(view))
        decision = scaler.observe(sample_of(view))
        while decision.waiting is not None and not client.get_job_status().is_terminal:
            time.sleep(min(1.0, max(0.1, scaler.memory.window.missing_s)))
            decision = scaler.observe(sample_of(client.view()))
        if as_json:
            answers.say_json(decision.plain())
        else:
            for line in decision.explain().splitlines():
                answers.say(printable(line))


def _say_last(view: JobView, as_json: bool) -> None:
    """The oldest first."""
    decisions = view.get("autoscaling")
    if as_json:
        answers.say_json({"enabled": decisions is not None, "decisions": decisions or []})
        return
    if decisions is None:
        answers.say("no autoscaler looks at the job (job.autoscaler.enabled)")
    elif not decisions:
        answers.say("nothing was to be changed yet")
    for one in decisions or []:
        for line in _lines(one):
            answers.say(printable(line))


def _lines(one: Mapping[str, Any]) -> Iterator[str]:
    """Of a decision: when, what became of it, and why each parallelism."""
    time_of = datetime.fromtimestamp(one["at_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    became = one["outcome"].lower()
    if one["times"] > 1:
        became += f" ({one['times']} times)"
    if one["why"] is not None:
        became += f": {one['why']}"
    yield f"{time_of} UTC, {became}"
    for vertex in one["vertices"]:
        if vertex["wanted"] != vertex["parallelism"]:
            yield f"    {vertex['text']}"
