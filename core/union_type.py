"""The type of records that are of one of several kinds, each kind a row of its own: `UnionType`.

Persons, auctions and bids of one stream, say. Arrow's dense union holds them: for each record its
kind and its place among the rows of that kind, and for each kind its rows as a struct, without
gaps. So the rows of one kind are there already, and taking them (`rows_of_kind`) copies nothing
where none is missing in between.

It is a value type (`value_types`): no kernel takes such a column for something that it knows.
What knows Arrow's plain types alone (state, files, JSON, polars) gets a struct with a field for
each kind, of which one is there (`spread`), and gives one back (`gathered`).

In Python a value is an `OfKind`, or None, which is kept as a null of the first kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .arrays import numpy_of
from .arrow_values import named, to_array
from .column_values import python_values
from .errors import TypeMismatchError
from .failure_text import shown
from .taking import codes_of, picked, places_of, take_column
from .value_types import ValueType, as_type, holds, is_tuple, tuple_records, type_text

MOST_KINDS = 127


class OfKind(NamedTuple):
    """A record of one of several kinds: which, and the record itself."""

    kind: str
    row: Any


class UnionType(ValueType):
    """Of these kinds: names and structs. TypeMismatchError if there are none, or too many."""

    name = "union"

    def __init__(self, storage: pa.DataType) -> None:
        pa.ExtensionType.__init__(self, storage, f"strom.{self.name}")

    @classmethod
    def of(cls, kinds: Mapping[str, pa.DataType]) -> UnionType:
        """`kinds`: structs by name."""
        if not 0 < len(kinds) <= MOST_KINDS:
            raise TypeMismatchError(f"a union has 1 to {MOST_KINDS} kinds, not {len(kinds)}")
        for name, kind in kinds.items():
            if not pa.types.is_struct(kind):
                raise TypeMismatchError(f"the kind '{name}' of a union is no row but {kind}")
        return cls(pa.dense_union([pa.field(name, kind) for name, kind in kinds.items()]))

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> UnionType:
        return cls(storage)

    def __reduce__(self) -> tuple[Any, ...]:
        return UnionType, (self.storage_type,)

    def __hash__(self) -> int:
        return hash((self.extension_name, self.kinds))

    def __str__(self) -> str:
        fields = ", ".join(f"{kind}: {self.rows_type(kind)}" for kind in self.kinds)
        return f"union<{fields}>"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Their names, in order."""
        storage = self.storage_type
        return tuple([storage.field(at).name for at in range(storage.num_fields)])

    def rows_type(self, kind: str) -> pa.DataType:
        """The struct of a kind's rows."""
        return self.storage_type.field(self.kinds.index(kind)).type

    @property
    def plain(self) -> pa.DataType:
        return self.spread_type

    def as_plain(self, column: pa.Array) -> pa.Array:
        return self.spread(column)

    @property
    def spread_type(self) -> pa.DataType:
        """The struct that a column is `spread` over."""
        return pa.struct([(kind, self.rows_type(kind)) for kind in self.kinds])

    def array(self, values: Iterable[Any]) -> pa.Array:
        """`OfKind`s, pairs of kind and row, or None, as a column."""
        names = self.kinds
        codes: list[int] = []
        places: list[int] = []
        rows: list[list[Any]] = [[] for _ in names]
        for value in values:
            kind, row = (names[0], None) if value is None else _pair(value, names)
            code = names.index(kind)
            codes.append(code)
            places.append(len(rows[code]))
            rows[code].append(row)
        children = [
            named(name, to_array, mine, self.rows_type(name))
            for name, mine in zip(names, rows, strict=True)
        ]
        return self.assembled(np.array(codes, np.int8), np.array(places, np.int32), children)

    def values(self, column: pa.Array) -> list[Any]:
        storage = column.storage
        codes, places = codes_of(storage), places_of(storage)
        found: list[Any] = [None] * len(storage)
        for code, kind in enumerate(self.kinds):
            mine = np.flatnonzero(codes == code)
            if len(mine):
                rows = python_values(picked(storage.field(code), places[mine]))
                for at, row in zip(mine.tolist(), rows, strict=True):
                    found[at] = None if row is None else OfKind(kind, row)
        return found

    def encode(self, value: Any) -> str | bytes:
        raise TypeError("a value of a union is no text: columns are made of lists")

    def decode(self, stored: Any) -> Any:
        raise TypeError("a value of a union is no text: columns give lists")

    def column(
        self,
        codes: npt.NDArray[np.int8],
        places: npt.NDArray[np.int32],
        rows: list[pa.Array],
    ) -> pa.Array:
        """A column of these kinds' rows: `codes` and `places` say of each record which kind and
        which of its rows it is. Nothing is copied. TypeMismatchError for what is no kind, or none
        of its rows: Arrow would read whatever is there."""
        if len(rows) != len(self.kinds):
            raise TypeMismatchError(f"{self} has rows of {len(self.kinds)} kinds, not {len(rows)}")
        if len(codes) != len(places):
            raise TypeMismatchError(
                f"{len(codes)} codes of kinds need as many places, not {len(places)}"
            )
        codes, places = _whole(codes, np.int8), _whole(places, np.int32)
        known = 0
        for code, (kind, mine) in enumerate(zip(self.kinds, rows, strict=True)):
            at = places[codes == code]
            known += len(at)
            if len(at) and not 0 <= at.min() <= at.max() < len(mine):
                odd = at.min() if at.min() < 0 else at.max()
                raise TypeMismatchError(
                    f"the kind '{kind}' has {len(mine)} rows, and none at {odd}"
                )
        if known < len(codes):
            odd = codes[(codes < 0) | (codes >= len(rows))][0]
            raise TypeMismatchError(
                f"{odd} is the code of no kind: {self} has 0 to {len(rows) - 1}"
            )
        return self.assembled(codes, places, rows)

    def assembled(
        self,
        codes: npt.NDArray[np.int8],
        places: npt.NDArray[np.int32],
        rows: list[pa.Array],
    ) -> pa.Array:
        """The same of what is known to be right."""
        kinds = [as_type(mine, self.rows_type(k)) for mine, k in zip(rows, self.kinds, strict=True)]
        buffers = [None, pa.py_buffer(codes), pa.py_buffer(places)]
        made = pa.Array.from_buffers(self.storage_type, len(codes), buffers, children=kinds)
        return pa.ExtensionArray.from_storage(self, made)

    def spread(self, column: pa.Array) -> pa.StructArray:
        """The column as a struct with a field for each kind; null where the value is None."""
        storage = column.storage
        codes, places = codes_of(storage), places_of(storage)
        fields = []
        missing = np.ones(len(storage), dtype=np.bool_)
        for code in range(len(self.kinds)):
            others = codes != code
            field = take_column(storage.field(code), pa.array(places, mask=others))
            missing &= numpy_of(field.is_null())
            fields.append(field)
        return pa.StructArray.from_arrays(
            fields, fields=list(self.spread_type), mask=pa.array(missing)
        )

    def gathered(self, column: pa.StructArray) -> pa.Array:
        """The column that was `spread` so. TypeMismatchError for a value of several kinds."""
        codes = np.zeros(len(column), dtype=np.int8)
        places = np.zeros(len(column), dtype=np.int32)
        known = np.zeros(len(column), dtype=np.bool_)
        rows = []
        for code, field in enumerate(column.flatten()):
            mine = numpy_of(field.is_valid())
            if (mine & known).any():
                twice = column[int(np.flatnonzero(mine & known)[0])].as_py()
                raise TypeMismatchError(f"the value {shown(twice)} of a union has several kinds")
            known |= mine
            taken = mine if code else mine | _of_none(column)
            codes[taken] = code
            places[taken] = np.arange(int(taken.sum()), dtype=np.int32)
            rows.append(picked(field, np.flatnonzero(taken)))
        return self.assembled(codes, places, rows)


