"""The mapping of growing windows to where their contents are."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from strom.api.windows.base import TimeWindow
from strom.api.windows.session_windows import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
)
from strom.operators.row_windows.merging_windows import Merge, MergingWindows

SESSIONS = EventTimeSessionWindows.with_gap(5)


def test_contents_stay_where_they_are_while_a_window_grows():
    windows = MergingWindows(SESSIONS, None)
    assert windows.add(TimeWindow(0, 5)) == (TimeWindow(0, 5), [])
    grown, merges = windows.add(TimeWindow(3, 8))
    assert grown == TimeWindow(0, 8)
    assert merges == [Merge((0, 8), ((0, 5),), (0, 5), ())]
    assert windows.state_of((0, 8)) == (0, 5)
    windows.validate()


def test_a_bridge_folds_one_window_into_the_other():
    windows = MergingWindows(SESSIONS, (((0, 5), (0, 5)), ((10, 15), (10, 15))))
    assert not windows.changed
    merged, merges = windows.add(TimeWindow(5, 10))
    assert merged == TimeWindow(0, 15)
    assert merges == [Merge((0, 15), ((0, 5), (10, 15)), (0, 5), ((10, 15),))]
    assert windows.pairs() == (((0, 15), (0, 5)),)
    windows.validate()


def test_a_window_inside_another_changes_nothing():
    windows = MergingWindows(SESSIONS, (((0, 15), (0, 5)),))
    assert windows.add(TimeWindow(4, 9)) == (TimeWindow(0, 15), [])
    assert windows.add(TimeWindow(0, 15)) == (TimeWindow(0, 15), [])
    assert not windows.changed
    windows.retire((0, 15))
    assert windows.changed
    assert windows.pairs() == ()


@dataclass(frozen=True)
class ByCallback(DynamicEventTimeSessionWindows):
    """Sessions that take the general path, through the assigner's own `merge_windows`."""

    def merge_windows(self, windows, callback):
        super().merge_windows(windows, callback)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8)), max_size=25))
def test_both_paths_agree(spans):
    fast, general = MergingWindows(SESSIONS, None), MergingWindows(ByCallback(len), None)
    for start, length in spans:
        window = TimeWindow(start, start + length)
        assert fast.add(window) == general.add(window)
        assert sorted(fast.pairs()) == sorted(general.pairs())
        fast.validate()
        general.validate()
