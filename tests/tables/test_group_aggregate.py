"""Running aggregates against dictionaries of lists in plain Python.

Changelogs are applied batch by batch and must give the model's table each time, whatever the
batches, with snapshots, halves of the key groups and merges in between.
"""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from amounts import examples
from backends import TINY
from columns_kit import batch
from hypothesis import given, settings
from hypothesis import strategies as st
from strom import StreamExecutionEnvironment, count, first, last, max_, mean, min_, sum_
from strom.api.aggregates import Aggregate, count_distinct, variance
from strom.api.specs.tables import GroupAggregateSpec
from strom.core.errors import ConfigurationError, StateError, TypeMismatchError
from strom.core.keys import ColumnKey
from strom.core.state_config import StateConfig
from strom.state.key_groups import key_groups_of
from strom.state.rocks.tables.keyed_values import ColdKeyedValues
from strom.state.ttl import Lifetime
from strom.testing.operator_harness import OperatorHarness
from tables_kit import GROUPS, HALVES, WHOLE, Materialised, Subtasks, plain

Row = tuple[Any, ...]
SCHEMA = pa.schema(
    {"k": pa.int64(), "j": pa.string(), "v": pa.int64(), "x": pa.float64(), "s": pa.string()}
)
VALUES: list[list[Any]] = [
    [0, 1, 2, None],
    ["a", None],
    [1, 2, 3, -4, None],
    [0.25, -1.5, float("nan"), float("inf"), None],
    ["u", "vv", "", None],
]
SMALL = pl.col("v") < 2
IN_MEMORY = StateConfig()


def present(rows: list[Row], at: int) -> list[Any]:
    return [row[at] for row in rows if row[at] is not None]


def small(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row[2] is not None and row[2] < 2]


def greatest(values: list[Any], sign: int) -> Any:
    """NaN is the greatest."""
    if not values:
        return None
    odd = [v for v in values if v != v]
    rest = [v for v in values if v == v]
    if sign > 0:
        return odd[0] if odd else max(rest)
    return min(rest) if rest else odd[0]


def average(values: list[Any]) -> Any:
    return sum(values) / len(values) if values else None


MODELS: dict[str, tuple[Aggregate, Any]] = {
    "n": (count(), len),
    "nv": (count("v"), lambda rows: len(present(rows, 2))),
    "few": (count().where(SMALL), lambda rows: len(small(rows))),
    "total": (sum_("v"), lambda rows: sum(present(rows, 2)) if present(rows, 2) else None),
    "sx": (sum_("x"), lambda rows: sum(present(rows, 3)) if present(rows, 3) else None),
    "avg": (
        mean("v"),
        lambda r: sum(present(r, 2)) / len(present(r, 2)) if present(r, 2) else None,
    ),
    "top": (max_("v"), lambda rows: greatest(present(rows, 2), 1)),
    "low": (min_("x"), lambda rows: greatest(present(rows, 3), -1)),
    "high": (max_("x"), lambda rows: greatest(present(rows, 3), 1)),
    "text": (max_("s"), lambda rows: max(present(rows, 4), default=None)),
    "least": (min_("s").where(SMALL), lambda rows: min(present(small(rows), 4), default=None)),
    "d": (count_distinct("v"), lambda rows: len(set(present(rows, 2)))),
    "ds": (count_distinct("s").where(SMALL), lambda rows: len(set(present(small(rows), 4)))),
    "dx": (count_distinct("x"), lambda rows: len({plain(v) for v in present(rows, 3)})),
}


def spec(names: list[str], **settings: Any) -> GroupAggregateSpec:
    aggregates = tuple((name, MODELS[name][0]) for name in names)
    return GroupAggregateSpec(ColumnKey(("k", "j")), aggregates, **settings)


def model(rows: list[Row], names: list[str]) -> Counter[Row]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[:2], []).append(row)
    return Counter(
        (*key, *(plain(MODELS[name][1](group)) for name in names)) for key, group in groups.items()
    )


@st.composite
def changelogs(draw: Any, retracting: bool) -> Any:
    row = st.tuples(*[st.sampled_from(values) for values in VALUES])
    present_rows: list[Row] = []
    batches = []
    for _ in range(draw(st.integers(1, 6))):
        one = []
        for _ in range(draw(st.integers(1, 9))):
            if retracting and present_rows and draw(st.booleans()):
                gone = present_rows.pop(draw(st.integers(0, len(present_rows) - 1)))
                one.append((gone, draw(st.sampled_from([1, 3]))))
            else:
                present_rows.append(draw(row))
                one.append((present_rows[-1], draw(st.sampled_from([0, 2]))))
        batches.append(one)
    return batches


