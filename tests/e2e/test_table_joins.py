"""Regular, temporal, broadcast and lookup joins, run every way.

What comes between depends on which side is faster, so changelogs are compared when they have been
materialised: each row as often as it is there at the end.
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from drawn_ways import assert_equivalent
from strom import KeyedProcessFunction, RuntimeContext, ValueStateDescriptor
from strom.core.row_kind import RowKind
from strom.testing.equivalence import Ways

AT_THE_END = 1 << 61


class Materialised(KeyedProcessFunction):
    """Keyed by the whole row: emits it at the end, as often as it is left."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        takes = value[-1] in (RowKind.UPDATE_BEFORE, RowKind.DELETE)
        self.count.update((self.count.value() or 0) + (-1 if takes else 1))
        ctx.timer_service().register_event_time_timer(AT_THE_END)
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        count = self.count.value()
        assert count >= 0
        for _ in range(count):
            yield ctx.get_current_key()


def materialised(stream: Any) -> Any:
    return stream.key_by(lambda row: tuple(row)[:-1]).process(Materialised())


def joined(how: str, lefts: list[Any], rights: list[Any], matches: Any) -> list[Any]:
    """The join of two lists, as the left record and the right one."""
    out: list[Any] = []
    for left in lefts:
        found = [right for right in rights if matches(left, right)]
        if how in ("semi", "anti"):
            out += [(left, None)] * (bool(found) == (how == "semi"))
        else:
            out += [(left, right) for right in found]
            out += [(left, None)] * (not found and how in ("left", "full"))
    if how in ("right", "full"):
        lone = [r for r in rights if not any(matches(left, r) for left in lefts)]
        out += [(None, right) for right in lone]
    return out


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_regular_join(readings: Any, how: str) -> None:
    def build(env: Any) -> Any:
        rows = readings.columns(env)
        left = rows.filter(pl.col("v") % 7 < 2).select("k", "v").key_by("k")
        right = rows.filter(pl.col("v") % 5 < 1).select("k", w="v").key_by("k")
        result = left.join(right, how, where=pl.col("v") < pl.col("w"))
        return result if how == "inner" else materialised(result)

    lefts = [r for r in readings.all if r.v % 7 < 2]
    rights = [r for r in readings.all if r.v % 5 < 1]
    pairs = joined(how, lefts, rights, lambda a, b: a.k == b.k and a.v < b.v)
    if how in ("semi", "anti"):
        expected = [(a.k, a.v) for a, _ in pairs]
    else:
        expected = [((a or b).k, a.v if a else None, b.v if b else None) for a, b in pairs]
    assert_equivalent(build, expected, Ways(seeds=range(1)))


def test_join_of_changelogs(readings: Any) -> None:
    """A left join's changelog, joined again."""

    def build(env: Any) -> Any:
        rows = readings.columns(env)
        low = rows.filter(pl.col("v") < 300).select("k", a="v").key_by("k")
        high = rows.filter(pl.col("v") > 800).select("k", b="v").key_by("k")
        some = rows.filter(pl.col("g") == 1).select("k", c="g").key_by("k")
        first = low.join(high, "left").key_by("k")
        kinds = pa.schema([("k", pa.string()), ("a", pa.int64()), ("b", pa.int64())])
        return materialised(first.join(some, "full", left_type=kinds))

    low = [r for r in readings.all if r.v < 300]
    high = [r for r in readings.all if r.v > 800]
    some = [r for r in readings.all if r.g == 1]
    first = joined("left", low, high, lambda a, b: a.k == b.k)
    whole = joined("full", first, some, lambda ab, c: ab[0].k == c.k)
    expected = [
        ((ab[0] if ab else c).k, ab and ab[0].v, ab and ab[1] and ab[1].v, c and c.g)
        for ab, c in whole
    ]
    assert_equivalent(build, expected, Ways(seeds=range(2)))


@pytest.mark.parametrize("how", ["inner", "left"])
def test_temporal_join(readings: Any, how: str) -> None:
    def build(env: Any) -> Any:
        rows = readings.columns(env)
        left = rows.filter(pl.col("v") % 3 > 0).select("k", "v").key_by("k")
        versions = rows.filter(pl.col("v") % 3 == 0).select("k", w="v").key_by("k")
        return left.temporal_join(versions, how)

    versions = [r for r in readings.all if r.v % 3 == 0]
    expected = []
    for r in readings.all:
        if r.v % 3 > 0:
            valid = [v for v in versions if v.k == r.k and v.ts <= r.ts]
            latest = max(enumerate(valid), key=lambda p: (p[1].ts, p[0]))[1] if valid else None
            if latest or how == "left":
                expected.append((r.k, r.v, latest.v if latest else None))
    assert_equivalent(build, expected)


@pytest.mark.parametrize(
    ("kind", "how"),
    [("rows", "inner"), ("columns", "left"), ("columns", "semi"), ("rows", "anti")],
)
def test_broadcast_join(readings: Any, kind: str, how: str) -> None:
    columns = pa.schema([("g", pa.int64()), ("w", pa.int64())])

    def build(env: Any) -> Any:
        rows = readings.stream(env, kind)
        table = readings.columns(env).filter(pl.col("v") < 60, pl.col("g") < 3)
        table = table.select("g", w="v")
        result = rows.broadcast_join(table, on="g", how=how, right_type=columns)
        return result.map(lambda r: (r.k, r.v, r.w) if how in ("inner", "left") else (r.k, r.v))

    rights = [r for r in readings.all if r.v < 60 and r.g < 3]
    pairs = joined(how, readings.all, rights, lambda a, b: a.g == b.g)
    if how in ("semi", "anti"):
        expected: list[Any] = [(a.k, a.v) for a, _ in pairs]
    else:
        expected = [(a.k, a.v, b.v if b else None) for a, b in pairs]
    assert_equivalent(build, expected, Ways(seeds=range(1)))


def test_lookup_join(readings: Any, kind: str) -> None:
    names = pa.table({"g": [0, 1, 3], "name": ["none", "one", "three"]})

    def squares(keys: pa.RecordBatch) -> Any:
        return pl.DataFrame(keys).with_columns(square=pl.col("g") * pl.col("g"))

    def build(env: Any) -> Any:
        rows = readings.stream(env, kind)
        named = rows.lookup_join(names, on="g", how="left")
        both = named.lookup_join(squares, on="g", cache_size=2)
        return both.map(lambda r: (r.k, r.v, r.name, r.square))

    found = {0: "none", 1: "one", 3: "three"}
    assert_equivalent(build, [(r.k, r.v, found.get(r.g), r.g * r.g) for r in readings.all])
