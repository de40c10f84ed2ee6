"""Functions of two inputs, run every way.

What comes first of the two inputs is chance, so no result here depends on it: timers close buckets
of event time when the watermark of both inputs has passed them, and joins meet whichever side is
first.
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from drawn_ways import assert_equivalent
from strom import (
    CheckpointedFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    RuntimeContext,
    TimeDomain,
)
from strom.testing.equivalence import Ways

BUCKET_MS = 100
BIG = OutputTag("big")
MODULUS = 3
"""Records with v % MODULUS == 0 are the first input, all others the second."""


def first_of(env: Any, readings: Any, kind: str) -> Any:
    stream = readings.stream(env, kind)
    if kind == "columns":
        return stream.filter(pl.col("v") % MODULUS == 0)
    return stream.filter(lambda r: r.v % MODULUS == 0)


def second_of(env: Any, readings: Any, kind: str) -> Any:
    stream = readings.stream(env, kind)
    if kind == "columns":
        return stream.filter(pl.col("v") % MODULUS != 0)
    return stream.filter(lambda r: r.v % MODULUS != 0)


class Buckets(KeyedCoProcessFunction):
    """Per key and bucket, how many records of the first input, and the sum of the second's."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.held = runtime_context.get_map_state(MapStateDescriptor("held"))

    def _add(self, ctx: Any, count: int, total: int) -> None:
        end = ctx.timestamp() // BUCKET_MS * BUCKET_MS + BUCKET_MS - 1
        before = self.held.get(end) or (0, 0)
        self.held.put(end, (before[0] + count, before[1] + total))
        ctx.timer_service().register_event_time_timer(end)

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        assert ctx.get_current_key() == value.k
        self._add(ctx, 1, 0)
        if value.v > 500:
            yield BIG, value.v

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        assert ctx.get_current_key() == value.k
        self._add(ctx, 0, value.v)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Any:
        assert ctx.time_domain() is TimeDomain.EVENT_TIME
        assert ctx.timestamp() == timestamp
        yield (ctx.get_current_key(), timestamp, *self.held.get(timestamp))
        self.held.remove(timestamp)


def test_both_inputs_of_a_key_share_state_and_timers(readings: Any, kind: str) -> None:
    def build(env: Any) -> Any:
        first, second = first_of(env, readings, kind), second_of(env, readings, kind)
        by = "k" if kind == "columns" else (lambda r: r.k)
        result = first.connect(second).key_by(by, lambda r: r.k).process(Buckets())
        return {"main": result, "side": result.get_side_output(BIG)}

    expected: dict[Any, list[int]] = {}
    for r in readings.all:
        end = r.ts // BUCKET_MS * BUCKET_MS + BUCKET_MS - 1
        counts = expected.setdefault((r.k, end), [0, 0])
        if r.v % MODULUS:
            counts[1] += r.v
        else:
            counts[0] += 1
    results = [("main", (*key, *counts)) for key, counts in expected.items()]
    results += [("side", r.v) for r in readings.all if r.v % MODULUS == 0 and r.v > 500]
    assert_equivalent(build, results)


