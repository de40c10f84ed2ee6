"""Snapshots of the row face that later ones may continue, and those that continue one.

Bases and deltas have one more column than other snapshots, those of lists and maps two:

    __owner   namespace and key, as bytes
    __part    of lists the place of the element, int64; of maps the map key, as bytes

    kind    identity           scope
    list    __owner, __part    __owner
    map     __owner, __part    __owner
    others  __owner            __owner

An element added to a list is a row; where others changed, all of the list is there, and replaces
the former one. Of a map there is what was written or removed; an entry with a new place among the
others is there twice, as removed and as written.

The bytes are those of `exact_keys`: a state with a key that has none is always written whole, and
of it nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.key_kinds import all_given
from ..core.taking import null_array
from .encoding import encode
from .exact_keys import NotExactError, check_equal, check_exact, equal_bytes, exact_bytes
from .group_sort import sorted_by_group
from .increments import EVERY_GROUP, IDENTITY, OWNER, PART, REMOVED, SCOPE, Since, columns_text
from .row_changes import Entries, MapMarks, RowChanges, SpaceMarks
from .row_states import Spaces
from .row_tables import RowFreeze, groups_of_keys
from .slot_changes import MOST_CHANGED
from .stored import KEY_GROUP, StateTable
from .whole import Freeze

Take = Callable[[Spaces], RowFreeze]
"""Makes a freeze of these keys."""

Owner = tuple[Any, Any]
"""(namespace, held key)"""

_ABSENT = object()


class RowRecord:
    """What one state of the row face knows of its snapshots."""

    def __init__(self, kind: str) -> None:
        self.changes = RowChanges(kind)
        self._rows = 0
        """In the newest base."""
        self._kinds: set[type] = set()
        """Of map keys: those in the newest base, and those written since."""
        self._exact = True
        """Whether all keys seen so far have exact bytes. The thread that encodes a base may say
        no; nothing continues that base then."""

    def freeze(self, spaces: Spaces, since: Since, name: str, take: Take) -> tuple[Freeze, bool]:
        """As `WholeState.freeze_since`."""
        changes = self.changes
        if self._exact:
            marks = changes.advance(since, spaces)
            if marks is not None and name not in since.whole:
                delta = self._delta(marks, spaces, take)
                if delta is not None:
                    changes.mutable |= delta.rows.values_pickled
                    changes.began(False, sum(map(len, spaces.values())))
                    return delta, True
        made = take(spaces)
        if not self._exact:
            changes.stop()
            return made, False
        self._rows = len(made.values)
        self._kinds = set(map(type, made.map_keys or ()))
        changes.mutable |= made.values_pickled
        changes.began(True, len(made.keys))
        return RowBase(made, self), False

    def inexact(self) -> None:
        """A key has no exact bytes."""
        self._exact = False

    def _delta(self, marks: SpaceMarks, spaces: Spaces, take: Take) -> RowDelta | None:
        """None if all is to be written."""
        if self.changes.kind == "map":
            for keys in marks.values():
                for entries in keys.values():
                    self._kinds.update(map(type, entries or ()))
        some = _changed(self.changes, marks, spaces, _alike(self._kinds))
        if some.count > MOST_CHANGED * self._rows:
            return None
        try:
            for space, keys in marks.items():
                check_equal([space])
                check_exact(keys)
                if self.changes.kind == "map":
                    for entries in keys.values():
                        check_equal(entries or ())
            if self.changes.kind == "map":
                for data in some.spaces.values():
                    for held in data.values():
                        check_equal(held)
        except NotExactError:
            self._exact = False
            return None
        rows = take(some.spaces)
        gone = some.gone
        if rows.stamps is not None and self.changes.kind not in ("list", "map"):
            gone = [*gone, *_left_out(some.spaces, rows)]  # it has expired
        return RowDelta(rows, some.starts, gone, some.replaced, some.removed)


@dataclass
class _Changed:
    """`spaces`: what is to be written; `gone`, `replaced`: owners of which nothing older counts;
    `removed`: entries likewise; `starts`: of lists that grew, how long they were."""

    spaces: Spaces
    gone: list[Owner]
    replaced: list[Owner]
    removed: list[tuple[Owner, Any]]
    starts: dict[Owner, int]
    count: int = 0


def _alike(kinds: set[type]) -> bool:
    """Whether keys of these kinds may be equal and yet not the same: 1 and True, 0.0 and -0.0."""
    some = kinds & _NUMBERS
    return len(some) > 1 or bool(some - {int, bool})


_NUMBERS: Final = frozenset({bool, int, float, tuple})
"""Or what may hold some."""


def _changed(changes: RowChanges, marks: SpaceMarks, spaces: Spaces, alike: bool) -> _Changed:
    """`alike`: as `_alike` says of map keys."""
    made = _Changed({}, [], [], [], {})
    for space, keys in marks.items():
        if not keys:
            continue
        data, known = spaces.get(space, {}), space in changes.base
        match changes.kind:
            case "list":
                some = _of_lists(made, space, keys, data, known)
                made.count += sum(map(len, some.values()))
            case "map":
                some = _of_maps(made, space, keys, data, known, alike)
                made.count += sum(map(len, some.values()))
            case _:
                some = {key: data[key] for key in keys if key in data}
                made.count += len(some)
                if known and len(some) < len(keys):
                    made.gone += [(space, key) for key in keys if key not in some]
        made.spaces[space] = some
    made.count += len(made.gone) + len(made.replaced) + len(made.removed)
    return made


def _of_lists(
    made: _Changed, space: Any, keys: Mapping[Any, int], data: Mapping[Any, Any], known: bool
) -> dict[Any, Any]:
    some: dict[Any, Any] = {}
    for key, kept in keys.items():
        stored = data.get(key)
        if not kept and known:
            made.replaced.append((space, key))
        if stored is not None and len(stored) > kept:
            some[key] = list(islice(stored, kept, None)) if kept else stored
            if kept:
                made.starts[space, key] = kept
    return some


def _of_maps(
    made: _Changed,
    space: Any,
    keys: Mapping[Any, Entries | None],
    data: Mapping[Any, Any],
    known: bool,
    alike: bool,
) -> dict[Any, Any]:
    some: dict[Any, Any] = {}
    for key, entries in keys.items():
        stored = data.get(key)
        if entries is None:
            if known:
                made.replaced.append((space, key))
            if stored is not None:
                some[key] = stored
            continue
        held = {}
        for map_key, became in entries.items():
            value = _ABSENT if stored is None else stored.get(map_key, _ABSENT)
            if stored is not None and value is not _ABSENT:
                own = alike and type(map_key) in _NUMBERS
                held[own_key(stored, map_key) if own else map_key] = value
            if became == MapMarks.MOVED or value is _ABSENT:
                made.removed.append(((space, key), map_key))
        if held:
            some[key] = held
    return some


class _Sought:
    """Finds the key of a dict that is equal to this one."""

    def __init__(self, key: Any) -> None:
        self._key = self.found = key

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        if self._key is other or self._key == other:
            self.found = other
            return True
        return False


def own_key(stored: Mapping[Any, Any], map_key: Any) -> Any:
    """The key as the map has it: what is put under 1 where True is there is under True."""
    sought = _Sought(map_key)
    stored.get(sought)
    return sought.found


def _left_out(spaces: Spaces, rows: RowFreeze) -> list[Owner]:
    """The owners that are not among the rows."""
    keys, left = iter(rows.keys), []
    for (space, count), data in zip(rows.namespaces, spaces.values(), strict=True):
        if count < len(data):
            shown = set(islice(keys, count))
            left += [(space, key) for key in data if key not in shown]
        else:
            next(islice(keys, count, count), None)
    return left


@dataclass(frozen=True)
class RowBase:
    """All of a state at a point in time."""

    rows: RowFreeze
    record: RowRecord

    def table(self, max_parallelism: int) -> StateTable | None:
        if not self.rows.keys:
            return None
        try:
            made = self.rows.encoded(max_parallelism, _Beside({}))
        except NotExactError:
            self.record.inexact()
            return self.rows.table(max_parallelism)
        return StateTable(made.name, made.kind, made.data, made.metadata, "base")


@dataclass(frozen=True)
class RowDelta:
    """What changed in it."""

    rows: RowFreeze
    starts: Mapping[Owner, int]
    gone: Sequence[Owner]
    replaced: Sequence[Owner]
    removed: Sequence[tuple[Owner, Any]]

    def table(self, max_parallelism: int) -> StateTable | None:
        """Encoded, sorted by key group; None if nothing changed."""
        made = self.rows.encoded(max_parallelism, _Beside(self.starts))
        data = made.data.append_column(REMOVED, pa.array(np.zeros(len(made.data), np.bool_)))
        parted = PART in data.column_names
        pieces = [data]
        if self.replaced:
            every = np.full(len(self.replaced), EVERY_GROUP, np.int32)
            pieces.append(_removals(data.schema, every, self.replaced, None))
        if self.gone:
            groups = self._groups(self.gone, max_parallelism)
            pieces.append(_removals(data.schema, groups, self.gone, None))
        if self.removed:
            owners = [owner for owner, _ in self.removed]
            parts = pa.array(equal_bytes([part for _, part in self.removed]), pa.large_binary())
            groups = self._groups(owners, max_parallelism)
            pieces.append(_removals(data.schema, groups, owners, parts))
        if len(pieces) > 1:
            data = sorted_by_group(pieces)
        if not data.num_rows:
            return None
        metadata = {
            **made.metadata,
            IDENTITY: columns_text([OWNER, PART] if parted else [OWNER]),
            SCOPE: columns_text([OWNER]),
        }
        return StateTable(made.name, made.kind, data, metadata, "delta")

    def _groups(self, owners: Sequence[Owner], max_parallelism: int) -> npt.NDArray[np.int32]:
        given = all_given([key for _, key in owners])
        encoded = encode(given, f"key of state '{self.rows.name}'")
        return groups_of_keys(given, *encoded, max_parallelism)


@dataclass(frozen=True)
class _Beside:
    """Makes the columns that other snapshots do not have. `starts`: the place of the first element
    of a list, if it is not 0."""

    starts: Mapping[Owner, int]

    def __call__(
        self, rows: RowFreeze, namespaces: list[Any], owner: npt.NDArray[np.int64]
    ) -> dict[str, pa.Array]:
        owners = pa.array(exact_bytes(namespaces, rows.keys), pa.large_binary())
        made = {OWNER: owners.take(pa.array(owner))}
        if rows.map_keys is not None:
            made[PART] = pa.array(equal_bytes(rows.map_keys), pa.large_binary())
        elif rows.kind == "list":
            firsts = np.cumsum(rows.lengths) - rows.lengths
            places = np.arange(len(owner)) - firsts[owner]
            if self.starts:
                pairs = zip(namespaces, rows.keys, strict=True)
                starts = [self.starts.get(pair, 0) for pair in pairs]
                places += np.array(starts, np.int64)[owner]
            made[PART] = pa.array(places)
        return made


def _removals(
    schema: pa.Schema,
    groups: npt.NDArray[np.int32],
    owners: Sequence[Owner],
    parts: pa.Array | None,
) -> pa.Table:
    """Rows that say that something is gone."""
    count = len(owners)
    ids = exact_bytes([space for space, _ in owners], [key for _, key in owners])
    known = {
        KEY_GROUP: pa.array(groups),
        OWNER: pa.array(ids, pa.large_binary()),
        REMOVED: pa.array(np.ones(count, np.bool_)),
    }
    if parts is not None:
        known[PART] = parts
    columns = [
        known[field.name] if field.name in known else null_array(count, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
