"""States as views of a DuckDB connection.

Each state is `state."<operator>.<state>"`, the operator by its uid, or by its name. A state whose
name no other operator's state has is `state.<state>`, too. Operators alike in name have their ids
behind it: `state."Map#1f3a....latest"`. So have states of one operator that differ in case alone,
of which all but the first have a number, too.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ..core.errors import ConfigurationError, StateError

if TYPE_CHECKING:
    import duckdb

    from .snapshot import OperatorInfo, Snapshot

SCHEMA: Final = "state"


def view_names(snapshot: Snapshot) -> dict[tuple[str, str], list[str]]:
    """(operator id, state) to the names of its view, the full one first. DuckDB compares names
    without case, and so does this."""
    pairs = [(info, state.name) for info in snapshot.operators for state in info.states]
    short = Counter(state.lower() for _, state in pairs)
    full = Counter(_full(info, state).lower() for info, state in pairs)
    found = {}
    taken: Counter[str] = Counter()
    for info, state in pairs:
        name = _full(info, state)
        if full[name.lower()] > 1:
            name = f"{info.label}#{info.id}.{state}"
            taken[name.lower()] += 1
            if taken[name.lower()] > 1:  # an operator's states that differ in case alone
                name = f"{name}#{taken[name.lower()]}"
        alone = short[state.lower()] == 1 and state.lower() not in full
        found[info.id, state] = [name, state] if alone else [name]
    return found


def queried(snapshot: Snapshot, query: str, unpickle: bool) -> pa.Table:
    """The rows of a query. StateError for one that cannot be run."""
    connection = connected(snapshot, None, query, unpickle)
    import duckdb

    try:
        result = connection.sql(query)
        return pa.table({}) if result is None else result.to_arrow_table()
    except duckdb.Error as error:
        views = sorted({name for names in view_names(snapshot).values() for name in names})
        raise StateError(
            f"{snapshot.path}: {error}\nThere are the views {[quoted(one) for one in views]} of "
            f"the schema {SCHEMA}"
        ) from error
    finally:
        connection.close()


def connected(
    snapshot: Snapshot,
    connection: duckdb.DuckDBPyConnection | None,
    query: str | None,
    unpickle: bool,
) -> duckdb.DuckDBPyConnection:
    """The connection with the views; `query`: of those alone whose names are in it."""
    try:
        import duckdb
    except ImportError as error:
        raise ConfigurationError(
            "SQL over state needs DuckDB: install strom with the extra 'sql'"
        ) from error
    found = duckdb.connect(":memory:") if connection is None else connection
    found.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    text = None if query is None else query.lower()
    for at, ((operator, state), names) in enumerate(view_names(snapshot).items()):
        if text is not None and not any(_is_in(name, text) for name in names):
            continue
        table = for_duckdb(snapshot.table(operator, state, unpickle=unpickle))
        held = f"strom_{operator}_{at}"
        found.register(held, table)
        for name in names:
            found.execute(
                f"CREATE OR REPLACE VIEW {SCHEMA}.{quoted(name)} AS SELECT * FROM {quoted(held)}"
            )
    return found


def _is_in(name: str, query: str) -> bool:
    """Whether a view is named in a query, which is in small letters: as it is, or quoted, where
    double quotes are there twice."""
    name = name.lower()
    return name in query or quoted(name)[1:-1] in query


def for_duckdb(table: pa.Table) -> pa.Table:
    """The same with columns of nulls only as text: DuckDB compares those with anything."""
    for at, field in enumerate(table.schema):
        if pa.types.is_null(field.type):
            column = table.column(at).cast(pa.string())
            table = table.set_column(at, field.name, column)
    return table


def quoted(name: str) -> str:
    """As an identifier."""
    return '"' + name.replace('"', '""') + '"'


def _full(info: OperatorInfo, state: str) -> str:
    return f"{info.label}.{state}"
