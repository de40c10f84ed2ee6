"""What a session decides is to be done, as data. Whoever carries it out does so in this order, and
tells the session as an event what came of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from .records import JobRecord


@dataclass(frozen=True)
class Store:
    """Keep this in the registry."""

    record: JobRecord


@dataclass(frozen=True)
class Start:
    """Keep the record, then start its run; `started` or `start_failed` is told."""

    record: JobRecord


@dataclass(frozen=True)
class Find:
    """See whether the run's coordinator lives; `found` is told."""

    record: JobRecord


@dataclass(frozen=True)
class Follow:
    """Wait for the end of the run; `ended` or `lost` is told."""

    record: JobRecord


@dataclass(frozen=True)
class Cancel:
    """Tell the run's coordinator to cancel."""

    record: JobRecord


@dataclass(frozen=True)
class Release:
    """Remove these slots, if they are there."""

    group: str


@dataclass(frozen=True)
class Stop:
    """Have the job that this one `follows` stopped with a savepoint; `stopped` or `stop_failed` is
    told of this one."""

    record: JobRecord


@dataclass(frozen=True)
class Settle:
    """Find out whether the job that this one `follows`, which is over, was stopped with a
    savepoint; `stopped` or `not_stopped` is told of this one."""

    record: JobRecord


Action = Store | Start | Find | Follow | Cancel | Release | Stop | Settle
