"""Who says a line: the job, operator, subtask and attempt that the code runs for.

Nothing is noted while records flow. A line looks up its own stack instead: the innermost call of a
method that tells its scope (of a chain's node, of a task) is who says it. Threads that are not a
task's have what they were bound to, and what they call in other threads through `asyncio`; else
the process has a scope, if it works for one job alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final, TypeVar

MOST_FRAMES: Final = 2_000
"""How far a stack is looked up."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class LogScope:
    """`task`: the name of the chain; None outside tasks. `operator` None: no single one."""

    job_id: str
    job_name: str
    task: str | None = None
    operator: str | None = None
    operator_id: str | None = None
    subtask: int | None = None
    attempt: int | None = None


_telling: dict[int, CodeType] = {}
"""By id: hashing code compares what is in it."""

_bound: ContextVar[LogScope | None] = ContextVar("strom_log_scope", default=None)

_of_process: list[LogScope] = []
"""The last one counts."""


def tells_scope(method: F) -> F:
    """Mark a method of an object with a `log_scope: LogScope | None`: what is said inside it is
    said by that."""
    code: CodeType = method.__code__
    _telling[id(code)] = code
    return method


def bind(scope: LogScope | None) -> None:
    """From now on this thread, or coroutine, speaks for `scope` where its stack tells none."""
    _bound.set(scope)


def set_process_scope(scope: LogScope | None) -> None:
    """What threads that nobody bound speak for."""
    _of_process[:] = [] if scope is None else [scope]


def current_scope() -> LogScope | None:
    """Of the caller; None: of no job."""
    frame = sys._getframe(1)
    telling = _telling
    for _ in range(MOST_FRAMES):
        if id(frame.f_code) in telling:
            scope: LogScope | None = frame.f_locals["self"].log_scope
            if scope is not None:
                return scope
        if frame.f_back is None:
            break
        frame = frame.f_back
    bound = _bound.get()
    if bound is not None:
        return bound
    return _of_process[-1] if _of_process else None
