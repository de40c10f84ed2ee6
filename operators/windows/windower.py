"""The seam between the one window operator and the kinds of windows: `Windower`.

`WindowOperator` turns batches into keys, times and inputs, binds state once the types are known,
and treats late records, watermarks, the clock and snapshots. A windower says which windows records
are in, keeps what these hold, and fires them. A new kind of window is one file with a windower, and
its registration: a form (`plan/window_forms.py`), which windows have it (`plan/windows._form`), and
the line that names the form's windower (`operators/window_choice.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.specs.windows import WindowSpec
from ...core.arrays import Int64s
from ...core.batch import Batch, ColumnBatch, take_column, take_rows
from ...state.window_progress import WindowProgress
from ..base import OperatorContext, Work
from .firing_progress import FiringProgress
from .window_output import WindowOutput

LateRows = npt.NDArray[np.int64]
"""Rows of the records added that are late for all their windows, in any order."""

NO_ROWS: LateRows = np.empty(0, dtype=np.int64)


class Time(Enum):
    """What moves a kind of window on."""

    EVENTS = "events"
    CLOCK = "clock"
    """All records of a batch have the time at which it came; none is late."""
    NONE = "none"
    """Records alone: they need no times."""


class Arguments(Protocol):
    """The columns that a window's function folds."""

    def inputs(self, batch: ColumnBatch) -> list[pa.Array]:
        """Before binding in their own types."""
        ...

    def layout(self, inputs: list[pa.Array]) -> list[pa.Field]:
        """Fields describing them, which survive a restore."""
        ...


@dataclass(frozen=True)
class Records:
    """What a batch adds: keys of the types bound, times, and what is folded."""

    keys: pa.RecordBatch
    times: Int64s
    """Empty where no time counts."""
    inputs: list[pa.Array]
    spans: Int64s | None
    """What `Windower.spans` gave."""
    first: int
    """The sequence number of the first; the others follow."""
    partials: bool
    """Whether they are partial aggregates."""

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def numbers(self) -> Int64s:
        """Their sequence numbers."""
        return np.arange(self.first, self.first + len(self))

    def at(self, rows: npt.NDArray[np.int64], first: int) -> Records:
        """Some of them, numbered anew."""
        at = pa.array(rows)
        return Records(
            take_rows(self.keys, at),
            self.times[rows] if len(self.times) else self.times,
            [take_column(array, at) for array in self.inputs],
            self.spans[rows] if self.spans is not None and len(self.spans) > 1 else self.spans,
            first,
            self.partials,
        )


@dataclass(frozen=True)
class Site:
    """What a windower gets from its operator. `progress`: how far windows have fired, which the
    operator advances when `advance` has ended; a windower that pauses `IN_STATE` does it before,
    between `firing.begin()` and `firing.end()`."""

    spec: WindowSpec
    ctx: OperatorContext
    progress: WindowProgress
    firing: FiringProgress
    output: WindowOutput


class Windower(ABC):
    """Calls: `open`, `bind` once, then all others. For a batch `spans`, `check`, then `add`, for
    each watermark that some of its key groups have fired up to; `bind` comes between `check` and
    `add` of the first batch, which knows its `spans` then, or, of a restored operator, right after
    `open`. Work that is returned has ended before the next call; only the work of one `add` may
    come behind the next `add` of the same batch, so it may rely on nothing of other key groups.
    What is to be in a snapshot is in tables, and in what the site has."""

    time: Time
    arguments: Arguments
    """Known from `open` on."""

    @abstractmethod
    def open(self, site: Site) -> None:
        """Make all that is not state."""

    def spans(self, batch: Batch, columns: ColumnBatch) -> Int64s | None:
        """What a batch says of its windows' lengths: one number, or one for each record; None if
        nothing."""
        return None

    def check(self, first: int, last: int) -> None:
        """TypeMismatchError unless the windows of records from `first` to `last` lie within
        time."""

    @abstractmethod
    def bind(self, keys: pa.Schema, fields: Sequence[pa.Field]) -> None:
        """Ask for state, which a snapshot may have filled. `fields`: of the arguments."""

    def resume(self) -> Work:
        """A snapshot was taken while a firing paused `IN_STATE`: emit what is missing, and end the
        firing. Before anything else happens."""
        raise AssertionError(f"{type(self).__name__} never pauses so")

    @abstractmethod
    def add(self, records: Records, watermark: int) -> tuple[LateRows, Work]:
        """Fold records whose key groups have fired up to `watermark`, and fire what is due because
        of them."""

    def advance(self, watermark: int) -> Work:
        """The windows' time has passed `watermark`, which is more than the progress says: fire, and
        forget what is over. Nobody calls it a second time for one watermark, not after a restore
        either: what `resume` does not forget waits for the next greater one, and must not show
        until then."""
        return None

    def on_clock(self, now_ms: int) -> Work:
        """It is that late, and windows follow event time all the same."""
        return None

    def next_alarm(self) -> int | None:
        """When something is to be done by the clock: once this millisecond has passed."""
        return None

    def finish(self) -> Work:
        """By the clock, bounded inputs have ended: what is open comes out."""
        return None

    def validate(self) -> None:
        """Assert the invariants; for tests."""
