"""Does combining pay? Decided from how many records make a new (key, slice), as records come.

Combining a record costs about as much as sending one. It pays when most records meet their key and
slice in the table; with keys that hardly ever repeat it would only be one more table. So now and
then a stretch of records is tried; if too many of its later half were new, the next records go by
as they are: at first `FIRST_REST` of them, then twice as many after each attempt that failed.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    """Invariants: 0 <= `resting`; `records` and `new` are counted since the last judgement."""

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

    def combined(self, records: int, new: int) -> bool:
        """A batch was combined and `new` of its records made a pair. False: a rest begins now."""
        self.records += records
        self.new += new
        if self.records < TRIED:
            return True
        pays = self.new <= MOST_NEW * self.records
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