class KindsOfKeys(KeyedCoProcessFunction):
    """How many records of each input a key has had, at the end."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.held = runtime_context.get_map_state(MapStateDescriptor("held"))

    def _add(self, side: int, ctx: Any) -> None:
        self.held.put(side, (self.held.get(side) or 0) + 1)
        ctx.timer_service().register_event_time_timer(1 << 40)

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        self._add(1, ctx)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        self._add(2, ctx)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Any:
        yield repr(ctx.get_current_key()), sorted(self.held.items())


def test_equal_keys_of_two_kinds_never_meet(readings: Any) -> None:
    """Wherever the exchange sends them."""

    def build(env: Any) -> Any:
        first, second = first_of(env, readings, "rows"), second_of(env, readings, "rows")
        return first.connect(second).key_by(lambda r: r.g, _other_kind).process(KindsOfKeys())

    expected: dict[str, dict[int, int]] = {}
    for r in readings.all:
        side = 2 if r.v % MODULUS else 1
        counts = expected.setdefault(repr(_other_kind(r) if side == 2 else r.g), {})
        counts[side] = counts.get(side, 0) + 1
    assert_equivalent(build, [(key, sorted(counts.items())) for key, counts in expected.items()])


def _other_kind(reading: Any) -> Any:
    return bool(reading.g) if reading.g in (0, 1) else float(reading.g)


class Meets(CoFlatMapFunction):
    """Pairs of equal keys, whichever comes first."""

    def open(self, runtime_context: RuntimeContext) -> None:
        states = [ListStateDescriptor("left"), ListStateDescriptor("right")]
        self.sides = [runtime_context.get_list_state(one) for one in states]

    def flat_map1(self, value: Any) -> Any:
        self.sides[0].add(value.v)
        return [(value.k, value.v, other) for other in self.sides[1].get()]

    def flat_map2(self, value: Any) -> Any:
        self.sides[1].add(value.v)
        for other in self.sides[0].get():
            yield value.k, other, value.v


def pairs(readings: Any) -> list[Any]:
    return [
        (a.k, a.v, b.v)
        for a in readings.all
        for b in readings.all
        if a.k == b.k and a.v % MODULUS == 0 and b.v % MODULUS
    ]


def test_flat_map_with_keyed_state(readings: Any) -> None:
    def build(env: Any) -> Any:
        first = first_of(env, readings, "columns").key_by("k")
        second = second_of(env, readings, "rows").key_by(lambda r: r.k)
        return first.connect(second).flat_map(Meets())

    assert_equivalent(build, pairs(readings), Ways(seeds=range(2)))


class JoinBatches:
    """The same pairs, batch by batch, with state under the keys of each batch."""

    def open(self, runtime_context: Any) -> None:
        self.context = runtime_context
        states = [ListStateDescriptor("left"), ListStateDescriptor("right")]
        self.sides = [runtime_context.get_list_state(one) for one in states]

    def map_batches1(self, batch: Any) -> Any:
        return self._meet(batch, 0)

    def map_batches2(self, batch: Any) -> Any:
        return self._meet(batch, 1)

    def _meet(self, batch: Any, mine: int) -> Any:
        found = []
        for (key,), rows in pl.DataFrame(batch).group_by("k"):
            self.context.set_current_key(key)
            values = rows["v"].to_list()
            self.sides[mine].add_all(values)
            others = list(self.sides[1 - mine].get())
            both = [(v, other) for v in values for other in others]
            found += [(key, *(pair if mine == 0 else pair[::-1])) for pair in both]
        if not found:
            return None
        return pa.table(list(zip(*found, strict=True)), names=["k", "a", "b"])


def test_map_batches_with_keyed_state(readings: Any) -> None:
    def build(env: Any) -> Any:
        first = first_of(env, readings, "columns").key_by("k")
        return first.connect(second_of(env, readings, "columns").key_by("k")).map_batches(
            JoinBatches
        )

    assert_equivalent(build, pairs(readings), Ways(seeds=range(2)))


class Tags(CoMapFunction):
    """None is no result."""

    def map1(self, value: Any) -> Any:
        return ("first", value.v) if value.v % 2 else None

    def map2(self, value: Any) -> Any:
        return "second", value.k


def test_map_without_keys(readings: Any, kind: str) -> None:
    def build(env: Any) -> Any:
        first, second = first_of(env, readings, kind), second_of(env, readings, kind)
        return first.connect(second).map(Tags())

    firsts = [r.v for r in readings.all if r.v % MODULUS == 0]
    expected: list[Any] = [("first", v) for v in firsts if v % 2]
    expected += [("second", r.k) for r in readings.all if r.v % MODULUS]
    assert_equivalent(build, expected, Ways(seeds=range(2)))


COUNTS = ListStateDescriptor("counts")


class Numbered(CoProcessFunction, CheckpointedFunction):
    """Keeps what it has seen in state of its subtask, and says so with the last of each lane."""

    def initialize_state(self, context: Any) -> None:
        self.kept = context.get_operator_state_store().get_union_list_state(COUNTS)
        self.restored = context.is_restored()
        self.seen = {one for part in self.kept.get() for one in part}

    def open(self, runtime_context: RuntimeContext) -> None:
        self.opened = runtime_context.get_index_of_this_subtask()

    def snapshot_state(self, context: Any) -> None:
        assert context.get_checkpoint_id() > 0
        self.kept.update([tuple(sorted(self.seen))])

    def process_element1(self, value: Any, ctx: Any) -> Any:
        return self._see(value, ctx)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        return self._see(value, ctx)

    def _see(self, value: Any, ctx: Any) -> Any:
        """Every record once: a record that was seen by the state of any subtask comes again only
        if the checkpoint is behind it."""
        assert ctx.timer_service().current_processing_time() > 0
        known = (value.k, value.ts, value.v)
        assert known not in self.seen, f"{known} is in state, and comes again"
        self.seen.add(known)
        yield known


def test_state_of_subtasks_is_of_the_same_moment_as_the_input(readings: Any) -> None:
    """The union of all subtasks' lists is what was read before the checkpoint, no more, no less."""

    def build(env: Any) -> Any:
        first, second = first_of(env, readings, "rows"), second_of(env, readings, "rows")
        return first.connect(second).process(Numbered())

    assert_equivalent(build, [(r.k, r.ts, r.v) for r in readings.all])


class Holds(KeyedCoProcessFunction, CheckpointedFunction):
    """Holds everything in a list of its subtask, and gives it when event time ends."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("held"))
        self.held = list(self.state.get())

    def snapshot_state(self, context: Any) -> None:
        self.state.update(self.held)

    def process_element1(self, value: Any, ctx: Any) -> Any:
        self.held.append((value.k, value.v))
        ctx.timer_service().register_event_time_timer(1 << 60)

    process_element2 = process_element1

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        held, self.held = self.held, []
        yield from held


def test_lists_of_subtasks_lose_nothing_and_double_nothing(readings: Any) -> None:
    """Dealt out over as many subtasks as there are after each restore."""

    def build(env: Any) -> Any:
        first, second = first_of(env, readings, "rows"), second_of(env, readings, "rows")
        return first.connect(second).key_by(lambda r: r.k, lambda r: r.k).process(Holds())

    assert_equivalent(build, [(r.k, r.v) for r in readings.all])


@pytest.mark.parametrize("batch_format", ["arrow", "polars", "pandas", "numpy"])
def test_formats_of_batches(readings: Any, batch_format: str) -> None:
    class Swap:
        def map_batches1(self, batch: Any) -> Any:
            return batch

        def map_batches2(self, batch: Any) -> Any:
            return None

    def build(env: Any) -> Any:
        first = first_of(env, readings, "columns").select("k", "v")
        second = second_of(env, readings, "columns")
        return first.connect(second).map_batches(Swap(), batch_format)

    expected = [(r.k, r.v) for r in readings.all if r.v % MODULUS == 0]
    assert_equivalent(build, expected, Ways(seeds=[0], insist=False))
