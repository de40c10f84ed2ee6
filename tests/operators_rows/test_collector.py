"""What functions yield, sorted into main and side outputs with the right timestamps."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom import Types
from strom.api.functions.user_functions import KeyedProcessFunction, OutputTag, ProcessFunction
from strom.api.specs.records import KeyedProcessSpec, ProcessSpec
from strom.core.errors import TypeMismatchError
from strom.core.keys import FunctionKey
from strom.core.row import Row
from strom.testing.operator_harness import OperatorHarness

SIDE, OTHER = OutputTag("side"), OutputTag("other")


class Sub(OutputTag):
    """A tag of the user's own kind."""


class Yielding(ProcessFunction):
    """Yields the record's elements."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        return value


VALUES = st.one_of(
    st.integers(),
    st.just(()),
    st.tuples(st.integers()),
    st.tuples(st.integers(), st.integers()),
    st.builds(Row, a=st.integers()),
    st.tuples(st.sampled_from([SIDE, OTHER, Sub("side")]), st.integers()),
    st.tuples(st.just(SIDE)),
    st.tuples(st.just(SIDE), st.integers(), st.integers()),
    st.lists(st.just(SIDE), min_size=2, max_size=2),
)
GROUPS = st.lists(st.none() | st.lists(VALUES, max_size=3), min_size=1, max_size=8)


@settings(max_examples=examples(200), deadline=None)
@given(GROUPS, st.booleans())
def test_every_value_goes_where_it_belongs(groups: list[Any], stamped: bool) -> None:
    harness = OperatorHarness(ProcessSpec(Yielding()))
    harness.push(groups, timestamps=range(len(groups)) if stamped else None)
    main: list[Any] = []
    side: dict[str, list[Any]] = {"side": [], "other": []}
    for stamp, group in enumerate(groups):
        for value in group or ():
            if type(value) is tuple and len(value) == 2 and isinstance(value[0], OutputTag):
                side[value[0].tag_id].append((value[1], stamp))
            else:
                main.append((value, stamp if stamped else None))
    assert harness.stamped_outputs() == main
    for tag, expected in side.items():
        assert harness.side_outputs(tag) == [value for value, _ in expected]
        if stamped:
            stamps = [b.timestamps for b in harness.output.side.get(tag, ())]
            assert [t for part in stamps for t in part.tolist()] == [t for _, t in expected]


def test_none_and_then_two_is_not_one_each() -> None:
    harness = OperatorHarness(ProcessSpec(Yielding()))
    harness.push([[], ["a", "b"]], timestamps=[10, 20])
    assert harness.stamped_outputs() == [("a", 20), ("b", 20)]


def test_results_are_not_looked_into() -> None:
    """A result may have an index operator that changes it."""
    result: defaultdict[int, int] = defaultdict(int)
    harness = OperatorHarness(ProcessSpec(Yielding()))
    harness.push([[result, (1, 2)], [np.arange(3)]])
    assert not result


class Waiting(KeyedProcessFunction):
    """Sets one timer per record; the timer yields as often as its key says."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        count = ctx.get_current_key()
        return None if count == 0 else [(count, timestamp)] * count


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=20))
def test_results_of_timers_carry_the_timers_time(records: list[tuple[int, int]]) -> None:
    harness = OperatorHarness(KeyedProcessSpec(FunctionKey(lambda record: record[0]), Waiting()))
    harness.push(records, timestamps=[0] * len(records))
    harness.watermark(3)
    harness.watermark(9)
    timers = sorted(dict.fromkeys(records), key=lambda timer: timer[1])
    expected = [(timer, timer[1]) for timer in timers for _ in range(timer[0])]
    assert harness.stamped_outputs() == expected


def test_tags_of_one_id_are_one_side_output_in_its_order() -> None:
    harness = OperatorHarness(ProcessSpec(Yielding()))
    harness.push([[(Sub("side"), 0), (SIDE, 1), (Sub("side"), 2)]])
    assert harness.side_outputs("side") == [0, 1, 2]


def test_of_the_tags_of_a_side_output_one_may_declare_what_it_is() -> None:
    harness = OperatorHarness(ProcessSpec(Yielding()))
    harness.push([[(OutputTag("side", Types.DOUBLE()), 0), (SIDE, 1)]])
    assert list(map(repr, harness.side_outputs("side"))) == ["0.0", "1.0"]
    with pytest.raises(TypeMismatchError, match="'side' got records under tags of different types"):
        harness.push(
            [[(OutputTag("side", Types.DOUBLE()), 0), (OutputTag("side", Types.INT()), 1)]]
        )
