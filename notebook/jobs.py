"""The figures of one job, as `strom top` works them out, in a notebook; live, if one waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final
from weakref import WeakKeyDictionary

from rich.console import RenderableType
from rich.text import Text

from ..core.errors import AuthenticationError, StromError, TransportError
from ..observe import top
from ..observe.live import Rates, format_watermark
from .display import Place, in_notebook, place
from .markup import Cell, message, safe, table

PATIENCE_S: Final = 600.0
"""How long a job that does not answer is asked again: others may have to start its coordinator."""


class Look:
    """The figures of one client's job, with rates since the last look at it. Holds no client."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rates = Rates()
        self._again = False
        """Whether there was a look before."""
        self._title = "job"
        self._found: dict[str, Any] = {}
        self._rated = False
        self._problem = ""
        """Why there are no figures."""
        self._silent_since: float | None = None

    def look(self, client: Any) -> bool:
        """Whether the job goes on, or may."""
        self._title = f"job {client.get_job_id()}"
        try:
            going_on = not client.get_job_status().is_terminal
            wall_ms = time.time_ns() // 1_000_000
            self._found = top.figures(client.metrics(), self._rates, self._clock(), wall_ms)
        except StromError as error:
            self._problem = str(error)
            return self._may_answer(error)
        self._problem, self._silent_since = "", None
        self._rated, self._again = self._again and going_on, True
        return going_on

    def _may_answer(self, error: StromError) -> bool:
        if not isinstance(error, TransportError) or isinstance(error, AuthenticationError):
            return False
        now = self._clock()
        self._silent_since = now if self._silent_since is None else self._silent_since
        return now - self._silent_since < PATIENCE_S

    def html(self) -> str:
        if self._problem:
            return message(f"{self._title}: {self._problem}")
        return job_tables(self._found, self._title, self._rated)

    def text(self) -> RenderableType:
        if self._problem:
            return Text(f"{self._title}: {self._problem}")
        return top.render(self._found, self._title)


_looks: WeakKeyDictionary[Any, Look] = WeakKeyDictionary()
"""So that who shows a client again sees rates since the time before."""


_watching: WeakKeyDictionary[Any, threading.Event] = WeakKeyDictionary()
"""What ends the thread that watches a client's job."""


def job_html(client: Any) -> str:
    look = _looks.setdefault(client, Look())
    look.look(client)
    return look.html()


def watch(client: Any, interval: timedelta, wait: bool) -> None:
    """Until the job is over. `wait` False: on a thread, beside other cells, until the client's job
    is watched anew; in a terminal once."""
    seconds, look, shown, stop = interval.total_seconds(), Look(), place(), threading.Event()
    if (before := _watching.pop(client, None)) is not None:
        before.set()
    if wait:
        follow(client, look, shown, seconds, stop)
        return
    # In the cell that asked for it: a thread only draws where it began.
    going_on = look.look(client)
    with shown:
        shown.draw(look.html, look.text)
    if going_on and in_notebook():
        _watching[client] = stop
        given = (client, look, shown, seconds, stop)
        threading.Thread(target=follow, args=given, name="strom-show", daemon=True).start()


def follow(client: Any, look: Look, shown: Place, interval_s: float, stop: threading.Event) -> None:
    """Draw anew every so often, until the job is over or `stop`."""
    with shown:
        while True:
            going_on = look.look(client)
            shown.draw(look.html, look.text)
            if not going_on or stop.wait(interval_s):
                return


# --- HTML ------------------------------------------------------------------------------------


def job_tables(found: Mapping[str, Any], title: str, rated: bool) -> str:
    operators = table(
        _header(
            "operator", "tasks", "records in", "records out", "in/s", "out/s", "watermark", "lag"
        ),
        [_operator(one, rated) for one in found["operators"]],
        caption=f"{safe(title)}: {safe(found['state'])}",
    )
    vertices = table(
        _header(
            "task", "subtasks", "busy", "held", "idle", "RSS at most", "state", texts=("state",)
        ),
        [_vertex(one) for one in found["vertices"]],
        below=_below(found),
    )
    return f"<div>{operators}{vertices}</div>"


def _header(first: str, *rest: str, texts: tuple[str, ...] = ()) -> list[Cell]:
    return [(first, False), *((name, name not in texts) for name in rest)]


def _operator(one: Mapping[str, Any], rated: bool) -> list[Cell]:
    figures = [
        str(one["parallelism"]),
        f"{one['records_in']:,}",
        f"{one['records_out']:,}",
        f"{one['in_per_s']:,.0f}" if rated else "-",
        f"{one['out_per_s']:,.0f}" if rated else "-",
        format_watermark(one["watermark"]),
        "-" if one["lag_ms"] is None else top.duration(one["lag_ms"]),
    ]
    return [(safe(one["name"], 80), False), *((figure, True) for figure in figures)]


def _vertex(one: Mapping[str, Any]) -> list[Cell]:
    shares = [str(top.share(one, share)) for share in top.SHARES]
    figures = [str(one["tasks"]), *shares, f"{one['rss_bytes'] / 1e6:,.0f} MB"]
    return [
        (safe(one["name"], 80), False),
        *((figure, True) for figure in figures),
        (safe(", ".join(one["states"])), False),
    ]


def _below(found: Mapping[str, Any]) -> str:
    return "<br/>".join(safe(line) for line in str(top.line(found)).split("\n"))
