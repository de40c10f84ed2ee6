"""The watermark valve: scripted sequences, then random ones against a naive model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strom.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, StreamStatus, Watermark
from strom.core.errors import IllegalTransitionError
from strom.operators.time.valve import WatermarkValve

IDLE, ACTIVE = StreamStatus(False), StreamStatus(True)


def test_minimum_of_all_channels_never_goes_back():
    valve = WatermarkValve(2)
    assert valve.on_watermark(0, 10) == []
    assert valve.on_watermark(1, 5) == [Watermark(5)]
    assert valve.on_watermark(1, 3) == []
    assert valve.on_watermark(1, 20) == [Watermark(10)]
    valve.validate()


def test_an_idle_channel_holds_nobody_back():
    valve = WatermarkValve(2)
    valve.on_watermark(0, 10)
    assert valve.on_status(1, False) == [Watermark(10)]
    assert valve.on_watermark(1, 99) == []  # idle channels do not count
    assert valve.on_watermark(0, 12) == [Watermark(12)]
    valve.validate()


def test_all_idle_flushes_the_greatest_watermark_then_turns_idle():
    valve = WatermarkValve(2)
    valve.on_watermark(0, 10)
    valve.on_watermark(1, 4)
    assert valve.on_status(0, False) == []
    assert valve.on_status(1, False) == [Watermark(10), IDLE]
    assert valve.on_status(1, False) == []
    assert valve.on_status(0, True) == [ACTIVE]
    valve.validate()


def test_a_channel_back_from_idle_counts_once_it_has_caught_up():
    valve = WatermarkValve(2)
    valve.on_watermark(0, 10)
    valve.on_watermark(1, 10)
    # channel 1 sleeps while channel 0 goes on to 20
    valve.on_status(1, False)
    assert valve.on_watermark(0, 20) == [Watermark(20)]
    # it comes back at 10: behind, so channel 0 goes on alone
    assert valve.on_status(1, True) == []
    assert valve.on_watermark(1, 15) == []
    assert valve.on_watermark(0, 30) == [Watermark(30)]
    # it catches up at 35 and from then on holds back again
    assert valve.on_watermark(1, 35) == []
    assert valve.on_watermark(0, 40) == [Watermark(35)]
    valve.validate()


def test_the_end_of_a_channel_counts_as_the_greatest_watermark():
    valve = WatermarkValve(2)
    valve.on_watermark(0, 10)
    assert valve.on_end(1) == [Watermark(10)]
    assert valve.on_watermark(0, 11) == [Watermark(11)]
    assert valve.on_end(0) == [Watermark(MAX_TIMESTAMP)]
    valve.validate()
    with pytest.raises(IllegalTransitionError, match="channel 0 of 2"):
        valve.on_watermark(0, 12)


def test_an_idle_channel_that_ends_turns_active_first():
    valve = WatermarkValve(1)
    assert valve.on_status(0, False) == [IDLE]
    assert valve.on_end(0) == [ACTIVE, Watermark(MAX_TIMESTAMP)]


def test_an_aligned_channel_that_comes_back_among_channels_that_are_behind():
    valve = WatermarkValve(3)
    assert valve.on_status(1, False) == []
    valve.on_watermark(0, 10)
    assert valve.on_watermark(2, 20) == [Watermark(10)]
    assert valve.on_status(2, False) == []
    assert valve.on_status(1, True) == []  # behind, so it holds nobody back
    assert valve.on_status(0, False) == []
    assert valve.on_status(2, True) == [Watermark(20)]
    valve.validate()


EVENTS = st.lists(
    st.tuples(st.integers(0, 2), st.one_of(st.integers(0, 40), st.booleans(), st.just("end"))),
    max_size=60,
)


class Naive:
    """The rules written down again over whole lists, recomputed at each event."""

    def __init__(self, channels):
        self.marks = [MIN_TIMESTAMP] * channels
        self.active = [True] * channels
        self.behind = [False] * channels
        self.given = MIN_TIMESTAMP

    def event(self, index, event):
        was_active = any(self.active)
        if event == "end":
            self.active[index], self.marks[index] = True, MAX_TIMESTAMP
        elif isinstance(event, bool):
            if event and not self.active[index]:
                self.behind[index] = self.marks[index] < self.given
            self.active[index] = event
        elif self.active[index]:
            self.marks[index] = max(self.marks[index], event)
        if self.marks[index] >= self.given:
            self.behind[index] = False
        counted = [
            m for m, a, b in zip(self.marks, self.active, self.behind, strict=True) if a and not b
        ]
        out = []
        if any(self.active) and not was_active:
            out.append(ACTIVE)
        target = min(counted, default=self.given)
        if not any(self.active):
            target = max(self.marks)
        if target > self.given:
            self.given = target
            out.append(Watermark(target))
        if was_active and not any(self.active):
            out.append(IDLE)
        return out


@given(EVENTS)
def test_random_sequences_match_the_model(events):
    valve, naive = WatermarkValve(3), Naive(3)
    ended, last = set(), MIN_TIMESTAMP
    for index, event in events:
        if index in ended:
            continue
        if event == "end":
            ended.add(index)
            actions = valve.on_end(index)
        elif isinstance(event, bool):
            actions = valve.on_status(index, event)
        else:
            actions = valve.on_watermark(index, event)
        assert actions == naive.event(index, event)
        for action in actions:
            if isinstance(action, Watermark):
                assert action.timestamp > last
                last = action.timestamp
        valve.validate()