cuts = st.lists(st.sampled_from([None, None, WHOLE, HALVES]), min_size=6, max_size=6)
some_names = st.lists(st.sampled_from(list(MODELS)), min_size=1, max_size=5, unique=True)


def without(rows: list[Row], row: Row) -> None:
    at = next(i for i, one in enumerate(rows) if tuple(map(plain, one)) == tuple(map(plain, row)))
    del rows[at]


@settings(max_examples=examples(70), deadline=None)
@given(st.booleans().flatmap(lambda r: st.tuples(st.just(r), changelogs(r))), cuts, some_names)
def test_against_the_model(run: Any, restores: Any, names: list[str]) -> None:
    retracting, batches = run
    tasks, table, seen = Subtasks(spec(names)), Materialised(), []
    for changes, cut in zip(batches, restores, strict=False):
        if cut:
            tasks.restore(cut)
        for row, kind in changes:
            seen.append(row) if kind in (0, 2) else without(seen, row)
        kinds = [kind for _, kind in changes] if retracting else None
        out = tasks.push(batch(SCHEMA, [row for row, _ in changes], kinds))
        assert table.apply(out) == model(seen, names)
        keys = [row[:2] for row in out if row[-1] in (0, 2, 3)]
        assert len(set(keys)) == len(keys), "more than one update of a key"


AWAY = [TINY], [IN_MEMORY, TINY], [TINY, IN_MEMORY]
"""Where state lies, from one restore to the next."""


@settings(max_examples=examples(40), deadline=None)
@given(
    st.booleans().flatmap(lambda r: st.tuples(st.just(r), changelogs(r))),
    cuts,
    some_names,
    st.sampled_from(AWAY),
)
def test_against_the_model_where_nothing_stays_in_memory(
    run: Any, restores: Any, names: list[str], states: Any
) -> None:
    retracting, batches = run
    tasks, table, seen = Subtasks(spec(names), states=states), Materialised(), []
    for changes, cut in zip(batches, restores, strict=False):
        if cut:
            tasks.restore(cut)
        for row, kind in changes:
            seen.append(row) if kind in (0, 2) else without(seen, row)
        kinds = [kind for _, kind in changes] if retracting else None
        out = tasks.push(batch(SCHEMA, [row for row, _ in changes], kinds))
        assert table.apply(out) == model(seen, names)
        validate(tasks)
    tasks.close()


def validate(tasks: Subtasks) -> None:
    for task in tasks.tasks:
        for state in getattr(task.keyed_state, "_cold", ()):
            if isinstance(state, ColdKeyedValues):
                state.validate()


@settings(max_examples=examples(25), deadline=None)
@given(changelogs(True), cuts, some_names)
def test_upserts(batches: Any, restores: Any, names: list[str]) -> None:
    tasks, seen = Subtasks(spec(names, changelog="upsert")), []
    table: dict[Any, Row] = {}
    for changes, cut in zip(batches, restores, strict=False):
        if cut:
            tasks.restore(cut)
        for row, kind in changes:
            seen.append(row) if kind in (0, 2) else without(seen, row)
        kinds = [kind for _, kind in changes]
        for *row, kind in tasks.push(batch(SCHEMA, [row for row, _ in changes], kinds)):
            key = tuple(row[:2])
            assert kind != 1
            assert (key in table) == (kind != 0)
            if kind == 3:
                del table[key]
            else:
                table[key] = tuple(map(plain, row))
        assert Counter(table.values()) == model(seen, names)


def test_variance_over_retractions() -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.float64()})
    tasks = Subtasks(GroupAggregateSpec(ColumnKey(("k",)), (("s", variance("v")),)))
    tasks.push(batch(schema, [(1, 1.0), (1, 2.0), (1, 9.0)], [0, 0, 0]))
    (old, new) = tasks.push(batch(schema, [(1, 9.0)], [3]))
    assert old[-1] == 1
    assert math.isclose(new[1], 0.5)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string_view(), ["a", "a text of more than twelve bytes", None]),
        (pa.dictionary(pa.int32(), pa.string()), ["b", "c", None]),
        (pa.timestamp("us"), [5, 9, None]),
        (pa.binary(), [b"", b"\x01", None]),
        (pa.decimal128(6, 2), [Decimal("1.25"), Decimal("-3.00"), None]),
    ],
)
@pytest.mark.parametrize("kinds", [None, [0, 0, 0]])
def test_extremes_of_every_type(kind: Any, values: Any, kinds: Any) -> None:
    schema = pa.schema({"k": pa.string_view(), "v": kind})
    aggregates = (("low", min_("v")), ("top", max_("v")), ("d", count_distinct("v")))
    tasks = Subtasks(GroupAggregateSpec(ColumnKey(("k",)), aggregates))
    tasks.push(batch(schema, [("x", values[2])] * 3, kinds))
    tasks.restore(HALVES)
    for task in tasks.tasks:
        if task.operator._layout is not None:
            task.operator._parts.keep(np.arange(len(task.operator._table)))
    changes = tasks.push(batch(schema, [("x", value) for value in values], kinds))
    low, top = sorted(as_python(kind, values[:2]))
    assert changes == [("x", None, None, 0, 1), ("x", low, top, 2, 2)]
    plain_kind = pa.string() if pa.types.is_dictionary(kind) else kind
    assert tasks.output[-1].data.schema.field("top").type == plain_kind


