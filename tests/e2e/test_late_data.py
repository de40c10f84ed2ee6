"""Late records, late in every run.

Which records are late depends on where the watermark is when they arrive, and the watermark's way
through a job depends on its schedule. Here it does not: one source subtask (parallelism 1) reads
one lane, one record to a batch, and its generator sends a watermark right behind each record that
carries one. Record and watermark travel in one channel, nothing overtakes, so every window subtask
sees the same sequence, whatever the parallelism and the schedule:

    channel   a@10  b@20  wm=20   c@130  wm=130   d@15 (late)  e@90 (late)  f@140 ...
    window    [0,100): a b        fires at wm >= 99            neither d nor e can enter

Behind a restore the generator starts anew, but it only repeats what the records say; and the window
operator keeps its watermark in state, so that d is late also when a crash came just before it.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from drawn_ways import assert_equivalent
from strom import (
    EventTimeSessionWindows,
    OutputTag,
    ProcessWindowFunction,
    Row,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WatermarkGenerator,
    WatermarkStrategy,
    count,
    sum_,
)
from strom.testing.equivalence import Ways
from strom.testing.scripted import ScriptedSource

LATE = OutputTag("late")
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ts", pa.int64()), ("wm", pa.int64())])
NONE = -1


class Told(WatermarkGenerator):
    """The record says what the watermark is."""

    def on_event(self, value: Any, timestamp: int) -> int | None:
        return None if value.wm == NONE else value.wm


STRATEGY = WatermarkStrategy.for_generator(Told).with_timestamp_assigner("ts")


def script() -> list[Row]:
    """Rounds of 100 ms. Behind each round's watermark come records that are late for the round
    before (by 20 ms or less: allowed lateness 30 takes them), and some that are late by 200.

    Between any two late records there is one that moves the watermark: so each late record is a
    batch of its own, and a window that fires again fires once per late record in both operators.
    """
    rows: list[Row] = []
    for round_ in range(8):
        base = 1000 + 100 * round_
        for i in range(8):
            key = f"k{i % 4}"
            rows.append(Row("k", "v", "ts", "wm")(key, round_ * 10 + i, base + 10 * i, NONE))
        for i in range(4):
            wm = base + 105 + i
            rows.append(Row("k", "v", "ts", "wm")(f"k{i}", 1, base + 105 + i, wm))
            rows.append(Row("k", "v", "ts", "wm")(f"k{i}", 1000, base + 85 + i, NONE))
            rows.append(Row("k", "v", "ts", "wm")(f"k{i}", 1, base + 110, wm))
            if i % 2 and round_ > 1:
                rows.append(Row("k", "v", "ts", "wm")(f"k{i}", 5000, base - 200, NONE))
    return rows


def replay(rows: list[Row], size: int, slide: int, lateness: int) -> tuple[list[Any], list[Any]]:
    """Flink's rules, record by record: (firings of windows (key, start, count, sum), late rows)."""
    watermark = -(2**63)
    held: dict[tuple[str, int], list[int]] = {}
    fired: list[Any] = []
    late: list[Any] = []

    def fire(window: tuple[str, int]) -> None:
        fired.append((*window, len(held[window]), sum(held[window])))

    def advance(to: int) -> None:
        nonlocal watermark
        for window in sorted(held, key=lambda w: w[1]):
            if watermark < window[1] + size - 1 <= to:
                fire(window)
        watermark = max(watermark, to)

    for r in rows:
        starts = range(r.ts - r.ts % slide, r.ts - size, -slide)
        open_ = [s for s in starts if s + size - 1 + lateness > watermark]
        for start in open_:
            held.setdefault((r.k, start), []).append(r.v)
            if start + size - 1 <= watermark:
                fire((r.k, start))
        if not open_:
            late.append((r.k, r.v, r.ts))
        if r.wm != NONE:
            advance(r.wm)
    advance(2**63 - 1)
    return fired, late


