"""Which keys that are away are due when: in order of time, in a database that no checkpoint has.

    state (2 bytes) | due (8, in order of time) | key group (2) | 0 | key  ->  nothing

It follows from the entries that are away, and is made anew from those that came with files.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from ....core.arrays import Int64s
from ....core.elements import MAX_TIMESTAMP
from ..database.rows_database import RowsDatabase

READ = 1 << 14
"""So many are read or written at once."""

_KEY_AT = 10
_LEAST = -(1 << 63)


class Dues:
    """Of one state. A place here ends as that of the key's entries does, behind its prefix."""

    def __init__(self, name: str, database: RowsDatabase) -> None:
        self._database = database
        self._prefix, _ = database.new_state(name, "dues", {})
        self.soonest = MAX_TIMESTAMP
        """None is before it."""

    def add(self, rests: list[bytes], dues: Int64s) -> None:
        """`rests`: the places of the keys' entries, behind the prefix."""
        if not len(dues):
            return
        self.soonest = min(self.soonest, int(dues.min()))
        self._database.write([], [(place, b"") for place in self._places(rests, dues)])

    def remove(self, rests: list[bytes], dues: Int64s) -> None:
        self._database.write(list(self._places(rests, dues)), [])

    def nth(self, number: int, after: int, until: int) -> int:
        """When the last of the next `number` is due that are due after `after`; `until` if that is
        before it, or there are not so many."""
        if after == MAX_TIMESTAMP:
            return until
        start = self._start(max(after + 1, self.soonest))
        found = list(islice(self._scan(start), number - 1, number))
        return min(_due_of(found[0]), until) if found else until

    def until(self, until: int) -> Iterator[list[bytes]]:
        """Those due up to there, as `rests`, piece by piece; they are removed. To be read to the
        end."""
        while self.soonest <= until:
            piece = list(islice(self._scan(self._start(self.soonest)), READ))
            gone = [place for place in piece if _due_of(place) <= until]
            if len(gone) < len(piece):
                self.soonest = _due_of(piece[len(gone)])
            else:
                self.soonest = _due_of(gone[-1]) if len(piece) == READ else MAX_TIMESTAMP
            if not gone:
                return
            self._database.write(gone, [])
            yield [place[_KEY_AT:] for place in gone]
            if len(gone) < READ:
                return

    def listed(self) -> list[tuple[int, bytes]]:
        """All of them, in order; for tests."""
        return [(_due_of(place), place[_KEY_AT:]) for place in self._scan(self._prefix)]

    def validate(self, rests: list[bytes], dues: Int64s) -> None:
        """Assert that these, and no others, are here."""
        expected = sorted(zip(dues.tolist(), rests, strict=True))
        assert self.listed() == expected
        assert not expected or self.soonest <= expected[0][0]

    def _scan(self, start: bytes) -> Iterator[bytes]:
        view = self._database.view()
        if view is None:
            return iter(())
        return (place for place, _ in view.scan(self._prefix, start))

    def _start(self, due: int) -> bytes:
        return self._prefix + _time(due)

    def _places(self, rests: list[bytes], dues: Int64s) -> Iterator[bytes]:
        prefix = self._prefix
        times = (dues.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)).astype(">u8").tobytes()
        return (
            b"".join((prefix, times[at : at + 8], rest))
            for at, rest in zip(range(0, len(times), 8), rests, strict=True)
        )


class NoDues(Dues):
    """Of entries that are asked for by their keys alone (`away.never`)."""

    def __init__(self) -> None:
        self.soonest = MAX_TIMESTAMP

    def add(self, rests: list[bytes], dues: Int64s) -> None:
        """Nothing is due."""

    remove = add

    def nth(self, number: int, after: int, until: int) -> int:
        return until

    def until(self, until: int) -> Iterator[list[bytes]]:
        return iter(())

    def validate(self, rests: list[bytes], dues: Int64s) -> None:
        assert (dues == MAX_TIMESTAMP).all()


def _time(due: int) -> bytes:
    return (due - _LEAST).to_bytes(8, "big")


def _due_of(place: bytes) -> int:
    return int.from_bytes(place[2:_KEY_AT], "big") + _LEAST