def as_python(kind: pa.DataType, values: list[Any]) -> list[Any]:
    return pa.array(values, kind).to_pylist()


def test_equal_results_are_no_update() -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
    tasks = Subtasks(GroupAggregateSpec(ColumnKey(("k",)), (("top", max_("v")),)))
    assert tasks.push(batch(schema, [(1, 5), (2, 1)])) == [(1, 5, 0), (2, 1, 0)]
    assert tasks.push(batch(schema, [(1, 4), (2, 3)])) == [(2, 1, 1), (2, 3, 2)]


def test_first_and_last() -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
    aggregates = (("a", first("v")), ("b", last("v")))
    tasks = Subtasks(GroupAggregateSpec(ColumnKey(("k",)), aggregates))
    tasks.push(batch(schema, [(1, 5), (1, 6)]))
    tasks.restore(HALVES)
    assert tasks.push(batch(schema, [(1, 7)])) == [(1, 5, 6, 1), (1, 5, 7, 2)]
    tasks = Subtasks(GroupAggregateSpec(ColumnKey(("k",)), aggregates))
    with pytest.raises(TypeMismatchError, match="retracted"):
        tasks.push(batch(schema, [(1, 5)], [0]))


def key_half(key: int) -> int:
    keys = pa.record_batch({"k": pa.array([key])})
    return int(key_groups_of(keys, GROUPS)[0] > HALVES[0].last)


def test_groups_that_come_and_go_leave_nothing() -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
    aggregates = (("top", max_("v")), ("n", count()))
    tasks = Subtasks(GroupAggregateSpec(ColumnKey(("k",)), aggregates))
    table = Materialised()
    for start in range(0, 20_000, 500):
        rows = [(k, k % 7) for k in range(start, start + 500)]
        table.apply(tasks.push(batch(schema, rows, [0] * 500)))
        table.apply(tasks.push(batch(schema, rows[1:], [3] * 499)))
    operator = tasks.tasks[0].operator
    assert len(+table.rows) == 40
    assert len(operator._table) < 4000
    assert len(operator._parts._stored()[0]) < 4000
    tasks.restore(HALVES)
    rows = [(k, 3) for k in range(20_000, 26_000) if key_half(k) == 0]
    for kind in (0, 3):
        table.apply(tasks.push(batch(schema, rows, [kind] * len(rows))))
    assert all(len(task.operator._table) < 4000 for task in tasks.tasks)
    tasks.restore(WHOLE)
    got = table.apply(tasks.push(batch(schema, [(k, 9) for k in range(0, 20_000, 500)], [0] * 40)))
    assert got == Counter((k, 9, 2) for k in range(0, 20_000, 500))


def test_ttl() -> None:
    """time   0     60    120   180    ttl 100
    key 1     x     x           x      never 100 without a record until 180: starts anew
    key 2     x
    """
    schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
    aggregates = (("n", count()), ("d", count_distinct("v")))
    tasks = Subtasks(GroupAggregateSpec(ColumnKey(("k",)), aggregates, ttl=Lifetime(100)))
    tasks.push(batch(schema, [(1, 5), (2, 5)]))
    tasks.time(60)
    assert tasks.push(batch(schema, [(1, 6)])) == [(1, 1, 1, 1), (1, 2, 2, 2)]
    tasks.restore(HALVES)
    tasks.time(120)
    assert tasks.push(batch(schema, [(3, 6)])) == [(3, 1, 1, 0)]
    tasks.time(160)
    assert tasks.push(batch(schema, [(1, 6)])) == [(1, 1, 1, 0)]
    tasks.restore(WHOLE)
    assert tasks.push(batch(schema, [(3, 6)])) == [(3, 1, 1, 1), (3, 2, 1, 2)]
    tasks.time(5000)
    tasks.restore(HALVES)
    assert [len(task.operator._table) for task in tasks.tasks] == [0, 0]


