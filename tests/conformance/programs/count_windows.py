"""Windows of numbers of records, and the one window of everything."""

from __future__ import annotations

from strom.common import Types
from strom.datastream import ProcessWindowFunction, WindowFunction
from strom.datastream.functions import ProcessAllWindowFunction
from strom.datastream.window import (
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    CountWindow,
    GlobalWindow,
    GlobalWindows,
    PurgingTrigger,
)

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
DATA = [("ab"[n % 3 == 2], n) for n in range(14)]


def _keyed(env):
    return env.from_collection(DATA, PAIR).key_by(lambda v: v[0], key_type=Types.STRING())


class _Show(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, [n for _, n in elements], context.window().max_timestamp()


class _Ids(WindowFunction):
    def apply(self, key, window: CountWindow, inputs):
        yield key, window.id, [n for _, n in inputs]


def _sum(a, b):
    return a[0], a[1] + b[1]


def count_windows(env):
    return {
        "apply": _keyed(env).count_window(3).apply(_Ids()),
        "reduce": _keyed(env).count_window(3).reduce(_sum),
        "process": _keyed(env).count_window(2).process(_Show()),
    }


def sliding_count_windows(env):
    return {
        "2 of 4": _keyed(env).count_window(4, 2).apply(_Ids()),
        "3 of 2": _keyed(env).count_window(2, 3).apply(_Ids()),
        "reduce": _keyed(env).count_window(4, 2).reduce(_sum),
        "assigner": _keyed(env).window(CountSlidingWindowAssigner.of(3, 1)).apply(_Ids()),
    }


class _All(ProcessAllWindowFunction):
    def process(self, context, elements):
        yield [n for _, n in elements]


def count_windows_of_all_records(env):
    stream = env.from_collection(DATA, PAIR)
    return {
        "tumbling": stream.window_all(CountTumblingWindowAssigner.of(5)).process(_All()),
        "sliding": env.from_collection(DATA, PAIR)
        .window_all(CountSlidingWindowAssigner.of(4, 3))
        .process(_All()),
    }


class _Global(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield (
            key,
            isinstance(window, GlobalWindow),
            window.max_timestamp(),
            [n for _, n in elements],
        )


def global_windows(env):
    def everything():
        return _keyed(env).window(GlobalWindows.create())

    return {
        "never": everything().process(_Global()),
        "count": everything().trigger(CountTrigger.of(4)).process(_Global()),
        "purged": everything().trigger(PurgingTrigger.of(CountTrigger.of(4))).process(_Global()),
    }


ANY_ORDER: set[str] = set()
