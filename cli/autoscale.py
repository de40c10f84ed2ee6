"""`strom autoscale`: what a job's parallelism should be, by its load."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from typing import Annotated

import typer

from ..core.texts import printable
from . import answers
from .cluster import Address, Json
from .jobs import Job


def autoscale(
    job: Job,
    window: Annotated[
        float, typer.Option(help="Seconds of which figures are taken.", min=1.0)
    ] = 60.0,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Say what parallelism each task of JOB should have for the load of the next seconds, and why.

    It changes nothing. What is aimed at is what the job's configuration says (job.autoscaler.*);
    what that says of waiting does not count here."""
    with answers.answering(as_json):
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
