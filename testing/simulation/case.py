"""A case: all that is drawn of one simulation, as plain data.

    seed=7 job=diamond variant=3 parallelism=2,3 mode=unaligned crashes=2 ends=savepoint

is one as text: what is not said is as in `Case()`. It says all that there is to say, so the same
text replays the same run, whatever seeds draw meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, get_args

from ...core.errors import ConfigurationError
from .records import Limit

Mode = Literal["aligned", "timeout", "unaligned", "at_least_once"]
"""timeout: aligned, and unaligned once that takes longer."""

Storage = Literal["memory", "files", "objects"]
"""memory: the coordinator's own. files: shared by checkpoints, in this process. objects: the same
through fsspec, as in an object store."""

Backend = Literal["memory", "rocksdb"]

End = Literal["checkpoint", "savepoint", "itself"]
"""How a life ends that is not the last: another job goes on from its checkpoint (of `objects`), or
from the savepoint that stops it, or the job itself does, with its storage."""


Sink = Literal["collect", "staged", "counted", "blind"]
"""collect: records travel in committables. staged: they lie aside until they are committed.
counted: so, and who takes it over refuses all writers before but those that it goes on with; blind:
these, too."""


@dataclass(frozen=True)
class Case:
    """seed: of the schedule. job: the name of a topology; empty: a user's. variant: which records.
    records: at most so many of each source (0: all).

    parallelism: of each life; all but the last end as `ends` says, once `stop` checkpoints are
    complete. cramped: buffers that each batch fills. at_once: so many checkpoints may be on their
    way. full_every: one of so many builds on none. crashes, coordinators, after: tasks that crash
    within the first `window` steps of a life, coordinators, and tasks right behind a checkpoint.
    savepoints: asked for on the way. live: rescales of the running job that are; of a hundred of
    these `deals` deal key groups unevenly. own: rescales by an autoscaler that wants anything;
    looks: how often it looks (ms). short: starts of tasks for which there is room for fewer; it
    grows again. amid: tasks or coordinators that crash while tasks stop and start for a rescale;
    at_stop: coordinators that do while a life is stopped with a savepoint.
    failing: of a thousand calls of the storage so many fail. cut_offs: coordinators of the last
    life that are taken for dead with all their tasks, and come back up to `away` ms later. late: of
    that life, held up for as long, before they have begun, while others take over; they crash then.
    partitions: tasks of each life that are cut off from others or from the coordinator for a time.
    commits: of a thousand commits so many begin a time in which all fail. figures: whether tasks
    report them when they begin. refused: of a hundred records so many have one beside them for
    which a function raises; `limit`: how many of these may be put aside. hangs: of a thousand
    pieces of work in the background so many take longer than a checkpoint may. slow_tasks: of a
    hundred. slow_work: the longest delay of work in the background (ms). choices: so many are
    drawn, then all take turns.
    """

    seed: int = 0
    job: str = ""
    variant: int = 0
    records: int = 0
    parallelism: tuple[int, ...] = (2,)
    batch: int = 3
    cramped: bool = False
    mode: Mode = "aligned"
    interval: int = 2
    incremental: bool = True
    retained: int = 1
    at_once: int = 1
    full_every: int | None = None
    storage: Storage = "files"
    backend: Backend = "memory"
    ends: End = "itself"
    stop: int = 1
    crashes: int = 0
    coordinators: int = 0
    after: int = 0
    window: int = 300
    savepoints: int = 0
    failing: int = 0
    hangs: int = 0
    slow_tasks: int = 0
    slow_work: int = 0
    cut_offs: int = 0
    away: int = 0
    late: int = 0
    partitions: int = 0
    commits: int = 0
    figures: bool = True
    sink: Sink = "collect"
    refused: int = 0
    limit: Limit = "none"
    choices: int | None = None
    live: int = 0
    deals: int = 0
    own: int = 0
    looks: int = 1
    short: int = 0
    amid: int = 0
    at_stop: int = 0

    def __str__(self) -> str:
        default = Case()
        said = [
            f"{f.name}={_text(getattr(self, f.name))}"
            for f in fields(self)
            if f.name == "seed" or getattr(self, f.name) != getattr(default, f.name)
        ]
        return " ".join(said)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(int(value)) if isinstance(value, bool) else str(value)


def parse(text: str) -> Case:
    """The case of a text. ConfigurationError names what is not understood."""
    said: dict[str, Any] = {}
    for word in text.split():
        name, _, value = word.partition("=")
        if name not in _READ:
            known = ", ".join(_READ)
            raise ConfigurationError(f"replay '{text}': '{word}' is none of {known}")
        try:
            said[name] = _READ[name](value)
        except ValueError as error:
            raise ConfigurationError(f"replay '{text}': {word}: {error}") from error
    for name, value in said.items():
        least = int(name in _POSITIVE)
        values = value if isinstance(value, tuple) else (value,)
        if any(isinstance(one, int) and one < least for one in values):
            raise ConfigurationError(f"replay '{text}': {name} is at least {least}")
    return replace(Case(), **said)


_POSITIVE = (
    "parallelism", "batch", "interval", "retained", "at_once", "full_every", "stop", "window",
    "looks",
)  # fmt: skip


def _one_of(kind: Any) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value not in get_args(kind):
            raise ValueError(f"one of {', '.join(get_args(kind))}")
        return value

    return read


def _numbers(value: str) -> tuple[int, ...]:
    return tuple(map(int, value.split(",")))


def _flag(value: str) -> bool:
    return bool(int(value))


_READ: Final[dict[str, Callable[[str], Any]]] = {f.name: int for f in fields(Case)} | {
    "job": str,
    "parallelism": _numbers,
    "cramped": _flag,
    "mode": _one_of(Mode),
    "incremental": _flag,
    "storage": _one_of(Storage),
    "backend": _one_of(Backend),
    "ends": _one_of(End),
    "figures": _flag,
    "sink": _one_of(Sink),
    "limit": _one_of(Limit),
}
