"""A case's records in whole jobs, where chance decides which input comes first: functions whose
results do not depend on it, run every way, and with an error in one of their methods."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any

from ....api.functions.checkpointed import CheckpointedFunction
from ....api.functions.co_functions import KeyedBroadcastProcessFunction, KeyedCoProcessFunction
from ....api.streams.data_stream import DataStream, StreamExecutionEnvironment
from ....api.watermarks import WatermarkStrategy
from ....core.config import JobConfig
from ....core.row import Row
from ....state.descriptors import ListStateDescriptor
from ...equivalence import (
    WATERMARK_INTERVAL,
    Ways,
    checkpointed,
    run_crashing,
    run_interrupted,
    run_on_host,
)
from ...probes import CollectProbe, Probe
from ...scripted import ScriptedSource
from ..raising import ERRORS, NAME, Fault, outcome_of
from .cases import ConnectedCase, Record
from .functions import RULES

BUCKET = 16
PLACES = ("first", "second", "timer", "snapshot")
"""Which method raises; "snapshot" at any checkpoint, "first" and "second" are of the ports."""

Bucket = tuple[Any, int, tuple[int, ...], tuple[int, ...]]
"""Key, end, the records of port 0 that it holds, those of port 1, or the rules made by its end."""


def buckets(case: ConnectedCase) -> Counter[Bucket]:
    """The model: records by key and bucket of event time."""
    made: dict[tuple[Any, int], tuple[list[int], list[int]]] = {}
    rules = sorted((r.ts, r.n) for r in case.records if r.port == 1)
    for record in case.records:
        if record.port == 0 or not case.broadcast:
            held = made.setdefault((record.k, _end(record.ts)), ([], []))
            held[record.port].append(record.n)
    found: Counter[Bucket] = Counter()
    for (key, end), (first, second) in made.items():
        other = [n for ts, n in rules if ts <= end] if case.broadcast else second
        found[key, end, tuple(sorted(first)), tuple(sorted(other))] += 1
    return found


def job_ways(case: ConnectedCase) -> Iterator[tuple[str, Callable[[], Counter[Bucket] | None]]]:
    """The name of each way, and what runs it; None comes out if the job failed as it had to."""

    def build(env: StreamExecutionEnvironment) -> DataStream:
        return program(case, None, env)

    def probe() -> AbstractContextManager[Probe]:
        return nullcontext(CollectProbe(build))

    def raised(fault: Fault) -> Counter[Bucket] | None:
        after = outcome_of(fault, partial(program, case, fault), 1 + case.seed % 7)
        return None if after is None else Counter(after)

    kinds = {type(record.k) for record in case.records} - {type(None)}
    ways = Ways(
        seeds=[case.seed],
        batch_size=1 + case.seed % 7,
        insist=False,
        mixed_keys=len(kinds) > 1,
    )
    config, several = JobConfig(auto_watermark_interval=WATERMARK_INTERVAL), checkpointed(ways, 3)
    yield "alone", lambda: Counter(run_on_host(probe, config))
    yield "crashed", lambda: Counter(run_crashing(probe, several, ways, case.seed)[0])
    yield "interrupted", lambda: Counter(run_interrupted(probe, ways, case.seed)[0])
    for fault in draw_faults(case):
        yield f"raised, {fault}", partial(raised, fault)


def draw_faults(case: ConnectedCase) -> list[Fault]:
    """One that always raises and one that does once; none at a record that is not there."""
    rng = random.Random(f"faults of {case.seed}, connected")
    return [
        Fault(rng.choice(PLACES), rng.choice(ERRORS), rng.choice(case.records).n, once)
        for once in (False, True)
    ]


def program(
    case: ConnectedCase, fault: Fault | None, env: StreamExecutionEnvironment
) -> DataStream:
    lag = max((max(r.ts for r in case.records[: i + 1]) - r.ts for i, r in enumerate(case.records)))
    times = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(milliseconds=lag))
    times = times.with_timestamp_assigner(_time_of)
    lanes: list[list[list[Any]]] = [[[], []], [[]]] if case.broadcast else [[[], []], [[], []]]
    for record in case.records:
        mine = lanes[record.port]
        mine[record.n % len(mine)].append(Row("n", "k", "ts")(record.n, record.k, record.ts))
    first, second = (
        env.from_source(ScriptedSource(lanes[port]), times, f"port {port}") for port in (0, 1)
    )
    keyed = first.key_by(_key_of)
    if case.broadcast:
        stream = keyed.connect(second.broadcast(RULES)).process(RuledBuckets(fault))
    else:
        stream = keyed.connect(second.key_by(_key_of)).process(Buckets(fault))
    return stream.name(NAME)


class _Buckets(CheckpointedFunction):
    def __init__(self, fault: Fault | None) -> None:
        self.fault = fault

    def open(self, runtime_context: Any) -> None:
        self.held = runtime_context.get_list_state(ListStateDescriptor("held"))

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.snapshots = store.get_union_list_state(ListStateDescriptor("snapshots"))

    def snapshot_state(self, context: Any) -> None:
        if self.fault is not None:
            self._trip("snapshot", [self.fault.at])
        self.snapshots.update([context.get_checkpoint_id()])

    def _trip(self, place: str, numbers: list[int]) -> None:
        fault = self.fault
        if fault is not None and fault.place == place and fault.at in numbers:
            fault.trip(fault.at)

    def _keep(self, value: Any, port: int, ctx: Any) -> None:
        self._trip(PLACES[port], [value.n])
        self.held.add((port, value.n, _end(value.ts)))
        ctx.timer_service().register_event_time_timer(_end(value.ts))

    def _taken(self, end: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        held = list(self.held.get())
        due = [(port, n) for port, n, its in held if its == end]
        self._trip("timer", [n for _, n in due])
        self.held.update([one for one in held if one[2] != end])
        first, second = (tuple(sorted(n for p, n in due if p == port)) for port in (0, 1))
        return first, second


class Buckets(_Buckets, KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> None:
        self._keep(value, 0, ctx)

    def process_element2(self, value: Any, ctx: Any) -> None:
        self._keep(value, 1, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp, *self._taken(timestamp)


class RuledBuckets(_Buckets, KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> None:
        self._keep(value, 0, ctx)

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        self._trip("second", [value.n])
        rules = ctx.get_broadcast_state(RULES)
        rules[value.ts] = [*(rules[value.ts] or ()), value.n]

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        rules = ctx.get_broadcast_state(RULES).items()
        made = sorted([n for ts, numbers in rules if ts <= timestamp for n in numbers])
        yield ctx.get_current_key(), timestamp, self._taken(timestamp)[0], tuple(made)


def _end(ts: int) -> int:
    return ts // BUCKET * BUCKET + BUCKET - 1


def _key_of(row: Any) -> Any:
    return row.k


def _time_of(row: Any, _: int) -> int:
    return int(row.ts)


def reached(case: ConnectedCase, fault: Fault) -> bool:
    """Whether a record of the case brings a method to the fault."""
    if fault.place == "snapshot":
        return fault.once  # the others' jobs take no checkpoints
    record: Record = next(r for r in case.records if r.n == fault.at)
    keyed = record.port == 0 or not case.broadcast
    return keyed if fault.place == "timer" else record.port == PLACES.index(fault.place)
