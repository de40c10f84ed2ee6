"""`diff`: which rows two snapshots have otherwise.

Rows are held against each other by what identifies them: key, namespace and map key (of a list:
and the place in it), of tables the key's columns and the namespace. Of what has no such columns
(rows kept whole, buffers, operator state) the whole row is its identity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ..state.names import KEY_PREFIX, NAMESPACE
from .columns import shown_names
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


_Side = tuple[pa.Table, list[str]]
"""Rows, and the columns that identify them."""


def _side(snapshot: Snapshot, info: OperatorInfo | None, state: str) -> _Side | None:
    known = None if info is None else next((s for s in info.states if s.name == state), None)
    if info is None or known is None:
        return None
    table = snapshot.table(info.id, state)
    if known.key_groups is None and "subtask" in table.column_names:
        table = table.drop_columns(["subtask"])  # a restore deals the items anew
    return table, _identity(snapshot, info, known, table)


def _identity(
    snapshot: Snapshot, info: OperatorInfo, state: StateInfo, table: pa.Table
) -> list[str]:
    if state.key_groups is None or state.kind in _WHOLE:
        return list(table.column_names)
    if state.kind in ROW_KINDS:
        names = [n for n in ("key", "namespace", "map_key") if n in table.column_names]
        return names if state.kind != "list" else [*names, _PLACE]
    if state.kind == "timers":
        return ["timestamp", "key", "namespace"]
    stored = snapshot.table(info.id, state.name, raw=True).column_names[1:]
    names_of = shown_names(stored)
    keys = [names_of[n] for n in stored if n.startswith(KEY_PREFIX) or n == NAMESPACE]
    return [*keys, "value"] if state.kind == "values" else keys


_PLACE: Final = "the place in the list"


def _compared(
    old: _Side | None, new: _Side | None
) -> tuple[pa.Table | None, pa.Table | None, int, int, int] | None:
    if old is None or new is None:
        there = old or new
        if there is None or not there[0].num_rows:  # a state without rows is in no edited one
            return None
        if old is not None:
            return old[0], None, 0, old[0].num_rows, 0
        assert new is not None
        return None, new[0], new[0].num_rows, 0, 0
    before, after = _rows(*old), _rows(*new)
    gone = [at for key, (at, rest) in before.items() if after.get(key, _NONE)[1] != rest]
    come = [at for key, (at, rest) in after.items() if before.get(key, _NONE)[1] != rest]
    if not gone and not come:
        return None
    changed = sum(1 for key, (_, rest) in before.items() if after.get(key, (0, rest))[1] != rest)
    rows = old[0].take(pa.array(gone, pa.int64())), new[0].take(pa.array(come, pa.int64()))
    return *rows, len(come) - changed, len(gone) - changed, changed


_NONE: tuple[int, Any] = (-1, object())


def _rows(table: pa.Table, identity: Sequence[str]) -> dict[Hashable, tuple[int, Hashable]]:
    """Identity, made distinct by a count, to the row's number and what else is in it."""
    texts = {name: [repr(v) for v in table.column(name).to_pylist()] for name in table.column_names}
    keys = [texts[name] for name in identity if name != _PLACE]
    rest = [texts[name] for name in table.column_names if name not in identity]
    seen: Counter[Hashable] = Counter()
    found: dict[Hashable, tuple[int, Hashable]] = {}
    for at in range(table.num_rows):
        key = tuple([column[at] for column in keys])
        found[key, seen[key]] = at, tuple([column[at] for column in rest])
        seen[key] += 1
    return found
