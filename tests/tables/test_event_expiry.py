"""Operators that forget keys by event time, against a plain model that sees record by record.

Batches span several times to live, watermarks come anywhere, and operators are restored in between:
what comes out in all is the same.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import event_streams
import numpy as np
import pyarrow as pa
import pytest
from amounts import seeds
from strom import (
    ColumnBatch,
    RowKind,
    StateTtlConfig,
    StreamExecutionEnvironment,
    count,
    count_distinct,
    max_,
    sum_,
)
from strom.core.errors import ConfigurationError, StateError, TypeMismatchError
from strom.testing import OperatorHarness
from strom.testing.backends import job_of

TTL = 20
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])

Record = tuple[int, int, str]
Change = tuple[int, Record]
"""1 or -1, and a record: one that comes, or one that is taken away."""


def by_event(ms: int) -> StateTtlConfig:
    return StateTtlConfig.new_builder(ms).use_event_time().build()


def keyed() -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection([{"k": 1, "v": 1, "s": ""}]).key_by("k")


class Kept:
    """The first `n` in an order; a key is stamped when one of them comes, or if `any_stamps` by
    every change."""

    def __init__(self, n: int, order: Callable[[list[Record]], list[Record]], any_stamps: bool):
        self.n = n
        self.order = order
        self.any_stamps = any_stamps
        self.all: dict[int, list[Record]] = {}
        self.stamps: dict[int, int] = {}
        self.net: Counter[Any] = Counter()
        """What came out, less what was taken back."""

    def shown(self, held: list[Record]) -> list[Any]:
        return self.order(held)[: self.n]

    def kept(self, held: list[Any], change: Change) -> list[Any]:
        """What is held after a change; a retraction of what is not held is skipped."""
        sign, record = change
        return [*held, record] if sign > 0 else [one for one in held if one != record]

    def change(self, change: Change, time: int) -> None:
        key = change[1][0]
        if key in self.stamps and self.stamps[key] + TTL <= time:
            del self.all[key], self.stamps[key]
        held = self.all.get(key, [])
        before = self.shown(held)
        held = self.kept(held, change)
        after = self.shown(held)
        self.net.subtract(before)
        self.net.update(after)
        if self.any_stamps or after != before:
            if not self.any_stamps:
                held = after
            self.all[key] = held
            self.stamps[key] = max(time, self.stamps.get(key, time))


class Groups(Kept):
    """Running aggregates: number and sum, by what came and was taken away. Of a key without records
    nothing can be taken."""

    def shown(self, held: list[Any]) -> list[Any]:
        number = sum(sign for sign, _ in held)
        return [(held[0][1][0], number, sum(s * r[1] for s, r in held))] if number else []

    def kept(self, held: list[Any], change: Change) -> list[Any]:
        if not self.shown(held):
            return [change] if change[0] > 0 else []
        return [*held, change]


class Values(Kept):
    """Running aggregates of the values: how many there are, the greatest."""

    def shown(self, held: list[Record]) -> list[Any]:
        values = {record[1] for record in held}
        return [(held[0][0], len(values), max(values))] if held else []


def arrival(held: list[Record]) -> list[Record]:
    return held


def by_value(held: list[Record]) -> list[Record]:
    return sorted(held, key=lambda record: record[1])


def last(held: list[Record]) -> list[Record]:
    return held[::-1]


def greatest(held: list[Record]) -> list[Record]:
    return sorted(last(held), key=lambda record: -record[1])


CASES: dict[str, tuple[Any, Callable[[bool], Kept]]] = {
    "first": (lambda k, ttl: k.deduplicate(ttl=ttl), lambda any_: Kept(1, arrival, any_)),
    "last": (lambda k, ttl: k.deduplicate("last", ttl=ttl), lambda any_: Kept(1, last, any_)),
    "least": (
        lambda k, ttl: k.deduplicate("first", "v", ttl=ttl),
        lambda any_: Kept(1, by_value, any_),
    ),
    "greatest": (
        lambda k, ttl: k.deduplicate("last", "v", ttl=ttl),
        lambda any_: Kept(1, greatest, any_),
    ),
    "top_3": (lambda k, ttl: k.top_n(3, "v", ttl=ttl), lambda any_: Kept(3, by_value, any_)),
    "aggregate": (
        lambda k, ttl: k.aggregate(n=count(), total=sum_("v"), ttl=ttl),
        lambda any_: Groups(1, arrival, True),
    ),
    "values": (
        lambda k, ttl: k.aggregate(n=count_distinct("v"), top=max_("v"), ttl=ttl),
        lambda any_: Values(1, arrival, True),
    ),
}


def batch(changes: list[Change], stamps: list[int], changelog: bool) -> ColumnBatch:
    records = [dict(zip(SCHEMA.names, record, strict=True)) for _, record in changes]
    data = pa.RecordBatch.from_pylist(records, SCHEMA)
    if changelog:
        kinds = [RowKind.INSERT if sign > 0 else RowKind.DELETE for sign, _ in changes]
        data = data.append_column("__row_kind", pa.array(kinds, pa.int8()))
    return ColumnBatch(data, np.array(stamps, np.int64))


def draw(rng: random.Random, size: int, changelog: bool) -> list[Change]:
    """A changelog takes away what came before it, sometimes long before."""
    changes: list[Change] = []
    left: list[Record] = []
    for number in range(size):
        if changelog and left and rng.random() < 0.4:
            changes.append((-1, left.pop(rng.randrange(len(left)))))
        else:
            record = (rng.randrange(3), rng.randrange(8), str(number))
            left.append(record)
            changes.append((1, record))
    return changes


def net_of(harness: OperatorHarness) -> Counter[Any]:
    net: Counter[Any] = Counter()
    for row in harness.outputs():
        *values, kind = row if "__row_kind" in row._fields else (*row, RowKind.INSERT)
        net[tuple(values)] += 1 if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
    return net


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("changelog", [False, True])
def test_as_the_model(case: str, changelog: bool) -> None:
    if case == "values" and changelog:
        return  # values that are taken back after they were forgotten say nothing
    make, shape = CASES[case]
    forgotten = 0
    for seed in seeds(25, least=8):
        rng, model = random.Random(seed), shape(changelog)
        stream = make(keyed(), by_event(TTL))
        stamps = event_streams.times(rng, 80, TTL)
        changes = draw(rng, len(stamps), changelog)
        if case == "aggregate" and changelog:  # or else it tells which records were forgotten
            changes = [(sign, (k, k + 1, s)) for sign, (k, _, s) in changes]
        harness, found = OperatorHarness.of(stream, config=job_of(seed)), Counter()
        for what, value in event_streams.steps(rng, stamps):
            if what == "rows":
                harness.push(batch(changes[value], stamps[value], changelog))
            elif what == "watermark":
                harness.watermark(value)
            else:
                found.update(net_of(harness))
                harness = OperatorHarness.of(
                    stream, restored=harness.snapshot(), config=job_of(seed)
                )
        found.update(net_of(harness))
        for change, time in zip(changes, stamps, strict=True):
            model.change(change, time)
        assert +found == +model.net, seed
        assert -found == -model.net, seed
        forgotten += harness.metrics.get_count("numRetractionsOfForgottenSkipped")
    assert bool(forgotten) == changelog


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("changelog", [False, True])
def test_what_is_held_does_not_grow(case: str, changelog: bool) -> None:
    harness = OperatorHarness.of(CASES[case][0](keyed(), by_event(TTL)))
    held = []
    for number in range(40):
        keys = range(number * 1000, number * 1000 + 1000)
        records: list[Change] = [(1, (k, k, "x")) for k in keys]
        harness.push(batch(records, [2 * number] * 1000, changelog))
        harness.watermark(2 * number)
        harness.output.elements.clear()
        held.append(max(table.data.num_rows for table in harness.snapshot().keyed))
    assert max(held) <= 16_000


@pytest.mark.parametrize("case", [*CASES, "sum"])
def test_one_record_a_turn(case: str) -> None:
    """A key of which every record finds it expired: a batch is worked in at once all the same."""
    make = CASES[case][0] if case in CASES else lambda k, ttl: k.sum("v", ttl=ttl)
    harness, size = OperatorHarness.of(make(keyed(), by_event(TTL))), 20_000
    records: list[Change] = [(1, (1, 1, "x"))] * size
    harness.push(batch(records, list(range(0, TTL * size, TTL)), False))
    kinds = {getattr(row, "__row_kind", 0) for row in harness.outputs()}
    assert (len(harness.outputs()), kinds) == (size, {RowKind.INSERT})


@pytest.mark.parametrize("case", [*CASES, "sum"])
def test_records_need_event_times(case: str) -> None:
    make = CASES[case][0] if case in CASES else lambda k, ttl: k.sum("v", ttl=ttl)
    harness = OperatorHarness.of(make(keyed(), by_event(TTL)))
    without = ColumnBatch(batch([(1, (1, 1, "x"))], [5], False).data)
    with pytest.raises(TypeMismatchError, match="it forgets by event time, and a record has none"):
        harness.push(without)


@pytest.mark.parametrize("case", [*CASES, "sum"])
@pytest.mark.parametrize("before", [None, TTL, "event"])
@pytest.mark.parametrize("changelog", [False, True])
def test_restored_with_another_time_to_live(case: str, before: Any, changelog: bool) -> None:
    """Stamps of the other time are refused by name; with another length the stamps stay."""
    if case == "sum" and changelog:
        return
    make = CASES[case][0] if case in CASES else lambda k, ttl: k.sum("v", ttl=ttl)
    first = by_event(1000) if before == "event" else before
    old = OperatorHarness.of(make(keyed(), first))
    old.push(batch([(1, (1, 1, "x"))], [0], changelog))
    again = make(keyed(), by_event(TTL))
    if before != "event":
        with pytest.raises(StateError, match=r"state '|rows '"):
            OperatorHarness.of(again, restored=old.snapshot())
        return
    harness = OperatorHarness.of(again, restored=old.snapshot())
    harness.push(batch([(1, (1, 2, "y"))], [TTL - 1], changelog))
    shown = net_of(harness)
    assert shown.get((1, 2, "y")) != 1 or case != "first"
    harness.push(batch([(1, (1, 3, "z"))], [3 * TTL], changelog))
    held = {"aggregate": (1, 1, 3), "values": (1, 1, 3)}.get(case, (1, 3, "z"))
    assert (net_of(harness) - shown)[held] == 1


def test_other_settings_are_refused() -> None:
    config = StateTtlConfig.new_builder(timedelta(hours=1)).use_event_time()
    with pytest.raises(ConfigurationError, match="lives on by"):
        keyed().top_n(1, "v", ttl=config.update_ttl_on_read_and_write().build())
