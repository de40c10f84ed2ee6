"""Timers of sessions on rows: set once a batch, they fire what timers set at each merge would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.functions.user_functions import ProcessWindowFunction
from strom.api.specs.windows import ProcessWindow, WindowSpec
from strom.api.windows.session_windows import EventTimeSessionWindows
from strom.api.windows.triggers import EventTimeTrigger
from strom.core.keys import FunctionKey
from strom.operators.row_windows.operator import RowWindowOperator
from strom.testing.operator_harness import OperatorHarness


class AtEachRecord(EventTimeTrigger):
    """The same trigger, of a kind that the operator does not know: it is asked about each record
    and each merge."""


class Contents(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        yield key, context.window(), sorted(elements)


def harness_of(trigger: Any, lateness: int, restored: Any = None) -> OperatorHarness:
    spec = WindowSpec(
        FunctionKey(lambda record: record[0]),
        EventTimeSessionWindows.with_gap(5),
        ProcessWindow(Contents()),
        trigger,
        lateness,
    )
    return OperatorHarness(RowWindowOperator(spec), restored=restored)


BATCHES = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40)), min_size=1, max_size=8),
        st.integers(0, 40),
    ),
    max_size=6,
)


@settings(max_examples=examples(150), deadline=None)
@given(BATCHES, st.sampled_from([0, 3, 20]), st.integers(0, 6))
def test_sessions_fire_as_if_asked_at_each_record(
    batches: list[Any], lateness: int, restore_at: int
) -> None:
    known, asked = harness_of(None, lateness), harness_of(AtEachRecord(), lateness)
    watermark = -1
    for number, (records, time) in enumerate(batches):
        if number == restore_at:
            known = harness_of(None, lateness, known.snapshot())
        watermark = max(watermark, time)
        found = []
        for harness in (known, asked):
            harness.push([(k, t, number) for k, t in records], [t for _, t in records])
            fired = harness.take_outputs()
            harness.watermark(watermark)
            found.append((fired, sorted(harness.take_outputs(), key=repr)))
        assert found[0] == found[1]
        timers = [h.keyed_state.timers("__window_event_timers") for h in (known, asked)]
        assert len(timers[0]) <= len(timers[1]) + len(records) * 2
        timers[0].validate()
    known.watermark(1_000)
    asked.watermark(1_000)
    assert sorted(known.outputs(), key=repr) == sorted(asked.outputs(), key=repr)
    assert len(known.keyed_state.timers("__window_event_timers")) == 0


def test_a_session_that_grows_all_day_has_two_timers() -> None:
    harness = harness_of(None, 100)
    for start in range(0, 10_000, 100):
        stamps = range(start, start + 100)
        harness.push([("a", stamp) for stamp in stamps], list(stamps))
    assert len(harness.keyed_state.timers("__window_event_timers")) == 2
