"""Operators that keep rows whole, every way they may be run, with caches so small that no row stays
in one for longer than a batch, and snapshots in pieces of a few rows; against state in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from backends import TINY
from drawn_ways import assert_equivalent, fewer
from strom import sum_
from strom.core.config import JobConfig
from strom.state.rocks.kept import row_log, row_table
from strom.state.rocks.kept.row_cache import RowCache
from strom.testing.equivalence import (
    WATERMARK_INTERVAL,
    Ways,
    checkpointed,
    run_interrupted,
    run_local,
)
from strom.testing.probes import CollectProbe
from tables_kit import applied

WAYS = Ways(state=TINY, seeds=range(2), mix=4)
"""Checkpoints are files, and so incremental."""


def sides(readings: Any, env: Any) -> tuple[Any, Any]:
    rows = readings.columns(env)
    left = rows.filter(pl.col("v") % 7 < 2).select("k", "v").key_by("k")
    return left, rows.filter(pl.col("v") % 5 < 1).select("k", w="v").key_by("k")


def regular(readings: Any, env: Any) -> Any:
    left, right = sides(readings, env)
    return left.join(right, "inner", where=pl.col("v") < pl.col("w"))


def outer(readings: Any, env: Any) -> Any:
    left, right = sides(readings, env)
    return left.join(right, "full")


def of_changelogs(readings: Any, env: Any) -> Any:
    """Rows are taken back."""
    left, right = sides(readings, env)
    return left.aggregate(total=sum_("v")).key_by("k").join(right, "inner")


def temporal(readings: Any, env: Any) -> Any:
    left, right = sides(readings, env)
    return left.temporal_join(right, "left")


def interval(readings: Any, env: Any) -> Any:
    left, right = sides(readings, env)
    return left.interval_join(right, -40, 60, "full")


APPENDS: dict[str, Callable[[Any, Any], Any]] = {
    "regular": regular,
    "temporal": temporal,
    "interval": interval,
}
CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "outer": outer,
    "of changelogs": of_changelogs,
    "top": lambda readings, env: readings.columns(env).key_by("k").top_n(2, order_by="v"),
    "last": lambda readings, env: readings.columns(env).key_by("k").deduplicate("last"),
    "last of time": lambda readings, env: (
        readings.columns(env).key_by("k").deduplicate("last", order_by="ts")
    ),
    "top of changes": lambda readings, env: (
        readings.columns(env)
        .key_by("k")
        .deduplicate("last", order_by="ts")
        .key_by("g")
        .top_n(2, order_by="v")
    ),
}


@pytest.fixture(autouse=True)
def moved(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How many rows went to RocksDB, and came from there."""
    counts: Counter[str] = Counter()
    evict, stored = RowCache._evict, RowCache._stored

    def counted(self: Any, most: int) -> None:
        before = self.spilled
        evict(self, most)
        counts["left"] += self.spilled - before

    def read(self: Any, positions: Any, *rest: Any) -> Any:
        counts["came back"] += len(positions)
        return stored(self, positions, *rest)

    monkeypatch.setattr(RowCache, "_evict", counted)
    monkeypatch.setattr(RowCache, "_stored", read)
    monkeypatch.setattr(row_table, "PIECE", 3)
    monkeypatch.setattr(row_log, "PIECE", 3)
    yield counts
    assert counts["left"] > 0
    assert counts["came back"] > 0


@pytest.mark.parametrize("name", APPENDS)
def test_what_only_appends(readings: Any, name: str) -> None:
    ways = replace(WAYS, batch_size=2) if name == "interval" else WAYS
    assert_equivalent(lambda env: APPENDS[name](readings, env), None, ways)


@pytest.mark.parametrize("name", CHANGES)
def test_changelogs(readings: Any, name: str) -> None:
    """The last table of each."""

    def build(env: Any) -> Any:
        return CHANGES[name](readings, env)

    def probe() -> Any:
        return nullcontext(CollectProbe(build))

    expected = applied(run_local(build, JobConfig(auto_watermark_interval=WATERMARK_INTERVAL)))
    ways = fewer(WAYS)
    assert applied(run_local(build, checkpointed(ways, 2))) == expected
    for seed in ways.seeds:
        output, _ = run_interrupted(probe, ways, seed)
        assert applied(output) == expected, f"interrupted, seed {seed}"