class Firing(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        values = [r.v for r in elements]
        yield (key, context.window().start, len(values), sum(values))


def source(env: Any, columns: bool) -> Any:
    made = ScriptedSource([script()], SCHEMA if columns else None, at_once=1)
    return env.from_source(made, STRATEGY).set_parallelism(1)


def run(size: int, slide: int, lateness: int) -> None:
    fired, late = replay(script(), size, slide, lateness)
    assert late
    assert len(fired) > len({f[:2] for f in fired}) or not lateness

    def build(env: Any) -> Any:
        ends: dict[str, Any] = {}
        assigner = SlidingEventTimeWindows.of(size, slide)
        for name in ("columns", "rows"):
            keyed = source(env, name == "columns").key_by("k").window(assigner)
            windows = keyed.allowed_lateness(lateness).side_output_late_data(LATE)
            if name == "columns":
                found = windows.aggregate(n=count(), total=sum_("v"))
                firings = found.select("k", "window_start", "n", "total")
            else:
                firings = found = windows.process(Firing())
            ends[name] = firings
            ends[f"{name}, late"] = found.get_side_output(LATE).map(lambda r: (r.k, r.v, r.ts))
        return ends

    names = ("columns", "rows")
    expected = [(name, firing) for name in names for firing in fired]
    expected += [(f"{name}, late", r) for name in names for r in late]
    assert_equivalent(build, expected, Ways(seeds=range(2)))


def test_late_records_go_to_the_side_output() -> None:
    run(100, 100, 0)


def test_allowed_lateness_fires_again() -> None:
    run(100, 100, 30)


def test_sliding_windows_take_what_one_of_them_still_takes() -> None:
    """A record late for the first of its windows may be in time for the second."""
    run(100, 50, 0)


def test_sliding_windows_with_allowed_lateness() -> None:
    run(100, 50, 30)


def test_late_records_are_dropped_without_a_side_output() -> None:
    fired, _ = replay(script(), 100, 100, 0)

    def build(env: Any) -> Any:
        keyed = source(env, columns=False).key_by("k")
        return keyed.window(TumblingEventTimeWindows.of(100)).process(Firing())

    assert_equivalent(build, fired)


def test_a_late_record_that_extends_an_open_session_is_not_late() -> None:
    """gap 50, watermarks in brackets:

        k   @100 @140 [150] @120            @400 [420]  @210  [600]   @380 [700]
             |------- open until 190 ------|              |            joins [400, 450)? no:
                  120 is inside                      late: [210, 260)  that one fired at 449

    @210 opens [210, 260), which is over at watermark 420: late. @380 opens [380, 430), which
    touches [400, 450), but that session was cleared at 449 < 600: late as well.
    """
    rows = [
        Row("k", "v", "ts", "wm")("k", 1, 100, NONE),
        Row("k", "v", "ts", "wm")("k", 2, 140, 150),
        Row("k", "v", "ts", "wm")("k", 3, 120, NONE),
        Row("k", "v", "ts", "wm")("k", 4, 400, 420),
        Row("k", "v", "ts", "wm")("k", 5, 210, 600),
        Row("k", "v", "ts", "wm")("k", 6, 380, 700),
    ]
    others = [
        Row("k", "v", "ts", "wm")(f"o{i}", 0, 1000 + 100 * i, 1000 + 100 * i) for i in range(40)
    ]

    def build(env: Any) -> Any:
        made = ScriptedSource([rows + others], at_once=1)
        keyed = env.from_source(made, STRATEGY).set_parallelism(1).key_by("k")
        windows = keyed.window(EventTimeSessionWindows.with_gap(50)).side_output_late_data(LATE)
        found = windows.process(Firing())
        return {"main": found, "late": found.get_side_output(LATE).map(lambda r: r.v)}

    sessions = [("k", 100, 3, 6), ("k", 400, 1, 4), *((o.k, o.ts, 1, 0) for o in others)]
    assert_equivalent(build, [*(("main", s) for s in sessions), ("late", 5), ("late", 6)])
