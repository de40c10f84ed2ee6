"""Columns of a restored state as the program now declares them, on the table before it is decoded.

Two steps. What the program says of the operator's fields is done where the checkpoint is read
(`migrated`): columns of keys, accumulators, rows and their layouts get new names, types and
defaults, or go. What a state then declares itself is compared when it is asked for (`fitted`):
columns come in the declared order, a number becomes a wider one where each value stays what it was,
and anything else is refused with both schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from ..core.batch import schema_text
from ..core.errors import StateError
from .migration import NO_MIGRATION, StateMigration
from .stored import StateTable
from .widening import is_rest, widened

ROW_KINDS = frozenset({"value", "list", "map", "reducing", "aggregating"})
"""Of state whose values are Python objects: its descriptors read them (`stored_values`)."""

_PREFIXES = ("key.", "acc.", "row.")
_OF_RECORDS = ("key.", "row.")

_SCHEMA_MARK = b"\xff\xff\xff\xff"
"""A serialized schema begins so."""

Migrations = Mapping[str | None, StateMigration]
"""What a program says of an operator's states, by name; None: of all that it does not name."""


def migrated(tables: Iterable[StateTable], migrations: Migrations, who: str) -> list[StateTable]:
    """The restored states of an operator as the program says; `who` names it in errors. What is
    said of all states is said of the records in them, not of accumulators."""
    tables = list(tables)
    if not migrations:
        return tables
    named = _named_columns(tables)
    made = []
    for table in tables:
        if _is_notes(table):
            made.append(_migrated_notes(table, migrations, who))
            continue
        migration = migrations.get(table.name, migrations.get(None, NO_MIGRATION))
        prefixes = _PREFIXES if table.name in migrations else _OF_RECORDS
        known = table if migration is NO_MIGRATION else by_name(table, named)
        whole = known is not table or not named
        one = _one(known, migration, prefixes, whole, who)
        made.append(by_place(one, named, migration) if known is not table else one)
    return made


# Operators over tables keep records' columns by place, `c0`, `c1` and so on, and their names in a
# layout with the number of its key columns. Rolling aggregates keep them by place among numbers.


def _named_columns(tables: Iterable[StateTable]) -> dict[str, str]:
    """The name of each column that is kept by place; empty where none is."""
    for table in tables:
        if _is_notes(table) and "row.layout" in table.data.column_names:
            for data in table.data.column("row.layout").to_pylist():
                layout = pa.ipc.read_schema(pa.py_buffer(data)) if data else pa.schema([])
                if b"keys" in (layout.metadata or {}):
                    names = layout.names[int(layout.metadata[b"keys"]) :]
                    return {f"row.c{at}": f"row.{name}" for at, name in enumerate(names)}
    return {}


def _migrated_notes(table: StateTable, migrations: Migrations, who: str) -> StateTable:
    """Layouts of records. Those of the sides of a join are named as the states that hold them."""
    every = migrations.get(None, NO_MIGRATION)
    what, data = f"{who}, state '{table.name}'", table.data
    names = data.column_names
    column = "row.layout" if "row.layout" in names else "row.value"
    facts = data.column("row.name").to_pylist() if "row.name" in names else [None] * len(data)
    values = [
        _layout(value, migrations.get(fact, every), what)
        if value is not None and value.startswith(_SCHEMA_MARK)
        else value
        for fact, value in zip(facts, data.column(column).to_pylist(), strict=True)
    ]
    array = pa.chunked_array([pa.array(values, pa.binary())])
    return replace(table, data=data.set_column(names.index(column), column, array))


def by_name(table: StateTable, named: Mapping[str, str]) -> StateTable:
    """With the names of records for the columns kept by place."""
    places = [name for name in table.data.column_names if name.startswith("row.c")]
    if not named or set(named) != set(places):
        return table
    names = [named.get(name, name) for name in table.data.column_names]
    if len(set(names)) < len(names):
        return table  # one is named as something that the operator adds
    return replace(table, data=table.data.rename_columns(names))


def by_place(table: StateTable, named: Mapping[str, str], migration: StateMigration) -> StateTable:
    """The other way round, once they are migrated."""
    prefix = len("row.")
    kept = [name[prefix:] for name in named.values() if name[prefix:] not in migration.drop]
    names = [migration.new_name(name) for name in kept]
    names += [name for name in migration.defaults if name not in names]
    if not named or not {f"row.{name}" for name in names} <= set(table.data.column_names):
        return table
    places = {f"row.{name}": f"row.c{at}" for at, name in enumerate(names)}
    data = table.data
    return replace(
        table, data=data.rename_columns([places.get(name, name) for name in data.column_names])
    )


