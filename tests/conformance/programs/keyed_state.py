"""Keyed state of the five kinds, its expiry, and functions that keep it."""

from __future__ import annotations

from strom.common import Row, Types
from strom.datastream import (
    AggregateFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ReduceFunction,
)
from strom.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
PAIRS = [("a", 1), ("b", 2), ("a", 3), ("a", 4), ("b", 5), ("c", 6), ("a", 7)]


def _keyed(env):
    return env.from_collection(PAIRS, PAIR).key_by(lambda v: v[0], key_type=Types.STRING())


class _Values(KeyedProcessFunction):
    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.INT()))
        self.any = runtime_context.get_state(
            ValueStateDescriptor("any", Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(self, value, ctx):
        before = self.last.value()
        if value[1] == 4:
            self.last.clear()
        else:
            self.last.update(value[1])
        seen = self.any.value()
        self.any.update({**(seen or {}), value[1]: value})
        yield ctx.get_current_key(), before, self.last.value(), seen


def value_state(env):
    return _keyed(env).process(_Values())


class _Lists(KeyedProcessFunction):
    def open(self, runtime_context):
        self.all = runtime_context.get_list_state(ListStateDescriptor("all", Types.INT()))

    def process_element(self, value, ctx):
        before = list(self.all.get())
        self.all.add(value[1])
        if value[1] == 3:
            self.all.add_all([30, 31])
        if value[1] == 4:
            self.all.update([40])
        if value[1] == 5:
            self.all.clear()
        yield value[0], before, list(self.all.get()), list(self.all)


def list_state(env):
    return _keyed(env).process(_Lists())


class _Maps(KeyedProcessFunction):
    def open(self, runtime_context):
        descriptor = MapStateDescriptor("map", Types.INT(), Types.STRING())
        self.map = runtime_context.get_map_state(descriptor)

    def process_element(self, value, ctx):
        n = value[1]
        before = (self.map.is_empty(), self.map.get(n), self.map.contains(1), n in self.map)
        self.map.put(n, f"v{n}")
        if n == 3:
            self.map.put_all([(30, "x"), (31, "y")])  # a dict: an error in PyFlink
        if n == 4:
            self.map.remove(30)
            self.map.remove(1000)
            del self.map[31]
        if n == 5:
            self.map[50] = "z"
            self.map.clear()
        self.map[n + 100] = "last"
        after = (
            sorted(self.map.items()),
            sorted(self.map.keys()),
            sorted(self.map.values()),
            sorted(self.map),
            self.map[n + 100],
        )
        yield value[0], before, after


def map_state(env):
    return _keyed(env).process(_Maps())


class _Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1] if accumulator[1] else None

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class _Folding(KeyedProcessFunction):
    def open(self, runtime_context):
        self.sum = runtime_context.get_reducing_state(
            ReducingStateDescriptor("sum", lambda a, b: a + b, Types.INT())
        )
        self.mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", _Mean(), Types.TUPLE([Types.INT(), Types.INT()]))
        )

    def process_element(self, value, ctx):
        before = self.sum.get(), self.mean.get()
        self.sum.add(value[1])
        self.mean.add(value[1])
        yield value[0], before, self.sum.get(), self.mean.get()
        if value[1] == 4:
            self.sum.clear()
            self.mean.clear()


def reducing_and_aggregating_state(env):
    return _keyed(env).process(_Folding())


class _Running(MapFunction):
    def open(self, runtime_context):
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.INT()))

    def map(self, value):
        self.sum.update((self.sum.value() or 0) + value[1])
        return value[0], self.sum.value()


def keyed_map_with_state(env):
    return _keyed(env).map(_Running(), output_type=PAIR)


class _EverySecond(FlatMapFunction):
    def open(self, runtime_context):
        pair = Types.TUPLE([Types.STRING(), Types.INT()])
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", pair))

    def flat_map(self, value):
        self.seen.add(value)
        held = list(self.seen.get())
        if len(held) == 2:
            self.seen.clear()
            yield from held


def keyed_flat_map_with_state(env):
    return _keyed(env).flat_map(_EverySecond(), output_type=PAIR)


class _FirstOfKey(FilterFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.BOOLEAN()))

    def filter(self, value):
        first = self.seen.value() is None
        self.seen.update(True)
        return first


def keyed_filter_with_state(env):
    return _keyed(env).filter(_FirstOfKey())


class _Longest(ReduceFunction):
    def open(self, runtime_context):
        self.tasks = runtime_context.get_number_of_parallel_subtasks()

    def reduce(self, value1, value2):
        return value1[0], value1[1] * 10 * self.tasks + value2[1]


def reduce_with_a_class(env):
    return _keyed(env).reduce(_Longest())


def reduce_rows(env):
    row = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.LONG()])
    rows = [Row(k=k, v=v) for k, v in PAIRS]
    keyed = env.from_collection(rows, row).key_by(lambda r: r.k, key_type=Types.STRING())
    summed = keyed.reduce(lambda a, b: Row(k=a.k, v=a.v + b.v))
    return summed.map(lambda r: (r.k, r["v"], r))


def _rolling(env):
    data = [("a", 3, 1.5), ("a", 1, 2.0), ("b", 5, 0.5), ("a", 1, 3.25), ("a", 3, -1.0)]
    typed = Types.TUPLE([Types.STRING(), Types.INT(), Types.DOUBLE()])
    return env.from_collection(data, typed).key_by(lambda v: v[0], key_type=Types.STRING())


def rolling_sum(env):
    return {"int": _rolling(env).sum(1), "double": _rolling(env).sum(2)}


def rolling_min_and_max(env):
    return {"min": _rolling(env).min(1), "max": _rolling(env).max(1)}


def rolling_min_by_and_max_by(env):
    return {"min_by": _rolling(env).min_by(1), "max_by": _rolling(env).max_by(1)}


def rolling_of_rows_by_name(env):
    row = Types.ROW_NAMED(["k", "v", "w"], [Types.STRING(), Types.INT(), Types.INT()])
    data = [Row("a", 3, 1), Row("a", 1, 2), Row("b", 5, 3), Row("a", 1, 4)]

    def keyed():
        return env.from_collection(data, row).key_by(lambda r: r[0], key_type=Types.STRING())

    return {
        "sum": keyed().sum("v"),
        "min": keyed().min("v"),
        "min_by": keyed().min_by("v"),
        "max_by": keyed().max_by("v"),
    }


def rolling_of_numbers(env):
    def keyed():
        return env.from_collection([4, 1, 7, 2], Types.INT()).key_by(lambda v: v % 2)

    return {"sum": keyed().sum(), "max": keyed().max(), "min_by": keyed().min_by()}


ANY_ORDER: set[str] = set()