def test_values_of_groups_that_expire_elsewhere_go_with_them() -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
    aggregates = (("n", count()), ("d", count_distinct("v")), ("text", max_("v")))
    spec = GroupAggregateSpec(ColumnKey(("k",)), aggregates, ttl=Lifetime(100))
    tasks = Subtasks(spec, states=[TINY])
    tasks.push(batch(schema, [(k, v) for k in range(50) for v in range(3)], [0] * 150))
    tasks.time(60)
    tasks.push(batch(schema, [(k, 7) for k in range(10)], [0] * 10))
    tasks.time(120)
    for _ in range(3):  # each looks at some rows
        tasks.push(batch(schema, [(100, v) for v in range(200)], [0] * 200))
    (values,) = [s for s in tasks.tasks[0].keyed_state._cold if isinstance(s, ColdKeyedValues)]
    tasks.tasks[0].keyed_state.time.begin(1)
    places = list(values.under(values.rows.prefix))
    assert len(places) == 10 * 5 + 201
    out = tasks.push(batch(schema, [(k, 2) for k in (0, 20)], [0] * 2))
    assert out == [(0, 4, 3 + 1, 7, 1), (0, 5, 4, 7, 2), (20, 1, 1, 2, 0)]
    tasks.close()


def test_groups_restored_expire_without_any_record() -> None:
    """time   0     60 restored    160    ttl 100"""
    schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
    aggregates = (("n", count()), ("d", count_distinct("v")))
    tasks = Subtasks(GroupAggregateSpec(ColumnKey(("k",)), aggregates, ttl=Lifetime(100)))
    tasks.push(batch(schema, [(k, k) for k in range(40)]))
    tasks.time(60)
    tasks.restore(HALVES)
    tasks.time(160)
    for task in tasks.tasks:
        assert not (task.operator._table.column("rows") > 0).any()
    tasks.restore(WHOLE)
    assert [len(task.operator._table) for task in tasks.tasks] == [0]


def test_a_retraction_of_what_never_was() -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
    tasks = Subtasks(GroupAggregateSpec(ColumnKey(("k",)), (("n", count()),)))
    with pytest.raises(StateError, match="retracted more often"):
        tasks.push(batch(schema, [(1, 5)], [3]))
    tasks = Subtasks(GroupAggregateSpec(ColumnKey(("k",)), (("n", max_("v")),)))
    with pytest.raises(StateError, match="a value was retracted"):
        tasks.push(batch(schema, [(1, 5), (1, 6)], [0, 3]))


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1), min_size=1, max_size=5))
def test_average_per_category_of_the_maximum_per_auction(batches: Any) -> None:
    """As q4 does: the second level takes back what the first one replaced."""
    env = StreamExecutionEnvironment.get_execution_environment()
    bids = env.from_collection([])
    best = bids.key_by("auction", "category").aggregate(final=max_("price"))
    average = best.key_by("category").aggregate(avg=mean("final"), n=count())
    one, two = OperatorHarness.of(best), OperatorHarness.of(average)
    schema = pa.schema({"auction": pa.int64(), "category": pa.int64(), "price": pa.int64()})
    table, seen = Materialised(), {}
    for rows in batches:
        one.push(batch(schema, rows))
        for changes in one.batches():
            two.push(changes)
        one.take_outputs()
        for auction, category, price in rows:
            key = (auction, category)
            seen[key] = max(price, seen.get(key, price))
        got = table.apply([tuple(row) for row in two.take_outputs()])
        groups: dict[int, list[int]] = {}
        for (_, category), price in seen.items():
            groups.setdefault(category, []).append(price)
        assert got == Counter((c, sum(p) / len(p), len(p)) for c, p in groups.items())


def test_what_the_api_refuses() -> None:
    from strom.api.aggregates import collect

    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([{"k": 1, "v": 1}])
    keyed = stream.key_by("k")
    for call in (
        lambda: keyed.aggregate(),
        lambda: keyed.aggregate(n=3),
        lambda: keyed.aggregate(k=count()),
        lambda: keyed.aggregate(n=collect("v")),
        lambda: keyed.aggregate(n=count(), changelog="append"),
        lambda: keyed.aggregate(n=count(), ttl=0),
        lambda: stream.key_by(lambda r: r["k"]).aggregate(n=count()),
        lambda: keyed.top_n(0, "v"),
        lambda: keyed.top_n(1, ("v", 3)),
        lambda: keyed.top_n(1, []),
        lambda: keyed.deduplicate("newest"),
        lambda: keyed.over(rows=2, range=3),
        lambda: keyed.over(order="time"),
        lambda: keyed.over().aggregate(),
    ):
        with pytest.raises(ConfigurationError):
            call()
