"""How far a change capture has come: what a checkpoint holds of it.

First the table is read in the order of its key, in one transaction that sees one state of it; then
come the changes, from the slot, which was there before. Changes that the table's state holds
already must not be applied again, and which these are is known exactly: PostgreSQL says of a
snapshot which transactions it shows (`pg_current_snapshot`), and each change says of which
transaction it is. No exported snapshot is needed, which would die with its connection.

    slot made                 part 0 begins       killed  part 1 begins       loaded
    |----T1----T2-------------|----T3---------------------|----T4-------------|----T5---> changes
    keys up to K              read in part 0, which shows T1, T2: of them T3, T4, T5 are applied
    keys behind K                               read in part 1, which shows T1..T3: T4, T5

A restart in the middle goes on behind the last key read, in a new transaction, which shows another
state: so there are *parts*, each with what it shows, mostly one. They are forgotten when the stream
has come to where no transaction can be shown any more.

Within the stream the position is the end of the last transaction that was emitted as a whole, and
of one that is emitted in part the place of its commit and the number of its changes. A transaction
comes again in the same order with the same changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from .captured import Captured

Key = tuple[str, ...]
"""Of a row: the texts of its key columns."""

_HALF = 1 << 31
_EPOCH = 1 << 32


@dataclass(frozen=True, slots=True)
class Seen:
    """Which transactions a snapshot shows: those before `xmax` that are not among `running`. What
    commits at `lsn` or later it does not show, whatever its number."""

    xmax: int
    running: frozenset[int]
    lsn: int

    @classmethod
    def of(cls, snapshot: str, lsn: int) -> Seen:
        """`snapshot`: PostgreSQL's text, as in `10:20:10,14,15`.

        >>> seen = Seen.of("10:20:10,14", lsn=500)
        >>> [seen.shows(xid, commit_lsn=400) for xid in (9, 10, 14, 15, 20)]
        [True, False, False, True, False]
        >>> seen.shows(9, commit_lsn=500)
        False
        """
        _, xmax, running = snapshot.split(":")
        return cls(int(xmax), frozenset(map(int, filter(None, running.split(",")))), lsn)

    def shows(self, xid: int, commit_lsn: int) -> bool:
        """`xid`: the low 32 bits, which begin again every four thousand million transactions; those
        asked for are near the snapshot's."""
        if commit_lsn >= self.lsn:
            return False
        whole = self.xmax - self.xmax % _EPOCH + xid
        if whole - self.xmax >= _HALF:
            whole -= _EPOCH
        elif self.xmax - whole > _HALF:
            whole += _EPOCH
        return whole < self.xmax and whole not in self.running


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of keys up to `upto`, behind those of the part before. `upto`: None: to the end of
    the table; while it is being read: nothing is read yet."""

    upto: Key | None
    seen: Seen


@dataclass(frozen=True, slots=True)
class CdcSplit:
    """A slot and how far it is read; all of a change capture.

    lsn: what commits at it or later is still to come; 0: nothing has begun. within, skip: the first
    `skip` changes of the transaction that commits at `within` are emitted; 0 for none. parts: see
    the module. loaded: the table is read. stop_lsn: of a bounded capture: what commits at it or
    later is left out. system, table, published: the cluster, the table's oid, and its place in the
    publication, which must stay the same: positions of another one mean nothing, and of a table
    that was not published for a while changes are missing. captured: the columns that are read,
    which must stay the same; None: nothing has begun, or in a checkpoint of before they were kept.
    """

    slot: str
    table: int = 0
    system: str = ""
    published: str = ""
    lsn: int = 0
    within: int = 0
    skip: int = 0
    parts: tuple[Part, ...] = ()
    loaded: bool = False
    stop_lsn: int | None = None
    captured: Captured | None = None

    def __setstate__(self, state: Sequence[Any]) -> None:
        """An older checkpoint has fewer fields: the last ones have their defaults then."""
        for at, field in enumerate(fields(self)):
            value = state[at] if at < len(state) else field.default
            object.__setattr__(self, field.name, value)

    @property
    def split_id(self) -> str:
        return self.slot

    @property
    def begun(self) -> bool:
        return self.lsn > 0

    @property
    def after(self) -> Key | None:
        """The last key read, while the table is being read."""
        for part in reversed(self.parts):
            if part.upto is not None:
                return part.upto
        return None

    def new_part(self, seen: Seen) -> CdcSplit:
        """The table is read on in a new transaction, behind the last key."""
        kept = tuple(part for part in self.parts if part.upto is not None)
        return replace(self, parts=(*kept, Part(None, seen)))

    def read_to(self, key: Key) -> CdcSplit:
        return self._last_part(key)

    def all_read(self) -> CdcSplit:
        return replace(self._last_part(None), loaded=True)

    def _last_part(self, upto: Key | None) -> CdcSplit:
        *before, last = self.parts
        return replace(self, parts=(*before, replace(last, upto=upto)))

    def streamed(self, lsn: int, within: int = 0, skip: int = 0) -> CdcSplit:
        """Everything that commits before `lsn` is emitted, and so much of the next transaction."""
        parts = tuple(self.parts if any(part.seen.lsn > lsn for part in self.parts) else ())
        return replace(self, lsn=lsn, within=within, skip=skip, parts=parts)

    def shown(self, xid: int, commit_lsn: int) -> bool | None:
        """Whether what the transaction did is in the rows read; None: of some keys."""
        found = {part.seen.shows(xid, commit_lsn) for part in self.parts}
        return None if len(found) > 1 else found == {True}
