"""Tables per key as pipelines, run every way: whole, checkpointed, crashed, rescaled.

Which updates a changelog has depends on how records fall into batches, so outputs are compared
after applying them: +I and +U add a row, -U and -D take one away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from itertools import chain
from typing import Any

import pytest
from amounts import pairs
from drawn_ways import assert_equivalent, fewer
from strom import StreamExecutionEnvironment, count, max_, mean, min_, sum_
from strom.api.aggregates import count_distinct
from strom.core.config import JobConfig
from strom.testing.equivalence import (
    WATERMARK_INTERVAL,
    Ways,
    checkpointed,
    run_interrupted,
    run_local,
)
from strom.testing.probes import CollectProbe
from tables_kit import applied

Build = Callable[[StreamExecutionEnvironment], Any]
Row = tuple[Any, ...]
WAYS = Ways(seeds=range(2), batch_size=5)
LONG = timedelta(hours=1)
"""A time to live that nothing outlives; it is stored all the same."""


def assert_tables(build: Build, expected: Counter[Row]) -> None:
    """`assert_equivalent` for changelogs."""

    def probe() -> Any:
        return nullcontext(CollectProbe(build))

    ways = fewer(WAYS)
    whole = run_local(build, JobConfig(auto_watermark_interval=WATERMARK_INTERVAL))
    assert applied(whole) == expected
    assert applied(run_local(build, checkpointed(ways, 2))) == expected
    midway = 0
    for seed in chain(ways.seeds, ways.spares()):
        if seed not in ways.seeds and midway:
            break
        output, times = run_interrupted(probe, ways, seed)
        assert applied(output) == expected, f"interrupted, seed {seed}"
        midway += times.crashes + times.stops
    assert midway, "nothing was interrupted midway"


def grouped(rows: list[Any], *names: str) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for r in rows:
        groups.setdefault(tuple(getattr(r, name) for name in names), []).append(r)
    return groups


def test_group_aggregates(readings: Any, kind: str) -> None:
    def build(env: StreamExecutionEnvironment) -> Any:
        keyed = readings.stream(env, kind).key_by("g")
        return keyed.aggregate(n=count(), s=sum_("x"), top=max_("v"), d=count_distinct("k"))

    want = Counter(
        (*g, len(rs), sum(r.x for r in rs), max(r.v for r in rs), len({r.k for r in rs}))
        for g, rs in grouped(readings.all, "g").items()
    )
    assert_tables(build, want)


def test_two_levels(readings: Any) -> None:
    """The second level retracts; its minimum may go away and must be found anew."""

    def build(env: StreamExecutionEnvironment) -> Any:
        best = readings.columns(env).key_by("k", "g").aggregate(top=max_("v"))
        return best.key_by("g").aggregate(avg=mean("top"), low=min_("top"), n=count())

    tops: dict[Any, list[int]] = {}
    for (_, g), rs in grouped(readings.all, "k", "g").items():
        tops.setdefault(g, []).append(max(r.v for r in rs))
    want = Counter((g, sum(t) / len(t), min(t), len(t)) for g, t in tops.items())
    assert_tables(build, want)


def test_top_n_with_ranks(readings: Any, kind: str) -> None:
    def build(env: StreamExecutionEnvironment) -> Any:
        keyed = readings.stream(env, kind).key_by("g")
        ttl = LONG if kind == "columns" else None
        return keyed.top_n(3, [("v", "desc"), "k", "ts"], rank="place", ttl=ttl)

    want: Counter[Row] = Counter()
    for rs in grouped(readings.all, "g").values():
        best = sorted(rs, key=lambda r: (-r.v, r.k, r.ts))[:3]
        want.update((*r, place) for place, r in enumerate(best, 1))
    assert_tables(build, want)


def test_top_n_of_a_changelog(readings: Any) -> None:
    def build(env: StreamExecutionEnvironment) -> Any:
        sums = readings.columns(env).key_by("k", "g").aggregate(s=sum_("v"))
        return sums.key_by("g").top_n(2, [("s", "desc"), "k"])

    sums: dict[Any, list[Row]] = {}
    for (k, g), rs in grouped(readings.all, "k", "g").items():
        sums.setdefault(g, []).append((k, g, sum(r.v for r in rs)))
    want = Counter(
        row for rows in sums.values() for row in sorted(rows, key=lambda r: (-r[2], r[0]))[:2]
    )
    assert_tables(build, want)


@pytest.mark.parametrize(
    ("keep", "order_by", "ttl"),
    [
        ("first", None, None),
        ("first", None, LONG),
        ("first", "ts", None),
        ("last", None, LONG),
        ("last", "ts", None),
        ("last", "ts", LONG),
    ],
)
def test_deduplicate(readings: Any, keep: str, order_by: str | None, ttl: Any) -> None:
    def build(env: StreamExecutionEnvironment) -> Any:
        return readings.columns(env).key_by("k").deduplicate(keep, order_by, ttl=ttl)

    sign = 1 if keep == "first" else -1
    want: Counter[Row] = Counter()
    for rs in grouped(readings.all, "k").values():
        rs = rs if keep == "first" else rs[::-1]
        want[tuple(min(rs, key=lambda r: sign * r.ts) if order_by else rs[0])] += 1
    if keep == "first" and order_by is None:
        assert_equivalent(build, want.elements(), WAYS)
    else:
        assert_tables(build, want)


FRAMES: dict[str, dict[str, Any]] = {"rows": {"rows": 3}, "range": {"range": 100}, "all": {}}


ORDERED = [*((frame, "event_time") for frame in FRAMES), ("rows", "arrival"), ("all", "arrival")]


@pytest.mark.parametrize(("ordered", "kind"), pairs(ORDERED, ["rows", "columns"]), ids=str)
def test_over(readings: Any, kind: str, ordered: tuple[str, str]) -> None:
    """Ranges in order of arrival go by processing time: only with a virtual clock (test_over)."""
    frame, order = ordered

    def build(env: StreamExecutionEnvironment) -> Any:
        keyed = readings.stream(env, kind).key_by("k")
        over = keyed.over(**FRAMES[frame], order=order)
        return over.aggregate(n=count(), s=sum_("x"), top=max_("v"))

    want = []
    for rs in grouped(readings.all, "k").values():
        rs = rs if order == "arrival" else sorted(rs, key=lambda r: r.ts)
        for at, r in enumerate(rs):
            frames = {
                "rows": rs[max(0, at - 2) : at + 1],
                "range": [o for o in rs if r.ts - 100 <= o.ts <= r.ts],
                "all": rs[: at + 1],
            }
            mine = frames[frame]
            want.append((*r, len(mine), sum(o.x for o in mine), max(o.v for o in mine)))
    assert_equivalent(build, want, WAYS)
