"""Timestamps out of columns and records, watermark generators, the watermark operator."""

from __future__ import annotations

import datetime as dt
from datetime import timedelta

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strom.api.specs.records import WatermarkSpec
from strom.api.watermarks import TimestampAssigner, WatermarkGenerator, WatermarkStrategy
from strom.core.batch import ColumnBatch, ObjectBatch, Row
from strom.core.config import JobConfig
from strom.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, StreamStatus, Watermark
from strom.core.errors import ConfigurationError, TypeMismatchError
from strom.operators.time.event_time import extract_timestamps, make_tracker
from strom.testing.operator_harness import OperatorHarness


def batch_of(values, kind):
    return ColumnBatch(pa.RecordBatch.from_arrays([pa.array(values, type=kind)], names=["ts"]))


@pytest.mark.parametrize(
    ("kind", "per_milli"),
    [("s", 0.001), ("ms", 1), ("us", 1_000), ("ns", 1_000_000)],
)
@pytest.mark.parametrize("zone", [None, "Europe/Stockholm"])
def test_timestamp_columns_of_any_unit_round_down(kind, per_milli, zone):
    ticks = [-1_500_001, -1, 0, 1, 1_999_999]
    want = [int(t * 1000) if kind == "s" else t // per_milli for t in ticks]
    batch = batch_of(ticks, pa.timestamp(kind, tz=zone))
    assert extract_timestamps(batch, "ts").tolist() == want


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.uint16()])
def test_integers_are_milliseconds(kind):
    assert extract_timestamps(batch_of([0, 7], kind), "ts").tolist() == [0, 7]


def test_expressions_and_slices():
    batch = batch_of([1, 2, 3], pa.int64()).slice(1, 2)
    assert extract_timestamps(batch, "ts").tolist() == [2, 3]
    assert extract_timestamps(batch, pl.col("ts") * 1000).tolist() == [2000, 3000]
    stamps = batch_of([1_500, 2_999], pa.timestamp("us"))
    assert extract_timestamps(stamps, pl.col("ts")).tolist() == [1, 2]


def test_fields_of_objects():
    when = dt.datetime(1970, 1, 1, 0, 0, 1, 999, tzinfo=dt.UTC)
    for record in ({"ts": 1000}, Row(ts=1000), {"ts": when}):
        assert extract_timestamps(ObjectBatch([record]), "ts").tolist() == [1000]
    assert extract_timestamps(ObjectBatch([Row(count=5)]), "count").tolist() == [5]


