"""Pieces of a buffer: rows that came, with their key groups, in memory or as bytes in RocksDB.

The bytes are those of Arrow's IPC, without a schema. Nothing else reads them: what lies in RocksDB
so goes with its task, and checkpoints hold tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ....core.arrays import Bools, Groups, Int64s, numpy_of
from ....core.batch import take_column
from ....core.errors import StateError
from ....core.value_types import holds
from ...column_index import storage_type
from ...object_keys import ObjectKeyType, codes_of
from ...rows.arena import as_kind
from ..database.plain_columns import from_plain, has_plain, plain_type, to_plain

_BESIDE = 400
"""Bytes that a piece takes beside its values, about."""

_GROUP = pa.field("__group", pa.int16(), nullable=False)


def pieces_fit(schema: pa.Schema) -> bool:
    """Whether rows of this schema can be cut into bytes of their own: all but those with unions
    and with what is encoded by runs."""
    return all(isinstance(kind, ObjectKeyType) or has_plain(kind) for kind in schema.types)


def held_type(kind: pa.DataType) -> pa.DataType:
    """The type in which a piece has a column of this type: of dictionaries and views, also within
    other values, and of what else Arrow cannot gather, the plain one."""
    if isinstance(kind, ObjectKeyType):
        return kind
    return plain_type(kind) if _is_apart(kind) else storage_type(kind)


def _is_apart(kind: pa.DataType) -> bool:
    """Whether a column of this type is held as a plain one."""
    return not isinstance(kind, ObjectKeyType) and holds(storage_type(kind), _is_not_gathered)


def _is_not_gathered(kind: pa.DataType) -> bool:
    views = kind in (pa.string_view(), pa.binary_view())
    lists = pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
    return bool(views or lists or pa.types.is_dictionary(kind))


@dataclass(eq=False)
class Piece:
    """`rows`: in `Pieces.schema`; None once they are in RocksDB alone, at `place`. `born`: how many
    freezes there were before. Another thread may read it, but for `codes`: the codes of objects in
    it, if it is in RocksDB."""

    rows: pa.RecordBatch | None
    count: int
    size: int
    born: int
    place: bytes | None = None
    codes: Sequence[Int64s] = ()


class Pieces:
    """Makes pieces of rows of these columns, which `pieces_fit`, and rows and bytes of pieces."""

    def __init__(self, name: str, schema: pa.Schema) -> None:
        self._name = name
        self._declared = schema
        fields = [field.with_type(held_type(field.type)) for field in schema]
        self.schema = pa.schema([*fields, _GROUP])
        self._apart = [_is_apart(kind) for kind in schema.types]
        self._objects = [
            at for at, kind in enumerate(schema.types) if isinstance(kind, ObjectKeyType)
        ]

    def made(self, rows: pa.RecordBatch, groups: Groups, born: int) -> Piece:
        """A copy: what came with the rows is not held by them."""
        every = pa.array(np.arange(rows.num_rows))
        columns = []
        for at, kind in enumerate(self.schema.types[:-1]):
            column = rows.column(at)
            if self._apart[at]:
                column = to_plain(column)
            elif pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            plain = column if column.type == kind else column.cast(kind)
            columns.append(take_column(plain, every))
        columns.append(pa.array(groups, pa.int16()))
        held = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return Piece(held, held.num_rows, held.nbytes + _BESIDE, born)

    def joined(self, pieces: Sequence[Piece]) -> Piece:
        """One of several that are in memory and nowhere else."""
        rows = pa.concat_batches([piece.rows for piece in pieces])
        size = sum(piece.size for piece in pieces) - (len(pieces) - 1) * _BESIDE
        return Piece(rows, rows.num_rows, size, min(piece.born for piece in pieces))

    def packed(self, piece: Piece) -> bytes:
        """The bytes of one that is in memory; it knows the codes in it from here on."""
        rows = piece.rows
        assert rows is not None
        piece.codes = [np.unique(codes_of(rows.column(at))) for at in self._objects]
        found: bytes = rows.serialize().to_pybytes()
        return found

    def unpacked(self, data: bytes | None) -> pa.RecordBatch:
        """The rows of bytes. StateError for what are none."""
        try:
            if data is None:
                raise pa.ArrowInvalid("nothing is there")
            return pa.ipc.read_record_batch(pa.py_buffer(data), self.schema)
        except (pa.ArrowInvalid, OSError) as error:
            raise StateError(
                f"buffer state '{self._name}': rows that were put into the local RocksDB cannot be "
                f"read ({error}): the task's local files were changed by somebody else; restart "
                "the job from its last checkpoint"
            ) from error

    def shown(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Groups]:
        """Rows of a piece as they came, and their key groups."""
        columns = zip(rows.columns[:-1], self._declared.types, self._apart, strict=True)
        plain = [
            from_plain(column, kind) if apart else as_kind(column, kind)
            for column, kind, apart in columns
        ]
        groups = numpy_of(rows.column(rows.num_columns - 1)).astype(np.int32)
        return pa.RecordBatch.from_arrays(plain, schema=self._declared), groups

    def mark_objects(self, piece: Piece, held: Bools) -> None:
        """As of `WholeState`."""
        rows = piece.rows
        if rows is None:
            for codes in piece.codes:
                held[codes] = True
        else:
            for at in self._objects:
                held[codes_of(rows.column(at))] = True
