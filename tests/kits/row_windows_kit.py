"""Row windows over records (key, timestamp), and functions that say what a window holds."""

from __future__ import annotations

from strom.api.functions.user_functions import (
    AggregateFunction,
    OutputTag,
    ProcessWindowFunction,
    WindowFunction,
)
from strom.api.specs.windows import ProcessWindow, WindowSpec
from strom.core.keys import FunctionKey

KEY = FunctionKey(lambda record: record[0])
LATE = OutputTag("late")


class Listing(ProcessWindowFunction):
    """(key, start, end, values)"""

    def process(self, key, context, elements):
        window = context.window()
        yield key, window.start, window.end, [value for _, value in elements]


def listing(assigner, **options):
    return WindowSpec(KEY, assigner, ProcessWindow(Listing()), **options)


def push(harness, *events):
    """events: (key, timestamp); the value is the timestamp."""
    harness.push(list(events), timestamps=[ts for _, ts in events])


def state_names(harness):
    """Names of keyed states that hold something, but for the operator's progress."""
    names = {table.name for table in harness.snapshot().keyed if table.data.num_rows}
    return names - {"__window_progress", "progress"}


class Values(WindowFunction):
    def apply(self, key, window, inputs):
        return [[value for _, value in inputs]]


class Averages(AggregateFunction):
    def create_accumulator(self):
        return [0, 0]

    def add(self, value, accumulator):
        accumulator[0] += value[1]
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return [a[0] + b[0], a[1] + b[1]]


class WithKey(ProcessWindowFunction):
    def process(self, key, context, elements):
        (element,) = elements
        yield key, element
        yield OutputTag("side"), element