class FromPrevious(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value + record_timestamp


def test_functions_see_the_previous_timestamp():
    stamped = ObjectBatch([1, 2], np.array([10, 20]))
    assert extract_timestamps(stamped, FromPrevious()).tolist() == [11, 22]
    none = extract_timestamps(ObjectBatch([1]), lambda value, ts: ts == MIN_TIMESTAMP and 5)
    assert none.tolist() == [5]


@pytest.mark.parametrize(
    ("batch", "assigner", "message"),
    [
        (batch_of([1, None], pa.int64()), "ts", "column 'ts': record 1 .* no timestamp"),
        (batch_of([1], pa.int64()), "time", "no timestamp column 'time'"),
        (batch_of([1.5], pa.float64()), "ts", "column 'ts' has type double"),
        (batch_of([2**62], pa.timestamp("s")), "ts", "exceeds int64"),
        (batch_of([2**64 - 1], pa.uint64()), "ts", "exceeds int64"),
        (ObjectBatch([{"a": 1}]), "ts", "no timestamp field 'ts'"),
        (ObjectBatch([1]), lambda value, ts: None, "record 0 .* no timestamp"),
        (ObjectBatch([1]), lambda value, ts: "x", "has type string"),
    ],
)
def test_bad_timestamps_are_named(batch, assigner, message):
    with pytest.raises(TypeMismatchError, match=message):
        extract_timestamps(batch, assigner)


@given(st.lists(st.lists(st.integers(-(10**12), 10**12), min_size=1), min_size=1))
def test_bounded_out_of_orderness_equals_the_definition(batches):
    tracker = make_tracker(
        WatermarkStrategy.for_bounded_out_of_orderness(7).with_timestamp_assigner(lambda v, _: v)
    )
    assert tracker.periodic() == MIN_TIMESTAMP
    seen = []
    for values in batches:
        batch = tracker.stamp(ObjectBatch(values))
        assert batch.timestamps.tolist() == values
        assert tracker.on_batch(batch) is None
        seen += values
        assert tracker.periodic() == max(seen) - 7 - 1


def test_records_without_timestamp_leave_time_where_it_is():
    tracker = make_tracker(WatermarkStrategy.for_monotonous_timestamps())
    assert tracker.on_batch(ObjectBatch([1])) is None
    assert tracker.periodic() == MIN_TIMESTAMP


class Markers(WatermarkGenerator):
    """A record ("mark", w) is a watermark; periodically, the number of records so far."""

    def __init__(self):
        self.seen = 0

    def on_event(self, value, timestamp):
        self.seen += 1
        return value[1] if value[0] == "mark" else None

    def on_periodic(self):
        return self.seen


def test_custom_generator():
    tracker = make_tracker(WatermarkStrategy.for_generator(Markers))
    assert tracker.on_batch(ObjectBatch([("mark", 50), ("mark", 40), ("x", 0)])) == 50
    assert tracker.on_batch(ObjectBatch([("mark", 45)])) is None  # never back
    assert tracker.periodic() == 50
    assert make_tracker(WatermarkStrategy.for_generator(Markers)).periodic() == 0


def test_durations():
    with pytest.raises(ConfigurationError, match="max_out_of_orderness"):
        WatermarkStrategy.for_bounded_out_of_orderness("1 s")
    with pytest.raises(ConfigurationError, match=">= 0"):
        WatermarkStrategy.for_bounded_out_of_orderness(-1)
    with pytest.raises(ConfigurationError, match="idle timeout"):
        WatermarkStrategy.no_watermarks().with_idleness(0)


STRATEGY = WatermarkStrategy.for_bounded_out_of_orderness(
    timedelta(milliseconds=5)
).with_timestamp_assigner(lambda value, _: value)
CONFIG = JobConfig(auto_watermark_interval=timedelta(milliseconds=200))


def test_operator_emits_periodically_and_only_what_advanced():
    harness = OperatorHarness(WatermarkSpec(STRATEGY), config=CONFIG)
    harness.push([10, 30, 20])
    assert harness.controls() == []
    harness.advance_processing_time(200)
    assert harness.controls() == [Watermark(24)]
    harness.advance_processing_time(1000)
    assert harness.controls() == [Watermark(24)]
    assert harness.stamped_outputs() == [(10, 10), (30, 30), (20, 20)]


def test_operator_drops_watermarks_from_upstream_but_the_last():
    harness = OperatorHarness(WatermarkSpec(STRATEGY), config=CONFIG)
    harness.watermark(1000)
    harness.status(False)
    assert harness.controls() == []
    harness.watermark(MAX_TIMESTAMP)
    harness.advance_processing_time(1000)
    assert harness.controls() == [Watermark(MAX_TIMESTAMP)]


def test_punctuated_watermarks_follow_their_batch():
    strategy = WatermarkStrategy.for_generator(Markers)
    harness = OperatorHarness(WatermarkSpec(strategy), config=CONFIG)
    harness.push([("mark", 7), ("x", 0)])
    batch, mark = harness.output.elements
    assert (len(batch), mark) == (2, Watermark(7))


def test_idleness():
    #  0      100     200       500     600             1100
    #  open   record            wm 200  idle at 600     active again, then idle 500 ms later
    strategy = STRATEGY.with_idleness(timedelta(milliseconds=500))
    harness = OperatorHarness(WatermarkSpec(strategy), config=CONFIG)
    harness.advance_processing_time(100)
    harness.push([10])
    harness.advance_processing_time(599)
    assert harness.controls() == [Watermark(4)]
    harness.advance_processing_time(600)
    assert harness.controls()[1:] == [StreamStatus(False)]
    harness.advance_processing_time(1100)
    harness.push([20])
    assert harness.controls()[2:] == [StreamStatus(True)]
    harness.advance_processing_time(1600)
    assert harness.controls()[3:] == [Watermark(14), StreamStatus(False)]
    harness.watermark(MAX_TIMESTAMP)
    assert harness.controls()[5:] == [StreamStatus(True), Watermark(MAX_TIMESTAMP)]
