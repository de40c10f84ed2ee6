"""Which batches can be combined, and does it pay? Decided as records come, from how many of them
make a new (key, slice).

Combining a record costs about as much as sending one. It pays when most records meet their key and
slice in the table; with keys that hardly ever repeat it would only be one more table. So now and
then a stretch of records is tried; if too many of its later half were new, the next records go by
as they are: at first `FIRST_REST` of them, then twice as many after each attempt that failed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.batch import Batch, ColumnBatch
from ...core.elements import GREATEST_EVENT_TIME, LEAST_EVENT_TIME
from ...core.row_kind import ROW_KIND

MOST_HELD = 1 << 17
"""(key, slice) pairs held at most; with more, all are sent on at once."""

TRIED = 1 << 16
"""Records after which a stretch is judged; the first in a table are new by nature, so the first
stretch of an attempt only fills it."""

MOST_NEW = 0.5
"""Share of new pairs in a stretch above which combining does not pay."""

FIRST_REST = 1 << 21
LONGEST_REST = 1 << 24
"""How many records go by uncombined after a failed attempt."""


@dataclass
class Worth:
    """Invariants: 0 <= `resting`; `records` and `new` are counted since the last judgement.
    `most_new`: instead of `MOST_NEW`."""

    most_new: float = MOST_NEW
    records: int = 0
    new: int = 0
    resting: int = 0
    """Records still to go by before the next attempt; 0 while combining."""
    rest: int = FIRST_REST
    """How long the next rest will be."""
    warm: bool = False
    """Whether the attempt is past its first stretch."""

    def passes(self, records: int) -> bool:
        """Whether a batch of so many records goes by uncombined."""
        if not self.resting:
            return False
        self.resting = max(0, self.resting - records)
        return True

    def combined(self, records: int, new: int, held: int) -> bool:
        """A batch was combined and `new` of its records made a pair; `held` pairs there are now.
        False: there should be none, for they are too many, or a rest begins."""
        return self._pays(records, new) and held <= MOST_HELD

    def _pays(self, records: int, new: int) -> bool:
        self.records += records
        self.new += new
        if self.records < TRIED:
            return True
        pays = self.new <= self.most_new * self.records
        failed = not pays and self.warm
        self.records = self.new = 0
        self.warm = not failed
        if failed:
            self.resting = self.rest
            self.rest = min(2 * self.rest, LONGEST_REST)
        elif pays:
            self.rest = FIRST_REST
        return not failed

    def validate(self) -> None:
        assert 0 <= self.new <= self.records < TRIED, self
        assert 0 <= self.resting <= LONGEST_REST, self
        assert FIRST_REST <= self.rest <= LONGEST_REST, self


def can_combine(batch: Batch) -> bool:
    """Whether these are columns of inserted records that have event times. Others go by: it is the
    window operator that refuses them."""
    if not isinstance(batch, ColumnBatch) or batch.timestamps is None:
        return False
    if ROW_KIND in batch.data.schema.names:
        return False
    least, greatest = batch.timestamps.min(), batch.timestamps.max()
    return bool(least >= LEAST_EVENT_TIME and greatest <= GREATEST_EVENT_TIME)
