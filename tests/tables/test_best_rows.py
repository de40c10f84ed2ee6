"""Top-n and deduplication against lists sorted in plain Python.

Every run is cut into batches at random, snapshot and restored (whole, or in two halves) at random,
and its changelog, applied, must give the model's table after every batch.
"""

from __future__ import annotations

from collections import Counter
from functools import cmp_to_key
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from amounts import examples
from columns_kit import batch
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.specs.columns import to_order
from strom.api.specs.tables import DeduplicateSpec, TopNSpec
from strom.core.errors import StateError, TypeMismatchError
from strom.core.keys import ColumnKey, ExpressionKey
from tables_kit import HALVES, WHOLE, Materialised, Subtasks, has_kinds, plain

Row = tuple[Any, ...]

KEYS = st.sampled_from([ColumnKey(("k",)), ExpressionKey((pl.col("k").alias("v"),))])
"""The second is no column of the records, and is kept beside them."""

RANKS = st.sampled_from([None, "place"])

SCHEMAS = {
    "numbers": pa.schema({"k": pa.int64(), "v": pa.int32(), "w": pa.float64(), "n": pa.int64()}),
    "text": pa.schema({"k": pa.string(), "v": pa.string(), "w": pa.float32(), "n": pa.int64()}),
    "views": pa.schema(
        {
            "k": pa.string_view(),
            "v": pa.string_view(),
            "w": pa.timestamp("ms"),
            "n": pa.list_(pa.int64()),
        }
    ),
}
VALUES: dict[str, list[list[Any]]] = {
    "numbers": [[0, 1, None], [1, 2, 3, -1, None], [0.0, -0.0, 1.5, float("nan"), None], [7, 8]],
    "text": [["a", "b", None], ["x", "yy", "", None], [0.5, -1.0, None], [7, 8]],
    "views": [
        ["a", "bb", None],
        ["x", "a long text of more than twelve bytes", None],
        [0, 5, None],
        [[7], None],
    ],
}
ORDERS = [("v", "desc"), "v", [("w", "desc"), "v"], "w", ["w", ("v", "desc"), "k"]]


def after(left: Row, right: Row, order: Any, names: list[str], flip: bool = False) -> int:
    """> 0 where left comes behind right; nulls behind all, NaN greatest."""
    for column in order:
        at = names.index(column.name)
        a, b = left[at], right[at]
        if a is None or b is None:
            if (a is None) != (b is None):
                return 1 if a is None else -1
            continue
        a, b = sort_value(a), sort_value(b)
        if a != b:
            return 1 if (a > b) != (column.descending != flip) else -1
    return 0


def sort_value(value: Any) -> Any:
    return (value != value, 0 if value != value else value) if isinstance(value, float) else value


def first_rows(rows: list[Row], order: Any, names: list[str], n: int) -> list[Row]:
    return sorted(rows, key=cmp_to_key(lambda a, b: after(a, b, order, names)))[:n]


@st.composite
def runs(draw: Any) -> Any:
    """(kind of schema, batches of rows, what happens before each batch)."""
    kind = draw(st.sampled_from(list(SCHEMAS)))
    row = st.tuples(*[st.sampled_from(values) for values in VALUES[kind]])
    batches = draw(st.lists(st.lists(row, min_size=1, max_size=7), min_size=1, max_size=6))
    cuts = draw(st.lists(st.sampled_from([None, None, WHOLE, HALVES]), min_size=6, max_size=6))
    return kind, batches, cuts


def as_python(schema: pa.Schema, rows: list[Row]) -> list[Row]:
    """The rows as they come back from Arrow."""
    return [tuple(row) for row in batch(schema, rows).rows()]


def by_key(rows: list[Row]) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[0], []).append(row)
    return groups


def frozen(row: Row) -> Row:
    return tuple(tuple(v) if isinstance(v, list) else plain(v) for v in row)


def changes(rows: list[Row]) -> list[Row]:
    return [tuple(tuple(v) if isinstance(v, list) else v for v in row) for row in rows]


@settings(max_examples=examples(40), deadline=None)
@given(runs(), st.sampled_from(ORDERS), st.integers(1, 3), RANKS, KEYS)
def test_top_n(run: Any, order_by: Any, n: int, rank: str | None, key: Any) -> None:
    kind, batches, cuts = run
    schema = SCHEMAS[kind]
    order = to_order("t", order_by)
    tasks = Subtasks(TopNSpec(key, n, order, rank))
    table, seen = Materialised(), []
    for rows, cut in zip(batches, cuts, strict=False):
        if cut:
            tasks.restore(cut)
        seen += as_python(schema, rows)
        got = table.apply(changes(tasks.push(batch(schema, rows))))
        want: Counter[Row] = Counter()
        for group in by_key(seen).values():
            for place, row in enumerate(first_rows(group, order, schema.names, n)):
                want[frozen(row) if rank is None else (*frozen(row), place + 1)] += 1
        assert got == want


