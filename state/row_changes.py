"""What changed in one state of the row face since a snapshot: the keys that were written or
removed, and of lists and maps which part.

    kind                mark of a key
    list                so many elements, the first ones, are as they were; 0: none
    map                 the map keys written or removed since, in the order of new entries, with
                        what became of each (`MapMarks`); None: any of them may have been
    value and others    nothing

Values that can be changed in place may be, by whoever has read them. So from the first snapshot
that has found such a value in the state on, reading is a change, too.

Nothing is recorded before the first snapshot that may be continued, nor once a record has become
longer than the state: then the next snapshot is whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final, Protocol

from .increments import Continuity, Since

Marks = dict[Any, Any]
"""By held key."""

SpaceMarks = dict[Any, Marks]
"""By namespace."""

FEWEST = 4096
"""So many keys may be removed between two snapshots of a small state."""


class Recording(Protocol):
    """Who writes to the state: tells the record what."""

    def record(self) -> None:
        """Another record begins, or none: ask for the marks again."""
        ...


class RowChanges:
    """The record of one state over its snapshots."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.whole: Any = {"list": 0, "map": None}.get(kind, True)
        """The mark of a key of which nothing may be as it was."""
        self.mutable = False
        """Whether a value was found that can be changed in place."""
        self.writers: list[Recording] = []
        self._live: SpaceMarks | None = None
        """Since the last snapshot; None: nothing is recorded."""
        self._since: SpaceMarks | None = None
        """Between the newest complete snapshot and the last one; None: not known."""
        self.base: Collection[Any] = ()
        """The namespaces of the newest complete snapshot."""
        self._last: Collection[Any] = ()
        """Those of the last one."""
        self._continuity = Continuity()
        self._removals = self._most = 0

    def marks(self, namespace: Any) -> Marks | None:
        """Where a writer notes the keys of this namespace until `record` is called; None: it need
        not."""
        live = self._live
        if live is None:
            return None
        found = live.get(namespace)
        if found is None:
            if len(live) > self._most:
                self.stop()
                return None
            found = live[namespace] = {}
        return found

    def removed(self, marks: Marks, key: Any) -> None:
        """A key is gone. `marks` are those of its namespace."""
        marks[key] = self.whole
        self._removals += 1
        if self._removals > self._most:
            self.stop()

    def stop(self) -> None:
        """Nothing is to be recorded any more: the next snapshot is whole."""
        self._live = self._since = None
        self._tell()

    def advance(self, since: Since, namespaces: Iterable[Any]) -> SpaceMarks | None:
        """A snapshot of these is being taken: what changed since the one that it continues; None:
        all is to be written. Then `began` is called, or `stop`."""
        came = self._continuity.advance(since)
        if came != "failed":
            self.base = self._last
        self._last = frozenset(namespaces)
        live, former = self._live, self._since
        if came == "unknown" or live is None or (came == "failed" and former is None):
            self._since = None
        elif came == "completed":
            self._since = live
        else:
            assert former is not None
            self._since = self._joined(former, live)
        return self._since

    def began(self, written: bool, keys: int) -> None:
        """Record from here on. `written`: the snapshot holds all, of which there are `keys`; then
        it is not remembered what changed before."""
        if written:
            self._since = None
        self._live, self._removals, self._most = {}, 0, max(FEWEST, keys)
        self._tell()

    def _tell(self) -> None:
        for writer in self.writers:
            writer.record()

    def _joined(self, former: SpaceMarks, live: SpaceMarks) -> SpaceMarks:
        joined = {namespace: dict(marks) for namespace, marks in former.items()}
        for namespace, marks in live.items():
            mine = joined.setdefault(namespace, {})
            match self.kind:
                case "list":
                    for key, kept in marks.items():
                        mine[key] = min(kept, mine.get(key, kept))
                case "map":
                    for key, entries in marks.items():
                        mine[key] = MapMarks.joined(mine.get(key, _NO_ENTRIES), entries)
                case _:
                    mine.update(marks)
        return joined


Entries = dict[Any, int]
"""Of one map: map key -> what became of the entry."""

_NO_ENTRIES: Entries = {}


class MapMarks:
    """How marks of maps are set. An entry that is written again keeps its place among the others,
    one that was removed before is the last one."""

    CHANGED: Final = 0
    """It was there at the last snapshot, and is in the same place."""
    MOVED: Final = 1
    """It may have been there, and is gone or in a new place."""
    ADDED: Final = 2
    """It was not there, but is now."""

    @staticmethod
    def written(marks: Marks, key: Any, map_key: Any, new: bool = False) -> None:
        """An entry is written, or its value given away. `new`: it was not there just before."""
        entries = marks.get(key, _NO_ENTRIES)
        if entries is None:
            return
        if entries is _NO_ENTRIES:
            entries = marks[key] = {}
        if not new:
            entries.setdefault(map_key, MapMarks.CHANGED)
        elif entries.pop(map_key, None) is None:
            entries[map_key] = MapMarks.ADDED
        else:
            entries[map_key] = MapMarks.MOVED

    @staticmethod
    def removed(marks: Marks, key: Any, map_key: Any) -> None:
        """An entry is gone."""
        entries = marks.get(key, _NO_ENTRIES)
        if entries is None:
            return
        if entries is _NO_ENTRIES:
            entries = marks[key] = {}
        if entries.pop(map_key, None) != MapMarks.ADDED:
            entries[map_key] = MapMarks.MOVED

    @staticmethod
    def joined(former: Entries | None, live: Entries | None) -> Entries | None:
        """What became of entries before a snapshot and after it."""
        if former is None or live is None:
            return None
        made = dict(former)
        for key, became in live.items():
            if became == MapMarks.CHANGED:
                made.setdefault(key, became)
            elif made.pop(key, None) is None:
                made[key] = became
            else:
                made[key] = MapMarks.MOVED
        return made