def _one(
    table: StateTable,
    migration: StateMigration,
    prefixes: Sequence[str],
    whole: bool,
    who: str,
) -> StateTable:
    """`whole`: its rows are records, which get the new fields."""
    if migration is NO_MIGRATION:
        return table
    if table.kind in ROW_KINDS:
        return replace(table, migration=migration)
    what = f"{who}, state '{table.name}'"
    data = _columns(table.data, migration, prefixes, whole, what)
    return replace(table, data=data, migration=migration)


def _columns(
    data: pa.Table, migration: StateMigration, prefixes: Sequence[str], whole: bool, what: str
) -> pa.Table:
    made: dict[str, pa.ChunkedArray] = {}
    for name in data.column_names:
        prefix, plain = _split(name)
        if prefix not in prefixes:
            made[name] = data.column(name)
            continue
        if plain in migration.drop:
            if prefix == "key.":
                raise StateError(f"{what}: '{plain}' is a key column and cannot be dropped")
            continue
        target = prefix + migration.new_name(plain)
        if target in made or (target != name and target in data.column_names):
            raise StateError(
                f"{what}: '{plain}' is to be '{migration.new_name(plain)}', but there is a column "
                f"of that name in {_shown(data.schema)}: rename it to another one"
            )
        made[target] = _typed(data.column(name), target, migration, what)
    if whole and any(name.startswith("row.") for name in made):
        made.update(_new_columns(made, migration, data.num_rows, what))
    return pa.table(made)


def migrated_records(data: pa.RecordBatch, migration: StateMigration, what: str) -> pa.RecordBatch:
    """Records that an operator keeps in operator state as the program says. Columns whose names
    begin with `__` are the operator's, and come behind the others."""
    if migration is NO_MIGRATION:
        return data
    own = [name for name in data.schema.names if name.startswith("__")]
    records = pa.Table.from_batches([data.drop_columns(own)])
    renamed = records.rename_columns([f"row.{name}" for name in records.column_names])
    made = _columns(renamed, migration, ("row.",), True, what)
    marks = {migration.new_name(f.name): f.metadata for f in records.schema}
    fields = [f.with_name(_split(f.name)[1]) for f in made.schema]
    fields = [f.with_metadata(marks.get(f.name)) for f in fields]
    arrays = [column.combine_chunks() for column in made.columns]
    return pa.RecordBatch.from_arrays(
        [*arrays, *(data.column(name) for name in own)],
        schema=pa.schema(
            [*fields, *(data.schema.field(name) for name in own)], metadata=data.schema.metadata
        ),
    )


_NOTES = (
    [("row.name", pa.string()), ("row.value", pa.binary())],
    [("row.watermark", pa.int64()), ("row.number", pa.int64()), ("row.layout", pa.binary())],
)


def _is_notes(table: StateTable) -> bool:
    """Whether the rows are what an operator notes for itself (`shared_facts`, `window_progress`),
    not records."""
    fields = [(f.name, f.type) for f in table.data.schema if f.name.startswith("row.")]
    return table.kind == "buffer" and fields in _NOTES


def _new_columns(
    made: Mapping[str, pa.ChunkedArray], migration: StateMigration, rows: int, what: str
) -> dict[str, pa.ChunkedArray]:
    found = {}
    for field in _new_fields(migration, what):
        if "row." + field.name not in made:
            value = pa.scalar(migration.defaults[field.name], field.type)
            found["row." + field.name] = pa.chunked_array([pa.repeat(value, rows)])
    return found


def _new_fields(migration: StateMigration, what: str) -> list[pa.Field]:
    fields = []
    for name, value in migration.defaults.items():
        kind = migration.types.get(name)
        if kind is None and value is None:
            raise StateError(f"{what}: the new column '{name}' is null in old rows: give its type")
        fields.append(pa.field(name, pa.scalar(value).type if kind is None else kind))
    return fields


def _typed(
    column: pa.ChunkedArray, name: str, migration: StateMigration, what: str
) -> pa.ChunkedArray:
    kind = migration.types.get(_split(name)[1])
    if kind is None:
        return column
    wide = widened(column, kind)
    if wide is not None and name.startswith("key."):
        wide = same_hashes(column, wide)
    if wide is None:
        raise StateError(
            f"{what}: column '{name}' of {column.type} cannot become {kind}: not all of its values "
            "would stay what they are; a new name for it, with a default, begins it anew"
        )
    return wide


