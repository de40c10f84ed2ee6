"""`strom top`: one job, live."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.live import Live

from ..observe import top as view
from ..observe.live import Rates
from . import answers
from .cluster import Address, Json
from .jobs import Job


def top(
    job: Job,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="One look, then the end.")] = False,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """JOB live: throughput and lag of its operators, how busy its tasks are, and its checkpoints.

    Until it is over, or Ctrl-C. With --json, or where stdout is no terminal, one look after one
    interval."""
    with answers.answering(as_json):
        from .. import attach

        client, rates = attach(job, address), Rates()

        def look() -> dict[str, Any]:
            wall_ms = time.time_ns() // 1_000_000
            return view.figures(client.metrics(), rates, time.monotonic(), wall_ms)

        look()
        console = answers.console()
        if as_json or once or not console.is_terminal:
            time.sleep(interval)
            if as_json:
                answers.say_json(look())
            else:
                console.print(view.render(look(), f"job {job}"))
            return
        with Live(console=console, auto_refresh=False, screen=False) as live:
            while not client.get_job_status().is_terminal:
                time.sleep(interval)
                live.update(view.render(look(), f"job {job}"), refresh=True)
