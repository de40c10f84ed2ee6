"""`diff`: which rows two snapshots have otherwise.

Rows are held against each other by what identifies them: key, namespace and map key (of a list:
and the place in it), of tables the key's columns and the namespace. Of what has no such columns
(rows kept whole, buffers, operator state) the whole row is its identity. Stored values are
compared, whatever a reader is shown of them: one value that has no form in Arrow makes a column
bytes, and is one change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ..core.ids import OperatorId
from ..state.encoding import PICKLE
from ..state.names import KEY_PREFIX, NAMESPACE
from ..state.stored import KEY_GROUP
from .descriptions import UnreadableError
from .pickles import described
from .snapshot import OperatorInfo, Snapshot, StateInfo
from .stored import ROW_KINDS

_WHOLE: Final = ("rows", "buffer")


@dataclass(frozen=True)
class StateDifference:
    """A state that differs. `before` and `after`: the rows that the other snapshot has not, or has
    otherwise; None where there is no such state. `changed` are rows of both, with other values."""

    operator: str
    state: str
    before: pa.Table | None
    after: pa.Table | None
    added: int
    removed: int
    changed: int


@dataclass(frozen=True)
class Difference:
    """True if there is any. `notes`: how operators differ, besides their state."""

    states: tuple[StateDifference, ...]
    notes: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.states or self.notes)


def compared(before: Snapshot, after: Snapshot) -> Difference:
    """What `after` has otherwise than `before`. Operators are the same if their ids are."""
    old = {one.id: one for one in before.operators}
    new = {one.id: one for one in after.operators}
    notes, states = [], []
    for operator in dict.fromkeys([*old, *new]):
        one, other = old.get(operator), new.get(operator)
        notes += _notes(one, other)
        names = [state.name for info in (one, other) if info for state in info.states]
        for name in dict.fromkeys(names):
            found = _compared(_side(before, one, name), _side(after, other, name))
            if found is not None:
                label = (one or other or old[operator]).label
                states.append(StateDifference(label, name, *found))
    return Difference(tuple(states), tuple(notes))


def _notes(old: OperatorInfo | None, new: OperatorInfo | None) -> list[str]:
    if old is None or new is None:
        info = old or new
        assert info is not None
        return [f"operator '{info.label}' ({info.id}) is {'new' if old is None else 'gone'}"]
    notes = []
    for what in ("parallelism", "max_parallelism", "enumerator"):
        a, b = getattr(old, what), getattr(new, what)
        if a != b:
            notes.append(f"operator '{old.label}': {what} {a} is now {b}")
    return notes


@dataclass(frozen=True)
class _Side:
    """A state of one of the two. `values`: each stored column as text of its values, which does not
    depend on the other values of the column; `identity`: the columns that identify rows."""

    shown: pa.Table
    values: dict[str, list[str]]
    identity: list[str]


def _side(snapshot: Snapshot, info: OperatorInfo | None, state: str) -> _Side | None:
    known = None if info is None else next((s for s in info.states if s.name == state), None)
    if info is None or known is None:
        return None
    shown = snapshot.table(info.id, state)
    if known.key_groups is None:
        if "subtask" in shown.column_names:
            shown = shown.drop_columns(["subtask"])  # a restore deals the items anew
        stored = snapshot.table(info.id, state, raw=True)
        values = {"item": _pickles(stored.column("item").to_pylist())}
        return _Side(shown, values, ["item"])
    table = snapshot.stored.keyed(OperatorId(info.id), state)
    values = {}
    for name in table.data.column_names:
        column = table.data.column(name).to_pylist()
        if name != KEY_GROUP:
            is_pickled = table.metadata.get(name) == PICKLE
            values[name] = _pickles(column) if is_pickled else [repr(one) for one in column]
    return _Side(shown, values, _identity(known, list(values)))


def _pickles(column: Sequence[bytes | None]) -> list[str]:
    """As text of the values, so that it does not matter whether a value was pickled."""
    known: dict[bytes | None, str] = {None: repr(None)}
    for data in column:
        if data is not None and data not in known:
            try:
                known[data] = repr(described(data))
            except UnreadableError:
                known[data] = repr(data)
    return [known[data] for data in column]


def _identity(state: StateInfo, names: list[str]) -> list[str]:
    if state.kind in _WHOLE:
        return names
    if state.kind in ROW_KINDS:
        found = [name for name in names if name in ("key", "namespace", "map_key")]
        return found if state.kind != "list" else [*found, _PLACE]
    if state.kind == "timers":
        return ["timestamp", "key", "namespace"]
    keys = [n for n in names if n.startswith(KEY_PREFIX) or n == NAMESPACE]
    return [*keys, "value"] if state.kind == "values" else keys


_PLACE: Final = "the place in the list"


def _compared(
    old: _Side | None, new: _Side | None
) -> tuple[pa.Table | None, pa.Table | None, int, int, int] | None:
    if old is None or new is None:
        there = old or new
        if there is None or not there.shown.num_rows:  # a state without rows is in no edited one
            return None
        if old is not None:
            return old.shown, None, 0, old.shown.num_rows, 0
        assert new is not None
        return None, new.shown, new.shown.num_rows, 0, 0
    before, after = _rows(old), _rows(new)
    gone = [at for key, (at, rest) in before.items() if after.get(key, _NONE)[1] != rest]
    come = [at for key, (at, rest) in after.items() if before.get(key, _NONE)[1] != rest]
    if not gone and not come:
        return None
    changed = sum(1 for key, (_, rest) in before.items() if after.get(key, (0, rest))[1] != rest)
    rows = old.shown.take(pa.array(gone, pa.int64())), new.shown.take(pa.array(come, pa.int64()))
    return *rows, len(come) - changed, len(gone) - changed, changed


_NONE: tuple[int, Any] = (-1, object())


def _rows(side: _Side) -> dict[Hashable, tuple[int, Hashable]]:
    """Identity, made distinct by a count, to the row's number and what else is in it."""
    keys = [side.values[name] for name in side.identity if name != _PLACE]
    names = sorted(side.values.keys() - set(side.identity))
    rest = [side.values[name] for name in names]
    seen: Counter[Hashable] = Counter()
    found: dict[Hashable, tuple[int, Hashable]] = {}
    for at in range(side.shown.num_rows):
        key = tuple([column[at] for column in keys])
        others = tuple([(n, column[at]) for n, column in zip(names, rest, strict=True)])
        found[key, seen[key]] = at, others
        seen[key] += 1
    return found