@settings(max_examples=examples(40), deadline=None)
@given(runs(), st.sampled_from([None, *ORDERS]), st.sampled_from(["first", "last"]), KEYS)
def test_deduplicate(run: Any, order_by: Any, keep: Any, key: Any) -> None:
    kind, batches, cuts = run
    schema = SCHEMAS[kind]
    order = () if order_by is None else to_order("t", order_by)
    tasks = Subtasks(DeduplicateSpec(key, keep, order))
    table, held = Materialised(), {}
    append_only = keep == "first" and not order
    for rows, cut in zip(batches, cuts, strict=False):
        if cut:
            tasks.restore(cut)
        for row in as_python(schema, rows):
            known = held.get(row[0])
            worse = known is None or after(known, row, order, schema.names, keep == "last")
            if known is None or worse > 0 or (keep == "last" and worse == 0):
                held[row[0]] = row
        out = changes(tasks.push(batch(schema, rows)))
        if append_only:
            out = [(*row, 0) for row in out]
        assert table.apply(out) == Counter(map(frozen, held.values()))
    assert has_kinds(tasks.output) != append_only


@st.composite
def changelogs(draw: Any) -> Any:
    """Batches of (row, kind): only rows that are there are retracted."""
    row = st.tuples(*[st.sampled_from(values) for values in VALUES["numbers"]])
    present: list[Row] = []
    batches = []
    for _ in range(draw(st.integers(1, 6))):
        one = []
        for _ in range(draw(st.integers(1, 8))):
            if present and draw(st.booleans()):
                gone = present.pop(draw(st.integers(0, len(present) - 1)))
                one.append((gone, draw(st.sampled_from([1, 3]))))
            else:
                present.append(draw(row))
                one.append((present[-1], draw(st.sampled_from([0, 2]))))
        batches.append(one)
    cuts = draw(st.lists(st.sampled_from([None, None, WHOLE, HALVES]), min_size=6, max_size=6))
    return batches, cuts


def retract(rows: list[Row], row: Row) -> None:
    """Take away the first that equals it."""
    same = [at for at, one in enumerate(rows) if frozen(one) == frozen(row)]
    del rows[same[0]]


@settings(max_examples=examples(80), deadline=None)
@given(
    changelogs(), st.sampled_from(ORDERS), st.integers(1, 3), st.sampled_from([None, "place"]), KEYS
)
def test_top_n_of_a_changelog(run: Any, order_by: Any, n: int, rank: str | None, key: Any) -> None:
    batches, cuts = run
    schema, order = SCHEMAS["numbers"], to_order("t", order_by)
    tasks = Subtasks(TopNSpec(key, n, order, rank))
    table, seen = Materialised(), []
    for changed, cut in zip(batches, cuts, strict=False):
        if cut:
            tasks.restore(cut)
        for row, kind in changed:
            seen.append(row) if kind in (0, 2) else retract(seen, row)
        rows = [row for row, _ in changed]
        got = table.apply(tasks.push(batch(schema, rows, [kind for _, kind in changed])))
        want: Counter[Row] = Counter()
        for group in by_key(seen).values():
            for place, row in enumerate(first_rows(group, order, schema.names, n)):
                want[frozen(row) if rank is None else (*frozen(row), place + 1)] += 1
        assert got == want


@settings(max_examples=examples(50), deadline=None)
@given(changelogs(), st.sampled_from([None, "v"]), st.sampled_from(["first", "last"]), KEYS)
def test_deduplicate_a_changelog(run: Any, order_by: Any, keep: Any, key: Any) -> None:
    batches, cuts = run
    schema = SCHEMAS["numbers"]
    order = () if order_by is None else to_order("t", order_by)
    tasks = Subtasks(DeduplicateSpec(key, keep, order))
    table, seen = Materialised(), []
    for changed, cut in zip(batches, cuts, strict=False):
        if cut:
            tasks.restore(cut)
        for row, kind in changed:
            seen.append(row) if kind in (0, 2) else retract(seen, row)
        rows = [row for row, _ in changed]
        got = table.apply(tasks.push(batch(schema, rows, [kind for _, kind in changed])))
        want = [best(group, order, keep == "last") for group in by_key(seen).values()]
        assert got == Counter(map(frozen, want))


