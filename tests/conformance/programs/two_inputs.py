"""Functions of two inputs, broadcast state, unions. Which input comes first is chance, so no
result here depends on it."""

from __future__ import annotations

from strom.common import Duration, Types, WatermarkStrategy
from strom.common.watermark_strategy import TimestampAssigner
from strom.datastream import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    OutputTag,
)
from strom.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
LEFT = [("a", 1), ("b", 2), ("a", 3)]
RIGHT = [("a", 10), ("c", 30), ("b", 20)]
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
SIDE = OutputTag("side", Types.STRING())


class _Time(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


def _timed(env, data):
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    return env.from_collection(data, PAIR).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(_Time())
    )


def _both(env):
    return _timed(env, LEFT), _timed(env, RIGHT)


class _Map(CoMapFunction):
    def map1(self, value):
        return "left", value

    def map2(self, value):
        return None if value[0] == "c" else ("right", value)


class _FlatMap(CoFlatMapFunction):
    def flat_map1(self, value):
        yield value[1]
        yield value[1] * 100

    def flat_map2(self, value):
        return [value[1]] if value[0] != "c" else None


class _Process(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield "left", value, ctx.timestamp()

    def process_element2(self, value, ctx):
        yield "right", value, ctx.timestamp()
        yield SIDE, value[0]


def connected(env):
    left, right = _both(env)
    first = left.connect(right).map(_Map())
    left, right = _both(env)
    processed = left.connect(right).process(_Process())
    left, right = _both(env)
    return {
        "map": first,
        "flat_map": left.connect(right).flat_map(_FlatMap(), output_type=Types.LONG()),
        "process": processed,
        "side": processed.get_side_output(SIDE),
    }


class _Count(CoMapFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def _add(self):
        self.count.update((self.count.value() or 0) + 1)
        return self.count.value()

    def map1(self, value):
        return value[0], self._add()

    def map2(self, value):
        return value[0], self._add()


def keyed_map_of_two(env):
    left, right = _both(env)
    keyed = left.connect(right).key_by(lambda v: v[0], lambda v: v[0], key_type=Types.STRING())
    return keyed.map(_Count(), output_type=PAIR)


class _Join(KeyedCoProcessFunction):
    def open(self, runtime_context):
        pair = Types.TUPLE([Types.STRING(), Types.LONG()])
        self.left = runtime_context.get_list_state(ListStateDescriptor("left", pair))
        self.right = runtime_context.get_list_state(ListStateDescriptor("right", pair))

    def process_element1(self, value, ctx):
        self.left.add(value)
        ctx.timer_service().register_event_time_timer(500)
        yield SIDE, ctx.get_current_key()

    def process_element2(self, value, ctx):
        self.right.add(value)
        ctx.timer_service().register_event_time_timer(500)

    def on_timer(self, timestamp, ctx):
        yield (
            ctx.get_current_key(),
            timestamp,
            ctx.timestamp(),
            sorted(self.left.get()),
            sorted(self.right.get()),
            ctx.timer_service().current_watermark(),
        )


def keyed_process_of_two(env):
    left, right = _both(env)
    left = left.key_by(lambda v: v[0], key_type=Types.STRING())
    right = right.key_by(lambda v: v[0], key_type=Types.STRING())
    joined = left.connect(right).process(_Join())
    return {"main": joined, "side": joined.get_side_output(SIDE)}


class _Broadcast(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        state = ctx.get_broadcast_state(RULES)
        assert state.get("missing") is None
        yield "data", value, ctx.timestamp()

    def process_broadcast_element(self, value, ctx):
        rules = ctx.get_broadcast_state(RULES)
        rules.put(value[0], value[1])
        if len(list(rules.keys())) == 3:
            rules.remove("c")
            yield (
                "rules",
                sorted(rules.items()),
                sorted(rules.keys()),
                sorted(rules.values()),
                rules.contains("a"),
                "c" in rules,
                rules.is_empty(),
                ctx.timestamp(),
            )


def broadcast(env):
    left, right = _both(env)
    return left.connect(right.broadcast(RULES)).process(_Broadcast())


class _KeyedBroadcast(KeyedBroadcastProcessFunction):
    def open(self, runtime_context):
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element(self, value, ctx):
        self.sum.update((self.sum.value() or 0) + value[1])
        ctx.timer_service().register_event_time_timer(5000)

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value[0], value[1])

    def on_timer(self, timestamp, ctx):
        rule = ctx.get_broadcast_state(RULES).get(ctx.get_current_key())
        yield ctx.get_current_key(), self.sum.value(), rule, ctx.timestamp()


def keyed_broadcast(env):
    left, right = _both(env)
    keyed = left.key_by(lambda v: v[0], key_type=Types.STRING())
    return keyed.connect(right.broadcast(RULES)).process(_KeyedBroadcast())


def unions(env):
    left, right = _both(env)
    third = _timed(env, [("z", 0)])
    return left.union(right, third).map(lambda v: (v[0], v[1] + 1), output_type=PAIR)


ANY_ORDER = {
    "connected",
    "keyed_map_of_two",
    "keyed_process_of_two",
    "broadcast",
    "keyed_broadcast",
    "unions",
}
