"""Recorded operators, run again, emit what they emitted in the job since the checkpoint: the same
elements in the same order, whatever crashed before and whatever barriers overtook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import fsspec
import polars as pl
import pytest
from amounts import seeds
from strom import (
    BroadcastProcessFunction,
    Duration,
    KeyedProcessFunction,
    MapStateDescriptor,
    ProcessWindowFunction,
    RuntimeContext,
    StateTtlConfig,
    Time,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    ValueStateDescriptor,
)
from strom.api.aggregates import count, sum_
from strom.checkpoint.recordings import RecordedSubtask
from strom.checkpoint.storage import open_storage
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.config import JobConfig
from strom.core.record_config import RecordConfig
from strom.engine.hosts.simulator import Simulation, SimulationPlan
from strom.engine.task.recorded_operator import RecordedOperator
from strom.testing import Ways, replay
from strom.testing.backends import state_of
from strom.testing.equivalence import checkpointed, copying, cramped
from strom.testing.probes import CollectProbe

SEEDS = (2, 1, 0, 3, 4, 5, 6, 7)
"""Of the first two checkpoints overtake, in one state is in RocksDB."""

RECORDED = ("timers", "windows", "columns", "panes", "join", "rules", "clocked")


class Timers(KeyedProcessFunction):
    """State that expires by the clock, timers of both times, and the clock in what is emitted."""

    def open(self, runtime_context: RuntimeContext) -> None:
        ttl = StateTtlConfig.new_builder(Time.milliseconds(40)).build()
        sums = ValueStateDescriptor("sum")
        sums.enable_time_to_live(ttl)
        self.sum = runtime_context.get_state(sums)
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        service = ctx.timer_service()
        self.sum.update((self.sum.value() or 0) + value.v)
        self.seen.update((self.seen.value() or 0) + 1)
        service.register_event_time_timer(value.ts + 37)
        service.register_processing_time_timer(service.current_processing_time() + value.v % 20)
        yield value.k, self.sum.value(), service.current_watermark()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        domain = str(ctx.time_domain())
        now = ctx.timer_service().current_processing_time()
        yield ctx.get_current_key(), domain, timestamp, now, self.sum.value(), self.seen.value()


class Elements(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        values = [one.v for one in elements]
        yield key, context.window().start, values, context.current_processing_time()


class Rules(BroadcastProcessFunction):
    RULES = MapStateDescriptor("rules")

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value.v, ctx.get_broadcast_state(self.RULES).get(value.g)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(self.RULES).put(value.g, value.v)
        yield ()


def pipelines(readings: Any) -> Any:
    def build(env: Any) -> dict[str, Any]:
        rows, columns = readings.rows(env), readings.columns(env)
        few = columns.filter(pl.col("v") % 5 < 2)
        tumbling = TumblingEventTimeWindows.of(Duration.of_millis(70))
        windowed = rows.key_by(lambda r: r.g).window(tumbling).allowed_lateness(20)
        aggregated = columns.key_by("g").window(tumbling).aggregate(n=count(), total=sum_("v"))
        left = few.select("k", "v").key_by("k")
        right = columns.filter(pl.col("v") % 5 > 3).select("k", w="v").key_by("k")
        clocked = TumblingProcessingTimeWindows.of(Duration.of_millis(5))
        ends = {
            "timers": rows.key_by(lambda r: r.k).process(Timers()),
            "windows": windowed.process(Elements()),
            "columns": aggregated,
            "panes": columns.key_by("g").window(clocked).aggregate(n=count(), total=sum_("v")),
            "join": left.join(right, where=pl.col("v") < pl.col("w")),
            "rules": rows.connect(few.broadcast(Rules.RULES)).process(Rules()),
            "clocked": rows.key_by(lambda r: r.g).window(clocked).process(Elements()),
        }
        return {name: end.uid(name) for name, end in ends.items()}

    return build


def canonical(element: Any) -> Any:
    if isinstance(element, (ColumnBatch, ObjectBatch)):
        stamps = None if element.timestamps is None else element.timestamps.tolist()
        return type(element).__name__, list(map(repr, element.rows())), stamps
    return repr(element)


def begun_with(heard: list[Any], checkpoint: int) -> bool:
    """Whether the recording goes on from a checkpoint that was taken in its attempt."""
    return ("mark", checkpoint) in heard


def settled(elements: list[Any]) -> list[Any]:
    """A restored operator holds keys in the order of their groups, and so fires them: records are
    in order between two watermarks, of whatever batches."""
    found: list[Any] = []
    rows: list[Any] = []
    for one in [*elements, None]:
        if isinstance(one, tuple):
            rows += zip(one[1], one[2] or [None] * len(one[1]), strict=True)
        else:
            found += [sorted(map(repr, rows)), one]
            rows = []
    return found


class Tap:
    """What operators emitted in the job, with a mark where each of their states was taken."""

    def __init__(self) -> None:
        self.said: dict[tuple[str, int, int], list[Any]] = {}

    def put_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        setup, begin = RecordedOperator.setup, RecordedOperator._begin
        said = self.said

        def tapped(operator: Any, ctx: Any, out: Any) -> None:
            heard = said.setdefault((ctx.name, ctx.subtask, ctx.attempt), [])
            setup(operator, ctx, Tapped(out, heard))

        def marked(operator: Any, checkpoint_id: int) -> None:
            begin(operator, checkpoint_id)
            ctx = operator.ctx
            said[ctx.name, ctx.subtask, ctx.attempt].append(("mark", checkpoint_id))

        monkeypatch.setattr(RecordedOperator, "setup", tapped)
        monkeypatch.setattr(RecordedOperator, "_begin", marked)

    def since(self, name: str, subtask: int, attempt: int, checkpoint: int) -> list[Any]:
        heard = self.said[name, subtask, attempt]
        mark = ("mark", checkpoint)
        behind = heard[heard.index(mark) + 1 :] if mark in heard else heard
        return [one for one in behind if one[0] != "mark"]


class Tapped:
    """An output, as `ChainNode` takes it: watermarks that do not advance are none."""

    def __init__(self, out: Any, heard: list[Any]) -> None:
        self._out, self._heard = out, heard

    def emit(self, batch: Any) -> None:
        if len(batch):
            self._heard.append(canonical(batch))
        self._out.emit(batch)

    def emit_side(self, tag: str, batch: Any) -> None:
        self._out.emit_side(tag, batch)

    def emit_watermark(self, timestamp: int) -> None:
        if timestamp > self._out.metrics.watermark:
            self._heard.append(f"Watermark(timestamp={timestamp})")
        self._out.emit_watermark(timestamp)

    def emit_status(self, active: bool) -> None:
        self._heard.append(f"StreamStatus(active={active})")
        self._out.emit_status(active)

    def emit_latency_marker(self, marker: Any) -> None:
        self._out.emit_latency_marker(marker)


def test_emits_the_same(readings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    short = replace(readings, lanes=[lane[:30] for lane in readings.lanes])
    proven: Counter[str] = Counter()
    for seed in (SEEDS[n] for n in seeds(len(SEEDS) * 2) if n < len(SEEDS)):
        tap = Tap()
        with monkeypatch.context() as patched:
            tap.put_in(patched)
            proven += replayed_alike(short, patched, tap, seed)
    assert all(proven[name] for name in RECORDED), proven


def replayed_alike(
    readings: Any, monkeypatch: pytest.MonkeyPatch, tap: Tap, seed: int
) -> Counter[str]:
    """How many replays proved something, by operator: from a checkpoint on, with results."""
    monkeypatch.setattr(RecordedSubtask, "begin", lambda self, number: self.attempt(number))
    root = f"memory://recorded-{seed}"
    ways = Ways(checkpoint_interval=timedelta(milliseconds=5))
    config: JobConfig = cramped(copying(checkpointed(ways, 2), ways, seed), seed)
    record = RecordConfig(f"{root}/recorded", RECORDED)
    config = replace(config, state=state_of(seed), record=record)
    plan = SimulationPlan(seed=seed, crashes=1, crash_after_checkpoints=2, crash_window=800)
    try:
        graph = CollectProbe(pipelines(readings)).graph(config)
        # as files they are incremental, and RocksDB's are in them as they are
        location = f"{root}/checkpoints" if seed % 3 else None
        result = Simulation(graph, plan, open_storage(location, f"job-{seed}")).run()
        assert result.outcome is not None
        assert result.outcome.error is None, result.outcome.error
        proven: Counter[str] = Counter()
        for name, number, attempt in tap.said:
            found = replay(f"{root}/recorded", name, subtask=number, attempt=attempt)
            assert found.error is None, (name, found.fault, found.error)
            assert not found.notes, (name, found.notes)
            expected = tap.since(name, number, attempt, found.checkpoint)
            emitted = [canonical(one) for one in found.elements]
            if begun_with(tap.said[name, number, attempt], found.checkpoint):
                emitted, expected = settled(emitted), settled(expected)
            assert emitted == expected, (seed, name, number, attempt, found.checkpoint)
            proven[found.operator] += bool(found.records and found.checkpoint and expected)
        return proven
    finally:
        filesystem = fsspec.filesystem("memory")
        filesystem.rm(f"/recorded-{seed}", recursive=True)