@pytest.mark.parametrize("order_by", [None, "v"])
def test_the_last_of_a_changelog_of_texts(order_by: Any) -> None:
    """Texts are gathered at positions that run backwards here."""
    schema = pa.schema({"k": pa.string(), "v": pa.string()})
    order = () if order_by is None else to_order("t", order_by)
    tasks = Subtasks(DeduplicateSpec(ColumnKey(("k",)), "last", order))
    rows = [("a", "one"), ("a", "two"), ("b", "three"), ("a", "zero")]
    table = Materialised()
    table.apply(tasks.push(batch(schema, rows, [0, 0, 0, 0])))
    tasks.restore(HALVES)
    left = table.apply(tasks.push(batch(schema, [("a", "zero")], [3])))
    assert set(left) == {("a", "two"), ("b", "three")}


def best(rows: list[Row], order: Any, last: bool) -> Row:
    names = SCHEMAS["numbers"].names
    compare = cmp_to_key(lambda a, b: after(a, b, order, names, last))
    return sorted(reversed(rows) if last else rows, key=compare)[0]


def test_only_the_difference_of_a_batch_comes_out() -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
    tasks = Subtasks(TopNSpec(ColumnKey(("k",)), 2, to_order("t", "v")))
    assert tasks.push(batch(schema, [(1, 9), (1, 8), (1, 7)])) == [(1, 7, 0), (1, 8, 0)]
    assert tasks.push(batch(schema, [(1, 10), (1, 8)])) == []
    assert tasks.push(batch(schema, [(1, 5), (1, 1)])) == [
        (1, 7, 3),
        (1, 8, 3),
        (1, 1, 0),
        (1, 5, 0),
    ]


def test_ranks_shift_in_pairs() -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
    tasks = Subtasks(TopNSpec(ColumnKey(("k",)), 3, to_order("t", "v"), "r"))
    assert tasks.push(batch(schema, [(1, 5), (1, 7)])) == [(1, 5, 1, 0), (1, 7, 2, 0)]
    assert tasks.push(batch(schema, [(1, 6)])) == [(1, 7, 2, 1), (1, 6, 2, 2), (1, 7, 3, 0)]


def test_event_times_stay_with_their_records() -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
    tasks = Subtasks(DeduplicateSpec(ColumnKey(("k",)), "last"))
    tasks.push(batch(schema, [(1, 5)], stamps=[100]))
    tasks.restore(HALVES)
    tasks.push(batch(schema, [(1, 6)], stamps=[200]))
    stamps = [b.timestamps.tolist() for b in tasks.output]
    assert stamps == [[100], [100, 200]]


def test_memory_follows_what_is_kept() -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.string()})
    tasks = Subtasks(DeduplicateSpec(ColumnKey(("k",)), "last"))
    for number in range(300):
        tasks.push(batch(schema, [(k, f"{number:0100}") for k in range(50)]))
        tasks.output.clear()
    table = tasks.tasks[0].operator._work._rows.table
    assert len(table) == 50
    assert table._pool.end <= 100
    assert table.nbytes < 64 * 50 * 100


def test_forgotten_keys_of_a_changelog_leave_nothing() -> None:
    schema = pa.schema({"k": pa.string_view(), "v": pa.int64()})
    tasks = Subtasks(TopNSpec(ColumnKey(("k",)), 1, to_order("t", "v")))
    for start in range(0, 20_000, 500):
        rows = [(f"the key {k}, no longer inline", k) for k in range(start, start + 500)]
        tasks.push(batch(schema, rows, [0] * 500))
        tasks.push(batch(schema, rows, [3] * 500))
    work = tasks.tasks[0].operator._work
    assert len(work._keys) < 4000
    assert len(work._content) < 4000
    assert len(work._rows.table) == 0


def test_errors() -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
    tasks = Subtasks(TopNSpec(ColumnKey(("k",)), 1, to_order("t", "nope")))
    with pytest.raises(TypeMismatchError, match="nope"):
        tasks.push(batch(schema, [(1, 1)]))
    tasks = Subtasks(TopNSpec(ColumnKey(("k",)), 1, to_order("t", "v")))
    tasks.push(batch(schema, [(1, 1)]))
    with pytest.raises(TypeMismatchError, match="__row_kind"):
        tasks.push(batch(schema, [(1, 1)], [3]))
    tasks = Subtasks(TopNSpec(ColumnKey(("k",)), 1, to_order("t", "v")))
    with pytest.raises(StateError, match="1 records are retracted"):
        tasks.push(batch(schema, [(1, 1), (1, 2)], [0, 3]))
