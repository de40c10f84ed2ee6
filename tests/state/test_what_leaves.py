"""Which states of which operators may lie in RocksDB: what `docs/state.md` says of windows with
triggers, and of groups with values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from strom.api.aggregates import collect, count, count_distinct, max_
from strom.api.functions.user_functions import ProcessWindowFunction
from strom.api.specs.tables import GroupAggregateSpec
from strom.api.specs.windows import BuiltinWindow, ProcessWindow, ReduceWindow, WindowSpec
from strom.api.windows.base import Trigger, TriggerResult
from strom.api.windows.continuous_triggers import ContinuousEventTimeTrigger
from strom.api.windows.evictors import CountEvictor
from strom.api.windows.session_windows import EventTimeSessionWindows
from strom.api.windows.time_windows import TumblingEventTimeWindows
from strom.api.windows.triggers import CountTrigger, PurgingTrigger
from strom.core.batch import ColumnBatch
from strom.core.config import JobConfig
from strom.core.keys import ColumnKey, FunctionKey
from strom.operators.window_choice import make_window_operator
from strom.state.descriptors import ReducingStateDescriptor
from strom.state.rocks.timers.timer_queue import ColdTimerQueue
from strom.testing.backends import spilling
from strom.testing.operator_harness import OperatorHarness

KEYS = 300


class Every(Trigger):
    """Fires at the window's end, and counts."""

    counted = ReducingStateDescriptor("counted", lambda a, b: a + b)

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        ctx.get_partitioned_state(self.counted).add(1)
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Any) -> None:
        ctx.merge_partitioned_state(self.counted)
        ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.get_partitioned_state(self.counted).clear()


class Number(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, len(list(elements))


COLUMN, OBJECT = ColumnKey(("k",)), FunctionKey(lambda row: row.k)
TUMBLING, SESSIONS = TumblingEventTimeWindows(10), EventTimeSessionWindows.with_gap(5)
BUILTIN = BuiltinWindow((("n", count()), ("d", count_distinct("v")), ("c", collect("v"))))
PROCESS, REDUCE = ProcessWindow(Number()), ReduceWindow(lambda a, b: b)
PURGING = PurgingTrigger.of(CountTrigger.of(3))
INTERVAL = ContinuousEventTimeTrigger(4)
GROUPS = (("n", count()), ("d", count_distinct("v")), ("m", max_("t")))
SPECS: dict[str, Any] = {
    "groups": GroupAggregateSpec(COLUMN, GROUPS),
    "process": WindowSpec(OBJECT, TUMBLING, PROCESS, Every()),
    "sessions": WindowSpec(OBJECT, SESSIONS, REDUCE, Every()),
    "evictor": WindowSpec(OBJECT, SESSIONS, PROCESS, Every(), evictor=CountEvictor.of(2)),
    "built in": WindowSpec(OBJECT, TUMBLING, BUILTIN, Every()),
    "built-in sessions": WindowSpec(COLUMN, SESSIONS, BUILTIN, Every()),
    "counting": WindowSpec(COLUMN, TUMBLING, BUILTIN, PURGING),
    "interval": WindowSpec(COLUMN, TUMBLING, BUILTIN, INTERVAL),
    "interval of objects": WindowSpec(OBJECT, TUMBLING, BUILTIN, INTERVAL),
}


def whole(entry: Any) -> Any:
    """The state of an entry, as the backend lists it."""
    if hasattr(entry, "state"):
        return entry.state
    return getattr(entry.spaces, "state", entry.spaces)


@pytest.mark.parametrize("name", SPECS)
def test_nothing_of_keys_that_are_not_in_use_is_in_memory(name: str) -> None:
    spec = SPECS[name]
    made = make_window_operator(spec) if isinstance(spec, WindowSpec) else spec
    harness = OperatorHarness(made, config=JobConfig(state=spilling(8)))
    for turn in range(3):
        keys = np.arange(KEYS * (turn % 2), KEYS * (turn % 2 + 1))
        texts = pa.array([f"text {key}" for key in keys])
        data = pa.record_batch({"k": keys, "v": keys % 7, "t": texts})
        harness.push(ColumnBatch(data, np.full(KEYS, turn)))
    harness.keyed_state.time.begin(1)
    state: Any = harness.keyed_state
    caches = [*state._cold, *state._kept]
    held = sum(one.used for one in caches if not isinstance(one, ColdTimerQueue))
    assert held < 16 << 10  # timers of one millisecond are together
    assert sum(one.spilled for one in caches) > 2 * KEYS
    known = {id(one) for one in caches}
    stays = {of for of, entry in state._entries.items() if id(whole(entry)) not in known}
    assert stays <= {"firing", "layout", "progress", "scratch", "__window_progress"}
    harness.watermark(100)
    assert len(harness.outputs()) >= (0 if name == "counting" else 2 * KEYS)
    harness.close()
