"""Windows that keep their rows, every way they may be run, with caches so small that no row stays
in memory for longer than a batch, and snapshots in small pieces; against state in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pytest
from backends import TINY
from drawn_ways import assert_equivalent
from strom import SlidingEventTimeWindows, TumblingEventTimeWindows
from strom.operators.windows import compacting_buffer
from strom.state.rocks.kept import buffer_freeze
from strom.state.rocks.kept.row_buffer import ColdBufferState
from strom.testing.equivalence import Ways

WAYS = Ways(state=TINY, seeds=range(2), mix=4)
"""Checkpoints are files, and so incremental."""

SLIDING = SlidingEventTimeWindows.of(120, 40)


def sides(readings: Any, env: Any) -> tuple[Any, Any]:
    rows = readings.columns(env)
    left = rows.filter(pl.col("v") % 7 < 3).select("g", "v", "ts").key_by("g")
    right = rows.filter(pl.col("v") % 5 < 2).select("g", "k", w="v")
    return left, right.key_by("g")


def join(readings: Any, env: Any) -> Any:
    left, right = sides(readings, env)
    return left.window_join(right, TumblingEventTimeWindows.of(100))


def outer(readings: Any, env: Any) -> Any:
    left, right = sides(readings, env)
    return left.window_join(right, SLIDING, "full")


def of_lists(readings: Any, env: Any) -> Any:
    """Columns that other joins keep in memory."""
    rows = readings.columns(env)
    lists = rows.select("g", parts=pl.concat_list(pl.col("v"), pl.col("ts"))).key_by("g")
    joined = lists.window_join(sides(readings, env)[0], SLIDING, "left")
    return joined.map(lambda row: (row.g, tuple(row.parts), row.v, row.window_end))


def top_n(readings: Any, env: Any) -> Any:
    windows = readings.columns(env).key_by("g").window(SLIDING)
    return windows.top_n(2, [("v", "desc"), "ts", "k"], rank="place").map(tuple)


def top_n_of_objects(readings: Any, env: Any) -> Any:
    keyed = readings.columns(env).key_by(lambda row: ("of", row.g))
    best = keyed.window(TumblingEventTimeWindows.of(100)).top_n(2, ["v", "ts", "k"])
    return best.map(lambda row: (row.k, row.v, row.ts, row.window_end))


def extremes(readings: Any, env: Any) -> Any:
    return readings.columns(env).key_by("g").window(SLIDING).max_by("k", ties=True).map(tuple)


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "join": join,
    "outer": outer,
    "of lists": of_lists,
    "top n": top_n,
    "top n of objects": top_n_of_objects,
    "extremes": extremes,
}


@pytest.fixture(autouse=True)
def moved(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How many rows went to RocksDB, and came from there; and how often rows were thinned out."""
    counts: Counter[str] = Counter()
    save, rows, replace = ColdBufferState._save, ColdBufferState._rows, ColdBufferState.replace

    def saved(self: Any, piece: Any) -> None:
        save(self, piece)
        counts["left"] += piece.count

    def read(self: Any, piece: Any) -> Any:
        counts["came back"] += piece.rows is None
        return rows(self, piece)

    def replaced(self: Any, *rest: Any) -> None:
        counts["replaced"] += 1
        replace(self, *rest)

    monkeypatch.setattr(ColdBufferState, "_save", saved)
    monkeypatch.setattr(ColdBufferState, "_rows", read)
    monkeypatch.setattr(ColdBufferState, "replace", replaced)
    monkeypatch.setattr(buffer_freeze, "TABLE", 2000)
    monkeypatch.setattr(compacting_buffer, "FIRST_COMPACTION", 6)
    yield counts
    assert counts["left"] > 0
    assert counts["came back"] > 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_windows_that_keep_rows(readings: Any, moved: Counter[str], name: str) -> None:
    assert_equivalent(lambda env: PROGRAMS[name](readings, env), None, WAYS)
    assert (moved["replaced"] > 0) == (name not in ("join", "outer", "of lists"))
