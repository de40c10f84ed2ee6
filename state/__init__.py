"""Keyed and operator state: what holds it while a job runs.

`strom.state.open`, `write` and `dispose` are those of `strom.snapshots`, which reads and writes
state where checkpoints keep it. This package is below the one that knows checkpoints, so the
composition root (`strom/__init__.py`) says where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_OPEN_STATE = ("dispose", "open", "write")

_loaders: list[Callable[[], Any]] = []


def register_open_state(load: Callable[[], Any]) -> None:
    """Make `load()` the module that has these, called at their first use."""
    _loaders[:] = [load]


def __getattr__(name: str) -> Any:
    if name in _OPEN_STATE and _loaders:
        return getattr(_loaders[0](), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_OPEN_STATE})
