"""`strom top`: one job, live."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live

from ..core.texts import all_printable, printable
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

        def shown() -> Group:
            found = look()
            failure = str(found["last_failure"] or "").partition("\n")[0]
            return view.render(all_printable(found | {"last_failure": failure}), title)

        look()
        title = printable(f"job {job}")
        console = answers.console()
        if as_json or once or not console.is_terminal:
            time.sleep(interval)
            if as_json:
                answers.say_json(look())
            else:
                answers.draw(shown())
            return
        with Live(console=console, auto_refresh=False, screen=False) as live:
            while not client.get_job_status().is_terminal:
                time.sleep(interval)
                live.update(shown(), refresh=True)
