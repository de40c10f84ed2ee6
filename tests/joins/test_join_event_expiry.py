"""Rows of joins that expire by event time, on one side or both."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import event_streams
import pyarrow as pa
import pytest
from strom import ColumnBatch, StateTtlConfig, StreamExecutionEnvironment
from strom.core.errors import ConfigurationError, OperatorError, StateError
from strom.core.row_kind import RowKind
from strom.operators.joins import regular
from strom.testing import OperatorHarness

from tests.joins.test_regular_join import (
    KINDS,
    Model,
    batch,
    given_out,
    join,
    row,
    split_and_merged,
)

INT = pa.int64()
TTLS = [(20, 20), (20, None), (10, 45)]


def by_event(ms: int | None) -> StateTtlConfig | None:
    return None if ms is None else StateTtlConfig.new_builder(ms).use_event_time().build()


def pair(ttls: tuple[int | None, int | None]) -> Any:
    return tuple(map(by_event, ttls))


class EventModel(Model):
    """One record at a time; two rows meet if neither had expired at the time of the other."""

    def __init__(self, how: str, ttls: tuple[int | None, int | None]) -> None:
        super().__init__(how)
        self.ttls = ttls

    def _match(self, port: int, record: Any, other: Any) -> bool:
        return super()._match(port, record, other) and self._meet(port, record[2], other[2])

    def _meet(self, port: int, time: int, other: int) -> bool:
        own, theirs = self.ttls[port], self.ttls[1 - port]
        return (theirs is None or other + theirs > time) and (own is None or time + own > other)

    def _store(self, own: list[Any], record: Any, takes: bool, found: int, now: int) -> None:
        if not takes:
            own.append([record, found, now])
            return
        ttl = self.ttls[self.sides.index(own)]
        equal = [r for r in own if r[0][:2] == record[:2] and (not ttl or r[0][2] + ttl > now)]
        if equal:
            own.remove(equal[-1])


Event = tuple[int, tuple[int, int, int], int]
"""Port, record and row kind."""


def drawn(rng: random.Random, changelog: bool) -> list[Event]:
    """Both sides in an order of their own; retractions have the time at which they come."""
    events: list[Event] = []
    left: list[tuple[int, int, int]] = []
    for number, time in enumerate(event_streams.times(rng, 60, 20)):
        if changelog and left and rng.random() < 0.3:
            port, key, value = left.pop(rng.randrange(len(left)))
            events.append((port, (key, value, time), RowKind.DELETE))
            continue
        port, key = rng.randrange(2), rng.randrange(3)
        left.append((port, key, number))
        events.append((port, (key, number, time), RowKind.INSERT))
    return events


def run(stream: Any, rng: random.Random, events: list[Event], changelog: bool) -> Counter[Any]:
    """What comes out, less what is taken back; batches hold records of one side in a row."""
    harness, net = OperatorHarness.of(stream), Counter()

    def collect() -> None:
        for kind, *values in given_out(harness):
            net[tuple(values)] += 1 if kind == RowKind.INSERT else -1
        harness.output.elements.clear()

    for what, value in event_streams.steps(rng, [event[1][2] for event in events]):
        if what == "rows":
            some = events[value]
            while some:
                port = some[0][0]
                end = next((i for i, e in enumerate(some) if e[0] != port), len(some))
                kinds = [event[2] for event in some[:end]] if changelog else None
                records: Any = [event[1] for event in some[:end]]
                harness.push(batch(INT, port, records, kinds), port=port)
                harness.operator.validate()  # type: ignore[attr-defined]
                some = some[end:]
        elif what == "watermark":
            harness.watermark(value)
        else:
            collect()
            harness = split_and_merged(stream, harness.snapshot())
    collect()
    return net


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("ttls", TTLS, ids=str)
def test_rows_that_live_at_the_same_time_meet(how: str, ttls: Any) -> None:
    """Whichever side came first, however far the other was behind."""
    for seed in range(5):
        rng, model = random.Random(seed), EventModel(how, ttls)
        events = drawn(rng, changelog=False)
        for port, record, _ in events:
            model.sides[port].append([record, 0, 0])
        expected = Counter(row(how, (1, *one))[1:] for one in model.joined().elements())
        for _ in range(2):
            assert +run(join(INT, how, ttl=pair(ttls)), rng, events, False) == expected, seed
            rng.shuffle(events)
            events.sort(key=lambda event: event[0] == seed % 2)  # all of one side, then the other


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("ttls", TTLS, ids=str)
def test_changelogs_as_the_model(how: str, ttls: Any) -> None:
    """However records are cut into batches, whenever the watermark comes."""
    for seed in range(5):
        rng, model = random.Random(seed), EventModel(how, ttls)
        events, expected = drawn(rng, changelog=True), Counter[Any]()
        for port, record, kind in events:
            for sign, *sides in model.record(port, record, kind, record[2]):
                expected[tuple(row(how, (sign, *sides))[1:])] += sign
        found = run(join(INT, how, ttl=pair(ttls)), rng, events, True)
        assert (+found, -found) == (+expected, -expected), seed


@pytest.mark.parametrize("how", ["inner", "full", "anti"])
def test_what_is_held_does_not_grow(how: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(regular, "FIRST_COMPACTION", 500)
    harness = OperatorHarness.of(join(INT, how, ttl=pair((20, 60))))
    held = []
    for number in range(100):
        for port in (0, 1):
            records: Any = [(number * 100 + i, i, 2 * number) for i in range(100)]
            harness.push(batch(INT, port, records, None), port=port)
        harness.watermark(2 * number)
        operator: Any = harness.operator
        operator.validate()
        held.append([len(store) for store in operator._stores])
    assert max(left for left, _ in held) <= 3_000
    assert max(right for _, right in held) <= 8_000
    rows = {table.name: table.data.num_rows for table in harness.snapshot().keyed}
    assert max(rows.values()) <= 3_200
    harness.watermark(10_000)
    harness.watermark(10_001)
    assert all(not store.log.live for store in operator._stores)


def test_one_side_by_processing_time() -> None:
    """The right side's rows live for ever, the left side's for 10 ms."""
    harness = OperatorHarness.of(join(INT, "inner", ttl=(10, None)))
    harness.push(batch(INT, 0, [(1, 1, 0)], None), port=0)
    harness.push(batch(INT, 1, [(1, 2, 0)], None), port=1)
    harness.advance_processing_time(10)
    harness.push(batch(INT, 1, [(1, 3, 0)], None), port=1)
    harness.push(batch(INT, 0, [(1, 4, 0)], None), port=0)
    pairs = sorted((one.v, one.w) for one in harness.outputs())
    assert pairs == [(1, 2), (4, 2), (4, 3)]
    operator: Any = harness.operator
    assert [store.log.live for store in operator._stores] == [1, 2]


def test_both_sides_go_by_the_same_time() -> None:
    with pytest.raises(ConfigurationError, match="use the same for both"):
        join(INT, "inner", ttl=(10, by_event(10)))
    with pytest.raises(ConfigurationError, match="a pair"):
        join(INT, "inner", ttl=(10, 10, 10))


@pytest.mark.parametrize("before", [None, 20, (20, None)])
def test_births_of_another_time_are_refused(before: Any) -> None:
    old = OperatorHarness.of(join(INT, "inner", ttl=before))
    old.push(batch(INT, 0, [(1, 1, 0)], None), port=0)
    with pytest.raises(StateError, match=r"rows 'left' were stored .*event_born"):
        OperatorHarness.of(join(INT, "inner", ttl=by_event(20)), restored=old.snapshot())


def test_another_time_to_live_counts_from_the_same_births() -> None:
    old = OperatorHarness.of(join(INT, "inner", ttl=by_event(20)))
    old.push(batch(INT, 0, [(1, 1, 0)], None), port=0)
    stream = join(INT, "inner", ttl=(by_event(50), None))
    harness = OperatorHarness.of(stream, restored=old.snapshot())
    harness.push(batch(INT, 1, [(1, 2, 49), (1, 3, 50)], None), port=1)
    assert [one.w for one in harness.outputs()] == [2]


def test_records_need_event_times() -> None:
    harness = OperatorHarness.of(join(INT, "inner", ttl=by_event(20)))
    with pytest.raises(OperatorError, match="it forgets by event time, and a record has none"):
        harness.push(ColumnBatch(batch(INT, 0, [(1, 1, 0)], None).data), port=0)


def test_versions_live_for_so_long_after_their_own_time() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    left, right = (env.from_collection([]).key_by("k") for _ in range(2))
    types: Any = {
        name: pa.schema([("k", INT), (value, INT)])
        for name, value in (("left_type", "v"), ("right_type", "w"))
    }
    stream = left.temporal_join(right, "left", ttl=by_event(20), **types)
    for restored in (False, True):
        harness = OperatorHarness.of(stream)
        harness.push(batch(INT, 1, [(1, 7, 10), (1, 8, 40), (2, 9, 10)], None), port=1)
        records: Any = [(1, n, time) for n, time in enumerate((29, 30, 39, 40, 59, 60))]
        harness.push(batch(INT, 0, records, None), port=0)
        harness.watermark(35)
        found = [(one.v, one.w) for one in harness.outputs()]
        if restored:
            harness = OperatorHarness.of(stream, restored=harness.snapshot())
        else:
            harness.output.elements.clear()
        harness.watermark(100)
        found += [(one.v, one.w) for one in harness.outputs()]
        assert found == [(0, 7), (1, None), (2, None), (3, 8), (4, 8), (5, None)]


def test_versions_that_have_expired_are_forgotten(monkeypatch: Any) -> None:
    from strom.operators.joins import temporal

    monkeypatch.setattr(temporal, "FIRST_COMPACTION", 50)
    env = StreamExecutionEnvironment.get_execution_environment()
    left, right = (env.from_collection([]).key_by("k") for _ in range(2))
    harness = OperatorHarness.of(left.temporal_join(right, ttl=by_event(20)))
    for number in range(200):
        harness.push(batch(INT, 1, [(number, 1, number)], None), port=1)
        harness.watermark(number)
    operator: Any = harness.operator
    operator.validate()
    assert len(operator._versions) < 150


def test_a_cache_of_lookups_goes_by_processing_time() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    orders = env.from_collection([{"k": 1}])
    with pytest.raises(ConfigurationError, match="forgets by processing time alone"):
        orders.lookup_join(lambda keys: keys, left_on="k", right_on="k", cache_ttl=by_event(5))
