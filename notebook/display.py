"""Where things are shown that change: one output of a notebook's cell, or the terminal.

A notebook is told by its shell, which has a kernel; IPython in a terminal is a terminal. Nothing is
imported for it: in a notebook IPython is there already.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console, RenderableType
from rich.live import Live

UNLIMITED = 10_000
"""Columns of what is no terminal: nothing is cut for its width."""

REDRAW_S = 0.2
"""The least between two drawings of the same."""


def in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class Place(Protocol):
    """Where one thing is shown, as it is last. A context manager: behind it nothing changes."""

    def draw(self, html: Callable[[], str], text: Callable[[], RenderableType]) -> None: ...

    def __enter__(self) -> Place: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def place() -> Place:
    return Cell() if in_notebook() else Terminal()


class Output:
    """One output of the notebook's cell, made at the first `put` and replaced by later ones."""

    def __init__(self) -> None:
        self._handle: Any = None

    def put(self, bundle: dict[str, Any]) -> None:
        """By MIME type."""
        if self._handle is None:
            from IPython import display

            show: Any = display.display
            self._handle = show(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


class Cell:
    """A place in a notebook."""

    def __init__(self) -> None:
        self._output = Output()

    def draw(self, html: Callable[[], str], text: Callable[[], RenderableType]) -> None:
        self._output.put({"text/html": html(), "text/plain": as_text(text())})

    def __enter__(self) -> Cell:
        return self

    def __exit__(self, *exception: object) -> None:
        """All is there."""


class Terminal:
    """A place on standard output: redrawn if that is a terminal, else written once, at the end."""

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(file=sys.stdout)
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._last: RenderableType | None = None

    def draw(self, html: Callable[[], str], text: Callable[[], RenderableType]) -> None:
        self._last = text()
        if self._live is not None:
            self._live.update(self._last, refresh=True)

    def __enter__(self) -> Terminal:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()
        elif self._last is not None:
            print(as_text(self._last), flush=True)


def as_text(shown: RenderableType) -> str:
    """Without colours, and as wide as it is."""
    out = io.StringIO()
    # In a notebook rich would by itself show what is printed, wherever it is printed to.
    console = Console(file=out, width=UNLIMITED, force_terminal=False, force_jupyter=False)
    console.print(shown, highlight=False)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip("\n").split("\n"))
