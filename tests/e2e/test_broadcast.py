"""Functions with broadcast state, run every way.

Rules are numbered, and each that comes changes the state in a way that shows what it was before:
`count` and `chain` say which rules were seen, and in which order. So a state that lost one, had one
twice, or differs between subtasks is noticed by whoever reads it next.
"""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from drawn_ways import assert_equivalent
from strom import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    MapStateDescriptor,
    OutputTag,
    Row,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from strom.connectors.datagen import DataGenSource
from strom.core.config import JobConfig
from strom.testing.equivalence import Ways, checkpointed, run_crashing, run_local
from strom.testing.probes import CollectProbe
from strom.testing.scripted import Pause, ScriptedSource

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
LIMITS = MapStateDescriptor("limits")
STRATEGY = WatermarkStrategy.for_bounded_out_of_orderness(60).with_timestamp_assigner(
    lambda r, _: r.ts
)
BUCKET_MS = 100
SEEN = OutputTag("seen")

RULE = [Row(n=n, ts=1000 + 20 * n) for n in range(30)]


def step(chain: int, rule: Any) -> int:
    return (chain * 31 + rule.n) % 1_000_003


CHAINS = [0]
for _rule in RULE:
    CHAINS.append(step(CHAINS[-1], _rule))


def rules(env: Any, lanes: int = 1) -> Any:
    source = ScriptedSource([RULE[i::lanes] for i in range(lanes)])
    return env.from_source(source, STRATEGY, "rules")


def take(value: Any, ctx: Any) -> None:
    state = ctx.get_broadcast_state(RULES)
    state["chain"] = step(state["chain"] or 0, value)
    state.put("count", (state.get("count") or 0) + 1)
    limits = ctx.get_broadcast_state(LIMITS)
    if value.n % 3 == 2:
        limits.remove(value.n - 1)
    limits[value.n] = {"ts": value.ts, "tags": [value.n]}


def check(ctx: Any) -> int:
    """What is in state is what the first rules make of it, in their order; how many they are."""
    state = ctx.get_broadcast_state(RULES)
    count = state["count"] or 0
    assert (state["chain"] or 0) == CHAINS[count], (count, state["chain"])
    limits = ctx.get_broadcast_state(LIMITS)
    kept = [n for n in range(count) if n % 3 != 1 or n + 1 >= count]
    assert list(limits) == list(limits.keys()) == kept
    assert dict(limits.items()) == {n: {"ts": RULE[n].ts, "tags": [n]} for n in kept}
    assert limits.is_empty() == (not kept)
    assert ("count" in state) == state.contains("count")
    return count


class Checks(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Any:
        assert ctx.timestamp() == value.ts
        assert ctx.current_processing_time() > 0
        assert ctx.current_watermark() < value.ts
        check(ctx)
        for limit in ctx.get_broadcast_state(LIMITS).values():
            limit["tags"].append("mine")  # of a copy: no other reader sees it
        yield value.v

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> Any:
        assert check(ctx) == value.n
        take(value, ctx)


def test_broadcast_state_without_keys(readings: Any, kind: str) -> None:
    def build(env: Any) -> Any:
        broadcast = rules(env).broadcast(RULES, LIMITS)
        return readings.stream(env, kind).connect(broadcast).process(Checks())

    assert_equivalent(build, [r.v for r in readings.all], Ways(seeds=range(2)))


class Buckets(KeyedBroadcastProcessFunction):
    """Sums of a key and bucket, and how many of the rules were made before its end: all of these
    are here when the watermark of both inputs has passed it; later ones may be, too."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sums = runtime_context.get_map_state(MapStateDescriptor("sums"))
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        check(ctx)
        end = value.ts // BUCKET_MS * BUCKET_MS + BUCKET_MS - 1
        self.sums.put(end, (self.sums.get(end) or 0) + value.v)
        self.last.update(max(self.last.value() or 0, end))
        ctx.timer_service().register_event_time_timer(end)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        assert check(ctx) == value.n
        take(value, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        assert check(ctx) >= sum(rule.ts <= timestamp for rule in RULE)
        limits = ctx.get_broadcast_state(LIMITS).items()
        made = sum(1 for n, limit in limits if n % 3 == 0 and limit["ts"] <= timestamp)
        yield ctx.get_current_key(), timestamp, self.sums.get(timestamp), made
        self.sums.remove(timestamp)


def test_broadcast_state_with_keys(readings: Any, kind: str) -> None:
    def build(env: Any) -> Any:
        broadcast = rules(env).broadcast(RULES, LIMITS)
        return readings.stream(env, kind).key_by("k").connect(broadcast).process(Buckets())

    sums: dict[Any, int] = {}
    for r in readings.all:
        end = r.ts // BUCKET_MS * BUCKET_MS + BUCKET_MS - 1
        sums[r.k, end] = sums.get((r.k, end), 0) + r.v
    made = {end: sum(r.n % 3 == 0 and r.ts <= end for r in RULE) for _, end in sums}
    assert_equivalent(
        build,
        [(k, end, total, made[end]) for (k, end), total in sums.items()],
        Ways(seeds=range(2)),
    )


class Applies(KeyedBroadcastProcessFunction):
    """Rules add to what every key has; keys are made known by records with a time before."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(TOTAL)

    def process_element(self, value: Any, ctx: Any) -> Any:
        known = ctx.get_broadcast_state(RULES)["total"] or 0
        if self.total.value() is None:
            self.total.update(known)
            ctx.timer_service().register_event_time_timer(1 << 60)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        state = ctx.get_broadcast_state(RULES)
        state["total"] = (state["total"] or 0) + value.n
        ctx.apply_to_keyed_state(
            TOTAL, lambda key, total: total.update(total.value() + value.n) if key else None
        )

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), self.total.value()