def _layout(data: bytes, migration: StateMigration, what: str) -> bytes:
    schema = pa.ipc.read_schema(pa.py_buffer(data))
    if not schema.names or migration is NO_MIGRATION:
        return data
    by_number = b"face" in (schema.metadata or {})
    if by_number and (migration.defaults or set(migration.drop) & set(schema.names)):
        raise StateError(
            f"{what}: the operator keeps its records {schema_text(schema)} by the place of their "
            "fields, which can be renamed and get wider types, but none can be added or dropped: "
            "give the operator a new uid"
        )
    fields = []
    for field in schema:
        if field.name in migration.drop:
            continue
        name = migration.new_name(field.name)
        fields.append(field.with_name(name).with_type(migration.types.get(name, field.type)))
    known = {field.name for field in fields}
    inputs = any(name.startswith("input") for name in schema.names)
    of_windows = inputs and set(schema.metadata or {}) == {b"keys"}  # what they are told of records
    if not by_number and not of_windows:
        fields += [field for field in _new_fields(migration, what) if field.name not in known]
    made = pa.schema(fields, metadata=schema.metadata)
    serialized: bytes = made.serialize().to_pybytes()
    return serialized


# --- as declared ----------------------------------------------------------------------------------


def fitted(
    what: str, data: pa.Table, declared: Sequence[pa.Field], prefixes: Sequence[str] = _PREFIXES
) -> pa.Table:
    """The table with the declared columns of these prefixes in the declared order, the others
    first. StateError, which shows both schemas, if a column is missing, is too many, or cannot be
    of its declared type. Rests of sums may be missing or too many (`widening.REST`)."""
    own = [field for field in declared if field.name.startswith(tuple(prefixes))]
    stored = [field for field in data.schema if field.name.startswith(tuple(prefixes))]
    if [(f.name, f.type) for f in own] == [(f.name, f.type) for f in stored]:
        return data
    names, known = [field.name for field in own], {field.name for field in stored}
    lacking = [name for name in names if name not in known]
    missing = [_split(name)[1] for name in lacking if not is_rest(name)]
    unknown = [_split(name)[1] for name in sorted(known - set(names)) if not is_rest(name)]
    why = [f"{missing} are new"] * bool(missing) + [f"{unknown} are gone"] * bool(unknown)
    made = {n: data.column(n) for n in data.column_names if not n.startswith(tuple(prefixes))}
    for field in own if not why else ():
        if field.name in lacking:
            made[field.name] = pa.chunked_array([pa.repeat(pa.scalar(0, field.type), len(data))])
            continue
        wide = widened(data.column(field.name), field.type)
        if wide is not None and field.name.startswith("key."):
            wide = same_hashes(data.column(field.name), wide)
        if wide is None:
            old = data.schema.field(field.name).type
            why.append(f"'{_split(field.name)[1]}' of {old} cannot become {field.type}")
        made[field.name] = wide
    if why or len(names) != len(set(names)):
        raise StateError(
            f"{what} was stored with {_shown(pa.schema(stored))} and is declared with "
            f"{_shown(pa.schema(own))}: {'; '.join(why)}; restore it with what it was stored with, "
            "say what has become of it with migrate_state(...) on the operator, or give the "
            "operator a new uid"
        )
    return pa.table(made)


def same_hashes(old: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The keys in their new type, None if they would be looked for in other key groups."""
    from .hash_columns import hash_columns

    hashes = [
        hash_columns(pa.RecordBatch.from_arrays([pa.concat_arrays(keys.chunks)], names=["key"]))
        for keys in (old, new)
        if keys.num_chunks
    ]
    return new if len(hashes) < 2 or bool((hashes[0] == hashes[1]).all()) else None


def _split(name: str) -> tuple[str, str]:
    """Prefix and name of a stored column; without a prefix, none."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name


_CALLED = {"key.": "keys", "acc.": "accumulators", "row.": "columns"}


def _shown(schema: pa.Schema) -> str:
    """The columns by what they are: `keys [k: int64] and accumulators [n: int64]`."""
    parts = []
    for prefix, called in _CALLED.items():
        fields = [field for field in schema if field.name.startswith(prefix)]
        named = [field.with_name(_split(field.name)[1]) for field in fields]
        if named:
            parts.append(f"{called} {schema_text(pa.schema(named))}")
    return " and ".join(parts) or "no columns"
