"""Which columns of a stored state are the key: those whose hash gives the key groups it is in.

Files do not always say. A value's key is its column `key`; a table's are its first columns, but how
many of them decide the key group only the operator knows; rows that are kept whole hold their key
anywhere. The groups tell: a column that is not the key has the right hash by chance for one row in
`max_parallelism` only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import numpy_of
from ..core.errors import StateError, TypeMismatchError
from ..state.buffer_changes import ROW_PREFIX
from ..state.encoding import PICKLE
from ..state.hash_columns import hash_columns
from ..state.hashing import stable_hash
from ..state.names import KEY_PREFIX
from ..state.pickling import loads
from ..state.stored import KEY_GROUP, StateTable
from .descriptions import Elements, Mapped, Name, Thing, UnreadableError
from .pickles import ROW, described
from .stored import ROW_KINDS

Hashes = npt.NDArray[np.uint64]

SURE: Final = 4
"""Distinct keys that prove columns of kept rows to be the key: by chance they would be so once in
the fourth power of `max_parallelism`."""

LIKELY: Final = 10
"""Rows of which nine in ten must fit, for the others to be damage."""


@dataclass(frozen=True)
class Candidate:
    """Columns that may be the key, with the stable hash of each row; where `known` is not, the
    key cannot be hashed without its class."""

    columns: tuple[str, ...]
    hashes: Hashes
    known: npt.NDArray[np.bool_]
    pickled: bool = False

    def groups(self, max_parallelism: int) -> npt.NDArray[np.int32]:
        return (self.hashes % np.uint64(max_parallelism)).astype(np.int32)

    def wrong(self, groups: npt.NDArray[Any], max_parallelism: int) -> npt.NDArray[np.int64]:
        """The rows that are not in the group of their key."""
        return np.flatnonzero(self.known & (self.groups(max_parallelism) != groups))


def groups_in(table: StateTable) -> npt.NDArray[Any]:
    """The key group of each row."""
    groups: npt.NDArray[Any] = numpy_of(table.data.column(KEY_GROUP).combine_chunks())
    return groups


def candidates(table: StateTable, unpickle: bool = False) -> Iterator[Candidate]:
    """What may be the key of this state, the likeliest first."""
    data = table.data
    if table.kind in (*ROW_KINDS, "timers"):
        yield from _of_columns(data, ("key",), table.metadata["key"] == PICKLE, unpickle)
        return
    keys = tuple(name for name in data.column_names if name.startswith(KEY_PREFIX))
    if keys:
        for width in range(1, len(keys) + 1):
            yield from _of_columns(data, keys[:width], None, unpickle)
        return
    rows = tuple(name for name in data.column_names if name.startswith(ROW_PREFIX))
    runs = [(name,) for name in rows]
    runs += [rows[:width] for width in range(2, len(rows) + 1)]
    runs += [rows[at : at + 2] for at in range(1, len(rows) - 1)]
    for columns in runs:
        yield from _of_columns(data, columns, None, unpickle)


def fitting(table: StateTable, max_parallelism: int, unpickle: bool = False) -> list[Candidate]:
    """The candidates by which every row is in its group."""
    groups = groups_in(table)
    return [
        one
        for one in candidates(table, unpickle)
        if one.known.any() and not len(one.wrong(groups, max_parallelism))
    ]


def certain(
    table: StateTable, max_parallelism: int, unpickle: bool = False, given: Sequence[str] = ()
) -> Candidate:
    """The key, for whoever hashes it anew. `given`: its columns, as they are stored, if it was
    said. StateError if the key cannot be told, or cannot be hashed without its class."""
    if given:
        missing = set(given) - set(table.data.column_names)
        found = [] if missing else list(_of_columns(table.data, tuple(given), None, unpickle))
        groups = groups_in(table)
        fits = [one for one in found if not len(one.wrong(groups, max_parallelism))]
        if not fits:
            raise StateError(
                f"state '{table.name}': the columns {list(given)} are not the key by which its "
                f"rows are in their key groups; there are {table.data.column_names}"
            )
    else:
        fits = fitting(table, max_parallelism, unpickle)
    whole = [one for one in fits if one.known.all()]
    if fits and not whole:
        raise StateError(
            f"state '{table.name}': a key cannot be hashed without its class: say unpickle=True, "
            "if you trust the file"
        )
    alike = whole and all((one.hashes == whole[0].hashes).all() for one in whole)
    sure = given or not table.kind.startswith(("rows", "buffer"))
    if not alike or not (sure or len(np.unique(whole[0].hashes)) >= SURE):
        raise StateError(
            f"state '{table.name}' ({table.kind}): which of its columns are the key cannot be told "
            f"from its {table.data.num_rows} rows: say keys={{'{table.name}': [...]}}, of "
            f"{table.data.column_names[1:]}"
        )
    return whole[0]


def _of_columns(
    data: pa.Table, columns: tuple[str, ...], pickled: bool | None, unpickle: bool
) -> Iterator[Candidate]:
    """`pickled`: whether the one column holds pickles; None: it may."""
    arrays = [data.column(name).combine_chunks() for name in columns]
    if pickled is not True:
        try:
            batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
            hashes = hash_columns(batch)
            yield Candidate(columns, hashes, np.ones(len(hashes), bool))
        except TypeMismatchError:
            pass  # no key has this type
    if pickled is False or len(columns) > 1 or not pa.types.is_large_binary(arrays[0].type):
        return
    pickles = arrays[0].to_pylist()
    if None in pickles or not all(one.startswith(b"\x80") for one in pickles):
        return
    known: dict[bytes, int | None] = {}
    for one in pickles:
        if one not in known:
            known[one] = _hash(one, unpickle)
    found = [known[one] for one in pickles]
    hashes = np.array([0 if one is None else one for one in found], np.uint64)
    there = np.array([one is not None for one in found], bool)
    yield Candidate(columns, hashes, there, True)


def _hash(pickle: bytes, unpickle: bool) -> int | None:
    """Of the key in a pickle; None if only its class could say."""
    try:
        key = loads(pickle, "a key") if unpickle else _plain(described(pickle), 0)
        return stable_hash(key)
    except (UnreadableError, TypeMismatchError):
        return None


def _plain(value: Any, depth: int) -> Any:
    """A key for hashing."""
    if depth > 30:
        raise UnreadableError("too deep")
    if isinstance(value, (tuple, list)):
        return tuple([_plain(one, depth + 1) for one in value])
    if isinstance(value, Thing) and value.name == ROW:
        return tuple([_plain(one, depth + 1) for _, one in value.fields])
    if isinstance(value, (Thing, Name, Mapped, Elements)):
        raise UnreadableError("its class says what its hash is")
    return value