def _whole(numbers: Any, kind: type[Any]) -> npt.NDArray[Any]:
    """As an array of that type, in one piece."""
    found = np.asarray(numbers)
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        raise TypeMismatchError(f"codes and places are whole numbers, a list each, not {numbers!r}")
    limits = np.iinfo(kind)
    if len(found) and not limits.min <= found.min() <= found.max() <= limits.max:
        raise TypeMismatchError(
            f"codes and places are numbers of {limits.bits} bits, not {found.max()}"
        )
    return np.ascontiguousarray(found, dtype=kind)


def _of_none(column: pa.StructArray) -> npt.NDArray[np.bool_]:
    """Where a spread column has no kind."""
    none: npt.NDArray[np.bool_] = np.ones(len(column), dtype=np.bool_)
    for field in column.flatten():
        none &= numpy_of(field.is_null())
    return none


def _pair(value: Any, names: tuple[str, ...]) -> tuple[str, Any]:
    if isinstance(value, tuple) and len(value) == 2 and value[0] in names:
        return value
    raise TypeMismatchError(f"it is no OfKind of the kinds {', '.join(names)}")


def spread_unions(data: pa.RecordBatch) -> pa.RecordBatch:
    """The columns with those of a UnionType spread, for what knows none."""
    for at, kind in enumerate(data.schema.types):
        if isinstance(kind, UnionType):
            field = data.schema.field(at).with_type(kind.spread_type)
            data = data.set_column(at, field, kind.spread(data.column(at)))
    return data


