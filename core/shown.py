"""The seam to what people look at: graphs, jobs and records, in a notebook or a terminal.

Objects of all layers are asked by notebooks what they look like (`_repr_html_`), and `show` and
`plot` end in something drawn. Who draws stands above them all; the package's root registers it, and
it is loaded at the first use.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Protocol

from .errors import ConfigurationError

PlotKind = Literal["line", "bar"]

PLOT_KINDS: tuple[PlotKind, ...] = ("line", "bar")


@dataclass(frozen=True)
class Plotted:
    """`x`, `y`, `by`: columns; without `by` there is one series. `last`: the most points of each,
    those with the greatest x."""

    x: str
    y: str
    by: str | None = None
    kind: PlotKind = "line"
    last: int | None = None
    title: str | None = None


class Shows(Protocol):
    """What draws. HTML is one element, without scripts and without anything from elsewhere."""

    def graph_html(self, graph: Any, note: str = "") -> str:
        """A StreamGraph or JobGraph; `note` is said above it."""
        ...

    def message_html(self, text: str) -> str:
        """Why there is nothing to see."""
        ...

    def job_html(self, client: Any) -> str:
        """The figures of the job of a JobClient, as they are now."""
        ...

    def watch(self, client: Any, interval: timedelta, wait: bool) -> None:
        """The same in one place, anew every `interval` until the job is over."""
        ...

    def show(
        self,
        results: Any,
        columns: Sequence[str] | None,
        *,
        limit: int,
        truncate: int,
        timeout: timedelta | None,
    ) -> None:
        """The first records of a job (`CollectedResults`) as a table; `columns`: if the program
        tells them."""
        ...

    def check_plot(self) -> None:
        """ConfigurationError if a package is missing."""
        ...

    def plot(
        self,
        results: Any,
        columns: Sequence[str] | None,
        plotted: Plotted,
        *,
        timeout: timedelta | None,
        ax: Any,
        save: str | os.PathLike[str] | None,
    ) -> Any:
        """The records of a job as a figure, drawn anew while they come: the figure, or None where
        it stands in a notebook already."""
        ...


_loaders: list[Callable[[], Shows]] = []


def register_shows(load: Callable[[], Shows]) -> None:
    """Make `load()` what draws, called at each use; replaces an earlier one."""
    _loaders[:] = [load]


def shows() -> Shows:
    if not _loaders:
        raise ConfigurationError("nothing is registered that draws: import strom, not its parts")
    return _loaders[0]()
