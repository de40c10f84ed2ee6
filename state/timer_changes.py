"""What changed in a timer queue since a snapshot, by the timers' sequence numbers: a number stands
for one timer, and never for another one.

A delta has the new timers, and of those that fired or were deleted the numbers, in rows for every
reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ..core.taking import null_array
from .increments import (
    EVERY_GROUP,
    IDENTITY,
    REMOVED,
    SCOPE,
    Continuity,
    Since,
    columns_text,
)
from .slot_changes import MOST_CHANGED
from .stored import KEY_GROUP, StateTable
from .timer_freeze import TimerFreeze
from .whole import Freeze

Added = dict[int, tuple[int, Any, Any]]
"""sequence number -> (timestamp, key, namespace)"""


class TimerChanges:
    """The record of one queue over its snapshots; it is kept from the first one on."""

    def __init__(self) -> None:
        self.added: Added = {}
        """Registered since the last snapshot, and still there."""
        self._gone: list[int] = []
        """Of those that the last snapshot has."""
        self._since: tuple[Added, list[int]] | None = None
        """The same between the newest complete snapshot and the last one; None: not known."""
        self._continuity = Continuity()
        self._rows = 0
        """In the newest base."""

    def remove(self, sequence: int) -> None:
        """A timer has fired or was deleted."""
        if self.added.pop(sequence, None) is None:
            self._gone.append(sequence)

    def freeze(
        self, whole: Callable[[], TimerFreeze], rows: int, name: str, since: Since
    ) -> tuple[Freeze, bool]:
        """As `WholeState.freeze_since`. `whole`: makes a freeze of all timers, which are `rows`."""
        changes = self._advance(since)
        if changes is not None and name not in since.whole:
            added, gone = changes
            if len(added) + len(gone) <= MOST_CHANGED * self._rows:
                waiting = [(t, (key, ns, n)) for n, (t, key, ns) in added.items()]
                return TimerDelta(TimerFreeze(name, waiting), gone), True
        self._since = None
        made = replace(whole(), layer="base")
        self._rows = rows
        return made, False

    def validate(self, timers: Iterable[tuple[int, Any, Any, int]]) -> None:
        """Assert that what is recorded is so. `timers`: all there are."""
        there = {sequence: (t, key, ns) for t, key, ns, sequence in timers}
        assert self.added.items() <= there.items()
        assert not there.keys() & set(self._gone)

    def _advance(self, since: Since) -> tuple[Added, list[int]] | None:
        """What changed since the snapshot that is continued; None: all is to be written."""
        came = self._continuity.advance(since)
        live, gone = self.added, self._gone
        self.added, self._gone = {}, []
        if came == "completed":
            self._since = live, gone
        elif came == "failed" and self._since is not None:
            former, earlier = self._since
            kept = former.copy()
            more = [n for n in gone if kept.pop(n, None) is None]
            self._since = kept | live, earlier + more
        else:
            self._since = None
        return self._since


@dataclass(frozen=True)
class TimerDelta:
    """What changed up to a point in time."""

    added: TimerFreeze
    gone: Sequence[int]

    def table(self, max_parallelism: int) -> StateTable | None:
        """Encoded, sorted by key group; None if nothing changed."""
        if not self.gone and not self.added.waiting:
            return None
        made = self.added.encoded(max_parallelism)
        data = made.data.append_column(REMOVED, pa.array(np.zeros(len(made.data), np.bool_)))
        count = len(self.gone)
        known: Mapping[str, pa.Array] = {
            KEY_GROUP: pa.array(np.full(count, EVERY_GROUP, np.int32)),
            "sequence": pa.array(self.gone, pa.int64()),
            REMOVED: pa.array(np.ones(count, np.bool_)),
        }
        gone = [
            known[field.name] if field.name in known else null_array(count, field.type)
            for field in data.schema
        ]
        data = pa.concat_tables([pa.table(gone, schema=data.schema), data])
        by_number = columns_text(["sequence"])
        metadata = {**made.metadata, IDENTITY: by_number, SCOPE: by_number}
        return StateTable(made.name, made.kind, data, metadata, "delta")
