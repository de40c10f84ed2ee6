"""Keys of table operators that are forgotten after a time to live, against plain models."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from amounts import seeds
from strom import ColumnBatch, Row, RowKind, StateTtlConfig, StreamExecutionEnvironment, sum_
from strom.core.errors import ConfigurationError, StateError
from strom.operators.tables import group_aggregate
from strom.state.ttl import Lifetime
from strom.testing import OperatorHarness
from strom.testing.backends import job_of

TTL = 10
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])

Record = tuple[int, int | None, str]


def batch(records: list[Record]) -> ColumnBatch:
    return ColumnBatch(
        pa.RecordBatch.from_pylist(
            [dict(zip(SCHEMA.names, r, strict=True)) for r in records], SCHEMA
        )
    )


def keyed() -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection([{"k": 1, "v": 1, "s": ""}]).key_by("k")


class Model:
    """What a key holds: records in order, and when they changed last."""

    def __init__(self, n: int, last: bool, ordered: bool) -> None:
        self.n = n
        self.last = last
        self.ordered = ordered
        self.held: dict[int, tuple[list[Record], int]] = {}

    def update(self, records: list[Record], now: int) -> Counter[tuple[int, Record]]:
        """What comes out: kinds and records."""
        touched = {r[0] for r in records}
        for k in touched & self.held.keys():
            if self.held[k][1] + TTL <= now:
                del self.held[k]
        before = {k: self.held.get(k, ([], 0))[0] for k in touched}
        for record in records:
            kept, _ = self.held.get(record[0], ([], 0))
            after = self.sorted([*kept, record])[: self.n]
            if after != kept or any(r is record for r in after):
                self.held[record[0]] = (after, now)
        found: Counter[tuple[int, Record]] = Counter()
        for k in touched:
            after = self.held[k][0]
            found.update((-1, r) for r in before[k] if not any(r is other for other in after))
            found.update((1, r) for r in after if not any(r is other for other in before[k]))
        return found

    def sorted(self, records: list[Record]) -> list[Record]:
        if not self.ordered:
            return records[::-1] if self.last else records
        worst = -1 if self.last else 1000
        values = [worst if r[1] is None else r[1] for r in records]
        order = sorted(
            range(len(records)), key=lambda i: (-values[i], -i) if self.last else (values[i], i)
        )
        return [records[i] for i in order]


CASES: dict[str, tuple[Any, Model]] = {
    "first": (lambda k, ttl: k.deduplicate(ttl=ttl), Model(1, False, False)),
    "last": (lambda k, ttl: k.deduplicate("last", ttl=ttl), Model(1, True, False)),
    "least": (lambda k, ttl: k.deduplicate("first", "v", ttl=ttl), Model(1, False, True)),
    "greatest": (lambda k, ttl: k.deduplicate("last", "v", ttl=ttl), Model(1, True, True)),
    "least_text": (
        lambda k, ttl: k.deduplicate("first", ["v", "s"], ttl=ttl),
        Model(1, False, True),
    ),
    "top_3": (lambda k, ttl: k.top_n(3, "v", ttl=ttl), Model(3, False, True)),
}


def signed(row: Row) -> tuple[int, Record]:
    kind = getattr(row, "__row_kind", RowKind.INSERT)
    sign = 1 if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
    return sign, (row.k, row.v, row.s)


@pytest.mark.parametrize("case", CASES)
def test_as_the_model(case: str) -> None:
    make, shape = CASES[case]
    for seed in seeds(25, least=8):
        rng, model = random.Random(seed), Model(shape.n, shape.last, shape.ordered)
        stream = make(keyed(), TTL)
        harness, now = OperatorHarness.of(stream, start_ms=1000, config=job_of(seed)), 1000
        for number in range(30):
            count = rng.randint(1, 6)
            records: list[Record] = [
                (rng.randrange(4), rng.choice([None, *range(8)]), f"{number:02}.{i}")
                for i in range(count)
            ]
            harness.push(batch(records))
            found = Counter(map(signed, harness.take_outputs()))
            assert found == model.update(records, now), (seed, number)
            now += rng.choice([0, 1, 4, 9, 10])
            harness.advance_processing_time(now)
            if rng.random() < 0.2:
                harness = OperatorHarness.of(
                    stream, restored=harness.snapshot(), config=job_of(seed)
                )


@pytest.mark.parametrize("case", CASES)
def test_what_is_held_does_not_grow(case: str) -> None:
    harness = OperatorHarness.of(CASES[case][0](keyed(), timedelta(milliseconds=TTL)))
    held = []
    for number in range(60):
        fresh = range(number * 1000, number * 1000 + 1000)
        harness.push(batch([(k, k, "x") for k in fresh]))
        harness.take_outputs()
        harness.advance_processing_time(harness.clock.now_ms() + 2)
        work = harness.operator._work  # type: ignore[attr-defined]
        slots = len(work._table) if hasattr(work, "_table") else len(work._index)
        rows = max(table.data.num_rows for table in harness.snapshot().keyed)
        held.append((slots, rows))
    assert max(slots for slots, _ in held) <= 20_000
    assert max(rows for _, rows in held) <= 8_000


@pytest.mark.parametrize("case", CASES)
def test_of_a_changelog_keys_are_forgotten_whole(case: str) -> None:
    """No record is taken back for one that is forgotten; a retraction of it is skipped."""
    harness = OperatorHarness.of(CASES[case][0](keyed(), TTL))

    def push(kind: int, *records: Record) -> list[tuple[int, int | None]]:
        data = batch(list(records)).data
        kinds = pa.array([kind] * len(records), pa.int8())
        harness.push(ColumnBatch(data.append_column("__row_kind", kinds)))
        return [(sign, row[1]) for sign, row in map(signed, harness.take_outputs())]

    assert push(RowKind.INSERT, (1, 1, "a")) == [(1, 1)]
    harness.advance_processing_time(TTL - 1)
    push(RowKind.INSERT, (1, 2, "b"))
    harness.advance_processing_time(2 * TTL - 2)
    push(RowKind.DELETE, (1, 1, "a"))  # it lives on with its key, which this stamps, too
    harness.advance_processing_time(3 * TTL - 3)
    assert (-1, 2) in push(RowKind.DELETE, (1, 2, "b"))
    push(RowKind.INSERT, (1, 3, "c"))
    harness.advance_processing_time(4 * TTL - 3)
    assert push(RowKind.DELETE, (1, 3, "c")) == []
    assert harness.metrics.get_count("numRetractionsOfForgottenSkipped") == 1
    assert push(RowKind.INSERT, (1, 4, "d")) == [(1, 4)]


def test_a_config_of_state_is_taken_as_far_as_it_goes() -> None:
    builder = StateTtlConfig.new_builder(TTL)
    made = keyed().deduplicate(ttl=builder.build())._settable("a test").spec
    assert made.ttl == Lifetime(TTL)
    with pytest.raises(ConfigurationError, match="lives on by"):
        keyed().top_n(1, "v", ttl=builder.update_ttl_on_read_and_write().build())


@pytest.mark.parametrize("case", [*CASES, "aggregate", "sum"])
@pytest.mark.parametrize("before", [None, TTL])
def test_what_was_stored_otherwise_is_refused(case: str, before: int | None) -> None:
    makes = {name: make for name, (make, _) in CASES.items()}
    makes["aggregate"] = lambda k, ttl: k.aggregate(total=sum_("v"), ttl=ttl)
    makes["sum"] = lambda k, ttl: k.sum("v", ttl=ttl)
    old = OperatorHarness.of(makes[case](keyed(), before))
    old.push(batch([(1, 1, "x")]))
    with pytest.raises(StateError, match="or give the operator a new uid"):
        OperatorHarness.of(makes[case](keyed(), None if before else TTL), restored=old.snapshot())


def test_groups_are_forgotten_with_each_batch() -> None:
    harness = OperatorHarness.of(keyed().aggregate(total=sum_("v"), ttl=TTL))
    held = []
    for number in range(60):
        harness.push(batch([(k, k, "x") for k in range(number * 1000, number * 1000 + 1000)]))
        harness.take_outputs()
        harness.clock.advance_ms(2)  # nobody is woken
        held.append(len(harness.operator._table))  # type: ignore[attr-defined]
    assert max(held) <= 20_000


def test_without_batches_groups_are_forgotten_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_aggregate, "PORTION", 1000)
    harness = OperatorHarness.of(keyed().aggregate(total=sum_("v"), ttl=TTL))
    harness.push(batch([(k, k, "x") for k in range(5000)]))
    harness.pausing = True
    harness.advance_processing_time(harness.clock.now_ms() + TTL)
    steps = 0
    while harness.busy:
        harness.resume()
        steps += 1
    assert steps == 4
    assert max(table.data.num_rows for table in harness.snapshot().keyed) < 1000


def test_an_update_of_a_forgotten_group_begins_it_anew() -> None:
    """What is taken back was forgotten: it takes nothing from what comes behind it."""
    harness = OperatorHarness.of(keyed().aggregate(total=sum_("v"), ttl=TTL))

    def push(*changes: tuple[int, int]) -> list[tuple[int, int]]:
        data = batch([(1, value, "x") for _, value in changes]).data
        kinds = pa.array([kind for kind, _ in changes], pa.int8())
        harness.push(ColumnBatch(data.append_column("__row_kind", kinds)))
        return [(row[-1], row.total) for row in harness.take_outputs()]

    assert push((RowKind.INSERT, 1)) == [(RowKind.INSERT, 1)]
    harness.advance_processing_time(TTL)
    update = ((RowKind.UPDATE_BEFORE, 1), (RowKind.UPDATE_AFTER, 2))
    assert push(*update) == [(RowKind.INSERT, 2)]
    assert harness.metrics.get_count("numRetractionsOfForgottenSkipped") == 1
