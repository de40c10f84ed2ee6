"""A live view of one job in the terminal: records per second, watermarks, checkpoints, restarts.

Reads nothing but `JobClient.metrics()`, so it works with every host, and from another process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

MAX_WATERMARK = 2**63 - 1


class Rates:
    """Records per second by operator from successive cumulative counts.

    Counts fall back when a job restarts; the rate then starts anew from zero.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}

    def update(self, operator: str, count: int, now_s: float) -> float:
        """The rate since the last call for this operator; 0.0 on the first."""
        before = self._last.get(operator)
        self._last[operator] = (now_s, count)
        if before is None or count < before[1] or now_s <= before[0]:
            return 0.0
        return (count - before[1]) / (now_s - before[0])


def format_watermark(watermark: int | None) -> str:
    """Event time as UTC text; `-` before the first watermark, `end` after the last."""
    if watermark is None:
        return "-"
    if watermark == MAX_WATERMARK:
        return "end"
    return datetime.fromtimestamp(watermark / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")


def render(metrics: Mapping[str, Any], rates: Rates, now_s: float, title: str) -> Group:
    """The view of one `JobClient.metrics()`."""
    table = Table(title=title, title_justify="left", header_style="bold")
    table.add_column("operator")
    for name in ("tasks", "records in", "records out", "in/s", "watermark"):
        table.add_column(name, justify="right")
    for operator in metrics["operators"]:
        seen = operator["records_in"] or operator["records_out"]
        table.add_row(
            operator["name"],
            str(operator["parallelism"]),
            f"{operator['records_in']:,}",
            f"{operator['records_out']:,}",
            f"{rates.update(operator['id'], seen, now_s):,.0f}",
            format_watermark(operator["watermark"]),
        )
    checkpoints = metrics["checkpoints"]
    line = Text.assemble(
        ("state ", "dim"),
        (str(metrics["state"]), "bold"),
        ("   restarts ", "dim"),
        str(metrics["restarts"]),
        ("   checkpoints ", "dim"),
        str(checkpoints["completed"]),
        ("   last ", "dim"),
        "-" if checkpoints["last_id"] is None else f"#{checkpoints['last_id']}",
        ("   took ", "dim"),
        "-" if checkpoints["last_duration_ms"] is None else f"{checkpoints['last_duration_ms']} ms",
        ("   in flight ", "dim"),
        f"{metrics['exchange']['in_flight_bytes'] / 1e6:.2f} MB",
    )
    return Group(table, line)


class LiveView:
    """Context manager that redraws while the job runs.

        with LiveView("flights") as view:
            while not client.get_job_status().is_terminal:
                view.show(client.metrics())

    Messages given to `say` scroll above the table. Without a terminal it prints a line now and
    then.
    """

    def __init__(
        self,
        title: str,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title = title
        self._console = console or Console()
        self._clock = clock
        self._rates = Rates()
        self._live = Live(console=self._console, auto_refresh=False, transient=False)
        self._last_line = 0.0

    def __enter__(self) -> LiveView:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def say(self, message: str) -> None:
        """Print above the table."""
        self._console.print(message)

    def show(self, metrics: Mapping[str, Any]) -> None:
        now = self._clock()
        view = render(metrics, self._rates, now, self._title)
        if self._console.is_terminal:
            self._live.update(view, refresh=True)
        elif now - self._last_line >= 2.0:
            self._last_line = now
            self._console.print(view)
