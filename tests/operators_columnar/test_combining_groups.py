"""Running aggregates that are combined ahead of the exchange, against plain Python: several
senders, several subtasks behind real routing, restarts of either side at another parallelism."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.aggregates import count, count_distinct, first, max_, mean, min_, stddev, sum_
from strom.api.specs.tables import GroupAggregateSpec
from strom.core.batch import ColumnBatch
from strom.core.errors import TypeMismatchError
from strom.core.keys import ColumnKey, ExpressionKey, KeySelector
from strom.core.partials import ROWS_COLUMN, PartialKey, layout_of
from strom.core.row_kind import RowKind, with_kinds
from strom.engine.exchange.partitioners import make_selector
from strom.engine.graph.model import KeyGroups
from strom.operators.combining import sent_values, worth
from strom.operators.registry import build_operator
from strom.plan.combining_groups import CombineGroupsSpec, groups_need_records
from tables_kit import Materialised

SENDERS = 2
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("j", pa.int64()),
        ("v", pa.int32()),
        ("f", pa.float64()),
        ("w", pa.string()),
    ]
)
HIGH = pl.col("v") > 3
AGGREGATES = {
    "rows": count(),
    "n": count("v"),
    "high": count().where(HIGH),
    "total": sum_("v"),
    "low": min_("f"),
    "top": max_("v").where(HIGH),
    "avg": mean("f"),
    "values": count_distinct("v"),
    "high_values": count_distinct("v").where(HIGH),
    "words": count_distinct("w"),
    "long_words": count_distinct("w").where(pl.col("w").str.len_chars() > 1),
    "js": count_distinct(pl.col("j") % 4),
}
KEYS: dict[str, KeySelector] = {
    "one": ColumnKey(("k",)),
    "two": ColumnKey(("k", "j")),
    "expression": ExpressionKey((pl.col("j") % 3,)),
}


def spec_of(key: KeySelector, **aggregates: Any) -> GroupAggregateSpec:
    return GroupAggregateSpec(key, tuple((aggregates or AGGREGATES).items()))


def batch_of(rows: Sequence[tuple[Any, ...]], stamps: bool = True) -> ColumnBatch:
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(list(c), field.type) for c, field in zip(columns, SCHEMA, strict=True)]
    times = np.arange(len(rows), dtype=np.int64)
    return ColumnBatch(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), times if stamps else None)


def expected(rows: Sequence[tuple[Any, ...]], name: str) -> Counter[Any]:
    """The table of `AGGREGATES`."""
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        key = {"one": row[:1], "two": row[:2], "expression": (row[1] % 3,)}[name]
        groups.setdefault(key, []).append(row)
    table: Counter[Any] = Counter()
    for key, found in groups.items():
        vs = [v for _, _, v, _, _ in found if v is not None]
        fs = [f for _, _, _, f, _ in found if f is not None]
        words = {w for *_, w in found if w is not None}
        highs = [v for v in vs if v > 3]
        table[
            (
                *key,
                *(len(found), len(vs), len(highs), sum(vs) if vs else None),
                min(fs, default=None),
                max(highs, default=None),
                sum(fs) / len(fs) if fs else None,
                *(len(set(vs)), len(set(highs)), len(words), sum(len(w) > 1 for w in words)),
                len({j % 4 for _, j, *_ in found}),
            )
        ] += 1
    return table


class Pipeline:
    """Senders, and subtasks behind real routing; what a sender emits arrives at once."""

    def __init__(self, bench: Any, spec: GroupAggregateSpec, parallelism: int = 2) -> None:
        self._bench, self.spec = bench, spec
        is_expression = isinstance(spec.key, ExpressionKey)
        self._key = PartialKey(spec.key) if is_expression else spec.key
        self.table = Materialised()
        self.sent: list[Any] = []
        self.groups: list[Any] = []
        self._start([[]], parallelism)

    def _start(self, snapshots: list[Any], parallelism: int) -> None:
        self.senders = [
            self._bench.task(CombineGroupsSpec(self.spec), i, SENDERS) for i in range(SENDERS)
        ]
        self.groups = self._bench.rescale(lambda: build_operator(self.spec), snapshots, parallelism)
        self._selectors = [
            make_selector(
                KeyGroups(self._key),
                parallelism,
                subtask=i,
                max_parallelism=self._bench.max_parallelism,
            )
            for i in range(SENDERS)
        ]

    def push(self, sender: int, batch: ColumnBatch) -> None:
        task = self.senders[sender]
        task.operator.process(batch)
        for sent in task.out.batches:
            self.sent.append(sent)
            for at, part in self._selectors[sender].split(sent):
                self.groups[at].operator.process(part)
        task.out.events.clear()
        for one in self.groups:
            for out in one.out.batches:
                self.table.apply([tuple(row) for row in out.rows()])
            one.out.events.clear()

    def restart(self, parallelism: int) -> None:
        self._start([one.snapshot() for one in self.groups], parallelism)

    @property
    def partials(self) -> int:
        return sum(layout_of(one.data.schema) is not None for one in self.sent)


ROWS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.integers(0, 5),
        st.none() | st.integers(0, 6),
        st.none() | st.integers(-8, 8).map(lambda n: n / 4),
        st.none() | st.sampled_from(["", "x", "yy", "zzz"]),
    ),
    min_size=1,
    max_size=30,
)
STEPS = st.lists(
    st.tuples(st.just("rows"), st.integers(0, SENDERS - 1), ROWS)
    | st.tuples(st.just("restart"), st.integers(1, 3)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(60), deadline=None)
@given(steps=STEPS, name=st.sampled_from(sorted(KEYS)), most=st.sampled_from([0, 3, 1 << 20]))
def test_the_table_is_that_of_the_records(bench: Any, steps: Any, name: str, most: int) -> None:
    """Whatever is forgotten of what was sent, wherever either side restarts."""
    pipeline, rows = Pipeline(bench, spec_of(KEYS[name])), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sent_values, "MOST_SENT", most)
        patch.setattr(worth, "TRIED", 1 << 40)
        for kind, *rest in steps:
            if kind == "restart":
                pipeline.restart(rest[0])
                continue
            sender, some = rest
            rows += some
            pipeline.push(sender, batch_of(some))
            assert +pipeline.table.rows == expected(rows, name)
    assert pipeline.partials == len(pipeline.sent)


def drawn(seed: int, count: int, keys: str = "ab") -> list[tuple[Any, ...]]:
    rng = random.Random(seed)
    return [
        (
            rng.choice(keys),
            rng.randrange(6),
            rng.choice([None, *range(7)]),
            rng.randrange(9) / 4,
            rng.choice([None, "x", "yy", "zzz"]),
        )
        for _ in range(count)
    ]


def test_a_value_is_sent_once(bench: Any) -> None:
    """From then on a batch of whatever size is a row per group."""
    pipeline = Pipeline(bench, spec_of(KEYS["one"]))
    for seed in range(5):
        pipeline.push(0, batch_of(drawn(seed, 400)))
    lists = [one.data.column("__values0") for one in pipeline.sent]
    first, *others = [len(column.flatten()) for column in lists]
    assert first <= 7 * 2 * 2
    assert others == [0] * 4
    assert [len(one) for one in pipeline.sent] == [2] * 5
    assert [sum(one.data.column(ROWS_COLUMN).to_pylist()) for one in pipeline.sent] == [400] * 5


def test_event_times_are_those_of_the_last_records(bench: Any) -> None:
    pipeline = Pipeline(bench, spec_of(KEYS["one"], n=count()), parallelism=1)
    rows = [("a", 0, 0, 0.0, ""), ("b", 0, 0, 0.0, ""), ("a", 0, 0, 0.0, "")]
    pipeline.push(0, batch_of(rows))
    assert [one.timestamps.tolist() for one in pipeline.sent] == [[2, 1]]
    without = Pipeline(bench, spec_of(KEYS["one"], n=count()), parallelism=1)
    without.push(0, batch_of(rows, stamps=False))
    assert [one.timestamps for one in without.sent] == [None]
    assert +without.table.rows == +pipeline.table.rows


def test_keys_that_hardly_repeat_go_by(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worth, "TRIED", 100)
    pipeline, rows = Pipeline(bench, spec_of(KEYS["one"], n=count(), v=count_distinct("j"))), []
    for start in range(0, 600, 50):
        some = [(f"key {start + i}", 0, 0, 0.0, "") for i in range(50)]
        rows += some
        pipeline.push(0, batch_of(some))
    assert 0 < pipeline.partials < len(pipeline.sent)
    assert len(+pipeline.table.rows) == len(rows)


def test_what_is_not_combined(bench: Any) -> None:
    """It passes as it is: objects, changelogs, other types than the first, unknown columns."""
    spec = spec_of(KEYS["one"], n=count(), total=sum_("v"))
    task = bench.task(CombineGroupsSpec(spec), 0, SENDERS)
    records = batch_of(drawn(1, 20))
    task.operator.process(records)
    kinds = np.full(20, RowKind.DELETE, dtype=np.int8)
    at = SCHEMA.get_field_index("v")
    wide = records.data.set_column(at, "v", records.data.column("v").cast(pa.int64()))
    others = [
        ColumnBatch(with_kinds(records.data, kinds), None),
        ColumnBatch(wide, records.timestamps),
        ColumnBatch(records.data.drop_columns(["v"]), records.timestamps),
        ColumnBatch(records.data, None),
    ]
    for one in others:
        task.operator.process(one)
    combined, *passed = task.out.batches
    assert layout_of(combined.data.schema) is not None
    assert passed == others


@pytest.mark.parametrize("what", ["text", "list"])
def test_types_that_are_not_numbers(bench: Any, what: str) -> None:
    aggregates = {"text": {"low": min_("w")}, "list": {"n": count_distinct(pl.concat_list("j"))}}
    task = bench.task(CombineGroupsSpec(spec_of(KEYS["one"], **aggregates[what])), 0, SENDERS)
    records = batch_of(drawn(1, 20))
    task.operator.process(records)
    assert task.out.batches == [records]
    assert task.operator.combines is False


def test_a_key_called_as_a_column_of_partials(bench: Any) -> None:
    task = bench.task(CombineGroupsSpec(spec_of(ColumnKey((ROWS_COLUMN,)), n=count())), 0, 2)
    data = pa.RecordBatch.from_arrays([pa.array([1, 1])], names=[ROWS_COLUMN])
    records = ColumnBatch(data, None)
    task.operator.process(records)
    assert task.out.batches == [records]


def test_state_of_a_changelog_takes_no_partials(bench: Any) -> None:
    spec = spec_of(KEYS["one"], n=count())
    pipeline = Pipeline(bench, spec, parallelism=1)
    records = batch_of(drawn(1, 20))
    kinds = np.zeros(20, dtype=np.int8)
    pipeline.push(0, ColumnBatch(with_kinds(records.data, kinds), records.timestamps))
    with pytest.raises(TypeMismatchError, match=r"changelog.*strom\.local-combining to false"):
        pipeline.push(1, records)


@pytest.mark.parametrize(
    ("aggregates", "reason"),
    [
        ({"n": count(), "s": stddev("v")}, None),
        ({"n": count(), "d": count_distinct("v")}, None),
        ({"n": count(), "f": first("v")}, "first cannot be told"),
    ],
)
def test_reasons(aggregates: Any, reason: str | None) -> None:
    found = groups_need_records(spec_of(KEYS["one"], **aggregates))
    assert found is None if reason is None else reason in str(found)


def test_a_single_sender_passes_records_on(bench: Any) -> None:
    task = bench.task(CombineGroupsSpec(spec_of(KEYS["one"])), 0, 1)
    records = batch_of(drawn(1, 20))
    task.operator.process(records)
    assert task.out.batches == [records]