TOTAL = ValueStateDescriptor("total")


def test_elements_change_the_state_of_all_keys(readings: Any) -> None:
    """Whether a key was there before a rule or came behind it, it has them all in the end."""

    def build(env: Any) -> Any:
        broadcast = rules(env).broadcast(RULES)
        return readings.rows(env).key_by(lambda r: r.k).connect(broadcast).process(Applies())

    total = sum(rule.n for rule in RULE)
    assert_equivalent(build, [(k, total) for k in {r.k for r in readings.all}])


class Shows(BroadcastProcessFunction):
    """What state every prefix of the elements made, in each subtask."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        return None

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        take(value, ctx)
        state = ctx.get_broadcast_state(RULES)
        yield state["count"], state["chain"]


@pytest.mark.parametrize("seed", [0, 2])
def test_a_parallel_input_comes_in_one_order_to_all_subtasks(readings: Any, seed: int) -> None:
    """In the simulator, whose tasks take turns by chance."""

    def build(env: Any) -> Any:
        many = rules(env, lanes=6).set_parallelism(3).union(rules(env).filter(lambda r: False))
        return readings.rows(env).connect(many.broadcast(RULES, LIMITS)).process(Shows())

    ways = Ways(batch_size=2)
    probe = CollectProbe(build)
    shown, _ = run_crashing(lambda: nullcontext(probe), checkpointed(ways, 4), ways, seed)
    assert len(shown) == 4 * len(RULE)
    assert len(set(shown)) == len(RULE)


class Grows(BroadcastProcessFunction):
    """Changes the elements that it is given."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        return None

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        value["seen"].append(1)
        ctx.get_broadcast_state(RULES)["last"] = len(value["seen"])
        yield len(value["seen"])


def test_an_element_is_every_subtasks_own(readings: Any) -> None:
    """Also where all of them are in one process."""

    def build(env: Any) -> Any:
        elements = env.from_collection([{"seen": []} for _ in range(5)])
        return readings.rows(env).connect(elements.broadcast(RULES)).process(Grows())

    assert run_local(build, JobConfig(parallelism=3)) == [1] * 15


def test_one_stream_is_broadcast_to_several(readings: Any) -> None:
    """Through one subtask all the same."""

    def build(env: Any) -> Any:
        broadcast = rules(env).broadcast(RULES, LIMITS)
        first = readings.rows(env).connect(broadcast).process(Checks())
        second = readings.columns(env).key_by("k").connect(broadcast).process(Buckets())
        return {"first": first, "second": second.map(lambda row: row[0])}

    keys = {(r.k, r.ts // BUCKET_MS) for r in readings.all}
    expected = [("first", r.v) for r in readings.all] + [("second", k) for k, _ in keys]
    assert_equivalent(build, expected, Ways(seeds=range(1), insist=False))
    env = StreamExecutionEnvironment.get_execution_environment()
    probe = build(env)
    for stream in probe.values():
        stream.print()
    names = [node.name for node in env.get_stream_graph().nodes]
    assert names.count("Broadcast") == 1


class Counts(BroadcastProcessFunction):
    """Each record comes out; state is what the elements so far make it."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        assert sum(ctx.get_broadcast_state(RULES).values()) >= 0
        yield value.v

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        rules = ctx.get_broadcast_state(RULES)
        rules[value.k] = (rules[value.k] or 0) + value.v


def test_a_stream_is_connected_with_its_own_broadcast(readings: Any) -> None:
    """Neither input waits for the other for ever, however small the buffers."""

    def build(env: Any) -> Any:
        stream = readings.rows(env)
        return stream.connect(stream.broadcast(RULES)).process(Counts())

    assert_equivalent(build, [r.v for r in readings.all], Ways(seeds=range(2)))


class AtItsTime(KeyedBroadcastProcessFunction):
    """A timer per record."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(value.ts)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        return None

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp


def silent(env: Any) -> Any:
    """Never ends, and says nothing of time."""
    return env.from_source(DataGenSource(lambda start, n: list(range(start, start + n)), rate=100))


def paused(env: Any) -> Any:
    """A rule, and then nothing for hours."""
    source = ScriptedSource([[RULE[0], Pause(10**8)]])
    return env.from_source(source, STRATEGY.with_idleness(timedelta(milliseconds=20)))


@pytest.mark.parametrize("control", [silent, paused])
def test_an_input_where_nothing_comes_holds_back_nobodys_time(readings: Any, control: Any) -> None:
    """Of a program with such a control stream, timers fire all the same."""
    env = StreamExecutionEnvironment.get_execution_environment(JobConfig(parallelism=2))
    broadcast = control(env).broadcast(RULES)
    stream = readings.rows(env).key_by(lambda r: r.k).connect(broadcast).process(AtItsTime())
    times = sorted(r.ts for r in readings.all)
    timers = len({(r.k, r.ts) for r in readings.all})
    found = stream.execute_and_collect(limit=timers)
    assert sorted(set(found)) == sorted(set(times))