def are_within(kind: pa.DataType) -> bool:
    """Whether values of several kinds are within others there: Arrow and Python have them, and
    nothing that knows plain types alone."""
    around = kind.spread_type if isinstance(kind, UnionType) else kind
    return holds(around, lambda one: isinstance(one, UnionType))


def told_unions(data: pa.RecordBatch, what: str) -> pa.RecordBatch:
    """`spread_unions`, for what has no form for kinds within other values: TypeMismatchError names
    the column. `what`: who has none, as in "Parquet"."""
    for field in data.schema:
        if are_within(field.type):
            raise TypeMismatchError(
                f"the column '{field.name}' of type {type_text(field.type)} has values of several "
                f"kinds within others, for which {what} has no form: take them apart before, with "
                "a function of rows, map(lambda row: ...)"
            )
    return spread_unions(data)


def with_unions(schema: pa.Schema, declared: pa.Schema) -> pa.Schema:
    """The columns, of which those are of a UnionType that are declared so and are spread."""
    fields = []
    for field in schema:
        kind = declared.field(field.name).type if field.name in declared.names else None
        told = isinstance(kind, UnionType) and field.type == kind.spread_type
        fields.append(field.with_type(kind) if told else field)
    return pa.schema(fields, metadata=schema.metadata)


def gathered_unions(data: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns, in the order of `schema`, with structs made columns of a UnionType where that
    is what it says."""
    for at, (found, field) in enumerate(zip(data.schema.types, schema, strict=True)):
        if isinstance(field.type, UnionType) and pa.types.is_struct(found):
            spread = data.column(at).cast(field.type.spread_type)
            data = data.set_column(at, field, field.type.gathered(spread))
    return data


def rows_schema(rows: pa.DataType) -> pa.Schema:
    """The columns of a kind's rows: those of a struct."""
    schema = pa.schema(list(rows))
    return tuple_records(schema) if is_tuple(rows) else schema


def rows_of_kind(column: pa.Array, kind: str) -> tuple[pa.StructArray, npt.NDArray[np.bool_]]:
    """The rows of one kind in a column of a UnionType, and which records they are. Nothing is
    copied where the kind's rows follow one another."""
    storage = column.storage
    code = column.type.kinds.index(kind)
    mine = codes_of(storage) == code
    rows = picked(storage.field(code), places_of(storage)[mine])
    if not rows.null_count:
        return rows, mine
    there = numpy_of(rows.is_valid())
    mine[mine] = there
    return picked(rows, np.flatnonzero(there)), mine


pa.register_extension_type(UnionType(pa.dense_union([])))
