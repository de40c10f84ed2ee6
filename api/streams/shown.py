"""What one looks at a stream by: its graph, its first records, a plot of them.

What draws is above (`core.shown`); a stream only says what is to be drawn, and runs the job.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from ...core.checks import check_kind
from ...core.errors import ConfigurationError
from ...core.row_kind import ROW_KIND
from ...core.shown import PLOT_KINDS, PlotKind, Plotted, shows
from ...engine.graph.explain import ship_name
from ...engine.graph.transformation import Transformation
from ..connectors.builtin_sinks import CollectSink
from ..functions.validation import require_positive, require_text
from ..jobs.previews import preview, sketched
from ..specs.records import SinkSpec
from .stream import Out, Stream, known_schema


class Shown(Stream[Out]):
    """Part of `DataStream`."""

    def show(
        self,
        limit: int = 20,
        *,
        truncate: int = 60,
        timeout: timedelta | None = None,
        job_name: str | None = None,
    ) -> None:
        """Print the first `limit` records as a table; in a notebook it grows while they come.

        They come from a job of its own, of what this stream is made of and nothing else: no other
        sink runs, and what has been written so far stays to be executed. It takes no checkpoints,
        does not restart, and is cancelled when it has given enough, after `timeout`, or by an
        interrupt. Rows have a column for each field, all other records one that is called `value`;
        those of a changelog begin with what they do to the table (`+I -U +U -D`).

        truncate: the most characters of a value, 0 for all. Raises JobFailedError.

        >>> from strom import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_collection(["a", "b", "c"]).show(limit=2)
        ┌───────┐
        │ value │
        ├───────┤
        │ a     │
        │ b     │
        └───────┘
        the first 2 records
        """
        require_positive("show", "limit", limit)
        check_kind("show: truncate", truncate, int)
        if truncate < 0:
            raise ConfigurationError(f"show: truncate must be 0 or more, is {truncate}")
        _check_timeout("show", timeout)
        results = preview(self._env, self._collecting_sink(), job_name)
        columns = self._columns()
        shows().show(results, columns, limit=limit, truncate=truncate, timeout=timeout)

    def plot(
        self,
        x: str,
        y: str,
        *,
        by: str | None = None,
        kind: PlotKind = "line",
        last: int | None = None,
        timeout: timedelta | None = None,
        title: str | None = None,
        ax: Any = None,
        save: str | os.PathLike[str] | None = None,
        job_name: str | None = None,
    ) -> Any:
        """Run a job as `show` does, to its end, and plot its records while they come: of a notebook
        in its cell (and None), else in a matplotlib figure, which is returned.

        x, y: columns. `by`: a column with a series for each of its values, of which 20 are drawn.
        A series has one point for each x, the newest. `window_start` and `window_end` are times in
        UTC. last: only the points of each series with the greatest x. timeout: when a stream
        without end is cancelled, if not by an interrupt. ax: matplotlib's axes, to draw into. save:
        a file for the figure, as it is last. Needs `pip install 'strom[notebook]'`."""
        known = self._columns()
        for name, column in (("x", x), ("y", y), ("by", by)):
            if name == "by" and column is None:
                continue
            require_text("plot", f"{name}, a column,", column)
            if known is not None and column not in known:
                raise ConfigurationError(
                    f"plot: {name}='{column}' is no column of the stream; it has {', '.join(known)}"
                )
        if kind not in PLOT_KINDS:
            raise ConfigurationError(f"plot: no kind {kind!r}; there are {', '.join(PLOT_KINDS)}")
        if last is not None:
            require_positive("plot", "last", last)
        _check_timeout("plot", timeout)
        shows().check_plot()
        results = preview(self._env, self._collecting_sink(), job_name)
        plotted = Plotted(x, y, by, kind, last, title)
        return shows().plot(results, known, plotted, timeout=timeout, ax=ax, save=save)

    def _repr_html_(self) -> str:
        """The job graph up to this stream."""
        return sketched(self._env, [one.source for one in self._inputs], self._ways_out())

    def _ways_out(self) -> str:
        """How the stream, as a view, comes out of the graph."""
        said = []
        for one in self._inputs:
            ways = [] if one.tag is None else [f"side output '{one.tag}'"]
            ways += [] if one.partitioner is None else [ship_name(one.partitioner)]
            if ways:
                said.append(f"then {', '.join(ways)} of {one.source.name}")
        return "; ".join(said)

    def _collecting_sink(self) -> Transformation:
        """A new CollectSink at the end of the stream, chained to it if that may be."""
        sink = self._add(SinkSpec(CollectSink()), "Sink: Collect", is_sink=True)
        if len(self._inputs) == 1 and self._inputs[0].partitioner is None:
            sink.parallelism = self._inputs[0].source.parallelism
        return sink

    def _columns(self) -> list[str] | None:
        """Those that the program tells."""
        schema = known_schema(self)
        if schema is None:
            return None
        return [name for name in schema.names if name != ROW_KIND]


def _check_timeout(method: str, timeout: timedelta | None) -> None:
    check_kind(f"{method}: timeout", timeout, timedelta, type(None))
    if timeout is not None and timeout <= timedelta(0):
        raise ConfigurationError(f"{method}: timeout must be positive, is {timeout}")
