"""`stream.plot()`: windows as they close, in one figure that is drawn anew while they come.

The figure is matplotlib's, made without pyplot: no window opens, and no state of other plots is
touched.
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from ..core.errors import ConfigurationError
from ..core.shown import Plotted
from .display import Output, in_notebook
from .incoming import Incoming
from .series import MOST_SERIES, Points, in_order
from .showing import gather

SIZE = (8.0, 3.6)
"""Inches."""

MOST_LABELS = 12
"""Below bars."""


def check_plot() -> None:
    """ConfigurationError if matplotlib is missing."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            f"plot draws with matplotlib, which cannot be imported ({error}): "
            "pip install 'strom[notebook]'"
        ) from error


def plot(
    results: Any,
    columns: Sequence[str] | None,
    plotted: Plotted,
    *,
    timeout: timedelta | None,
    ax: Any,
    save: str | os.PathLike[str] | None,
) -> Any:
    """See `DataStream.plot`."""
    points = Points(plotted, columns)
    drawing = Drawing(points, ax)
    with Incoming(results, timeout=timeout) as incoming:
        try:
            gather(incoming, points.add, drawing.show)
        finally:
            drawing.show()
            if save is not None:
                drawing.figure.savefig(save)
    incoming.check()
    return None if drawing.output is not None else drawing.figure


class Drawing:
    """Axes with the points, those of the user or in a figure of their own, shown in place if this
    is a notebook."""

    def __init__(self, points: Points, ax: Any = None) -> None:
        from matplotlib.figure import Figure

        self._points = points
        self._plotted = plotted = points.plotted
        self._axes: Any = Figure(SIZE, layout="constrained").add_subplot() if ax is None else ax
        self.figure: Any = self._axes.figure
        self.output = Output() if in_notebook() else None
        self._drawn: list[Any] = []
        """What the next drawing replaces."""
        axes = self._axes
        if not axes.get_xlabel():
            axes.set_xlabel(literal(plotted.x))
        if not axes.get_ylabel():
            axes.set_ylabel(literal(plotted.y))
        if plotted.title is not None:
            axes.set_title(plotted.title)
        if ax is None:
            axes.grid(axis="y", alpha=0.3)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)

    def show(self) -> None:
        """Draw the points as they are; in a notebook in its cell."""
        for one in self._drawn:
            one.remove()
        self._drawn = []
        series = self._points.series()
        if self._plotted.kind == "bar":
            self._bars(series)
        else:
            self._lines(series)
        self._legend(series)
        self._axes.relim()
        self._axes.autoscale_view()
        if self.output is not None:
            self.output.put(self._picture(series))

    def _lines(self, series: dict[Any, tuple[list[Any], list[float]]]) -> None:
        for at, (name, (xs, ys)) in enumerate(series.items()):
            mark = "o" if len(xs) <= 60 else None
            how = {"marker": mark, "markersize": 3.5, "color": f"C{at}", "label": name_of(name)}
            texts = [literal(x) if isinstance(x, str) else x for x in xs]
            self._drawn += self._axes.plot(texts, ys, **how)
        if any(isinstance(x, datetime) for xs, _ in series.values() for x in xs[:1]):
            self._times()

    def _times(self) -> None:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator()
        self._axes.xaxis.set_major_locator(locator)
        self._axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))

    def _bars(self, series: dict[Any, tuple[list[Any], list[float]]]) -> None:
        """Those of one x beside each other, with equal room for each x."""
        xs = in_order(x for one, _ in series.values() for x in one)
        place = {x: at for at, x in enumerate(xs)}
        width = 0.8 / max(1, len(series))
        for at, (name, (own, ys)) in enumerate(series.items()):
            offset = (at - (len(series) - 1) / 2) * width
            places = [place[x] + offset for x in own]
            bars = self._axes.bar(places, ys, width * 0.95, color=f"C{at}", label=name_of(name))
            self._drawn.append(bars)
        step = max(1, -(-len(xs) // MOST_LABELS))
        shown = range(0, len(xs), step)
        self._axes.set_xticks(list(shown), labels(xs[at] for at in shown))

    def _legend(self, series: dict[Any, tuple[list[Any], list[float]]]) -> None:
        if self._plotted.by is None or not series:
            return
        left_out = len(self._points.left_out)
        title = literal(self._plotted.by) + (f"\n({left_out} more not drawn)" if left_out else "")
        columns = 1 if len(series) <= MOST_SERIES // 2 else 2
        self._axes.legend(title=title, fontsize="small", ncols=columns)

    def _picture(self, series: dict[Any, tuple[list[Any], list[float]]]) -> dict[str, Any]:
        out = io.BytesIO()
        self.figure.savefig(out, format="png")
        count = sum(len(xs) for xs, _ in series.values())
        plotted = self._plotted
        return {
            "image/png": base64.b64encode(out.getvalue()).decode(),
            "text/plain": f"<plot of {plotted.y} by {plotted.x}: {count} points>",
        }


def literal(text: str) -> str:
    """Shown as it is: what is between dollars would be a formula."""
    return text.replace("$", r"\$")


def name_of(series: Any) -> str | None:
    """In the legend, where a name that begins with `_` would be left out."""
    if series is None:
        return None
    return literal(f" {series}" if series.startswith("_") else series)


def labels(xs: Any) -> list[str]:
    """Times without the day where they are all of one."""
    found = list(xs)
    times = [x for x in found if isinstance(x, datetime)]
    if not times or len(times) < len(found):
        return [literal(str(x)) for x in found]
    days = {x.date() for x in times}
    form = "%H:%M:%S" if len(days) == 1 else "%m-%d %H:%M"
    return [x.strftime(form) for x in times]
