"""State that expires by event time, every way: all kinds, against the plain model.

Records are up to 30 ms out of order and never late, so what has expired for each is the same in
every run, although when the watermark comes, and with it the removal in the background, is not.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pytest
from drawn_ways import assert_equivalent
from reference_ttl import ExpiringModel
from strom import KeyedProcessFunction, Row, RuntimeContext, StateTtlConfig, count, sum_

from tests.e2e.test_tables import WAYS, assert_tables
from tests.state.test_ttl_model import call, described

TTL = 45
GETTERS = {
    "value": "get_state",
    "list": "get_list_state",
    "map": "get_map_state",
    "reducing": "get_reducing_state",
    "aggregating": "get_aggregating_state",
}


class Remembering(KeyedProcessFunction):
    """What the state holds, before each record is written; where g = 0 it is only read."""

    def __init__(self, kind: str, on_read: bool) -> None:
        self.kind = kind
        self.on_read = on_read

    def open(self, runtime_context: RuntimeContext) -> None:
        builder = StateTtlConfig.new_builder(TTL).use_event_time()
        if self.on_read:
            builder.update_ttl_on_read_and_write()
        descriptor = described(self.kind, builder.build())
        self.state = getattr(runtime_context, GETTERS[self.kind])(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value.k, str(call(self.kind, self.state, "read", 0))
        if value.g:
            call(self.kind, self.state, "write", value.v)


def remembered(kind: str, on_read: bool, rows: list[Any]) -> list[str]:
    model, results = ExpiringModel(kind, TTL, on_read), []
    for row in rows:
        results.append(str(model.call("read", 0, row.ts)))
        if row.g:
            model.call("write", row.v, row.ts)
    return results


@pytest.mark.parametrize(
    ("kind", "on_read"),
    [("value", True), ("list", False), ("map", True), ("reducing", False), ("aggregating", True)],
)
def test_each_kind_of_state_expires(readings: Any, kind: str, on_read: bool) -> None:
    def build(env: Any) -> Any:
        return readings.rows(env).key_by(lambda r: r.k).process(Remembering(kind, on_read))

    groups: dict[str, list[Any]] = {}
    for row in readings.all:
        groups.setdefault(row.k, []).append(row)
    expected = [(k, held) for k, rows in groups.items() for held in remembered(kind, on_read, rows)]
    assert {"None", "[]", "{}"} & {held for _, held in expected[1:]}
    assert_equivalent(build, expected)


def by_event(ms: int) -> StateTtlConfig:
    return StateTtlConfig.new_builder(ms).use_event_time().build()


def lives(rows: list[Any]) -> list[list[Any]]:
    """Records of a key, cut where it has expired: every one makes it live on."""
    found: list[list[Any]] = []
    stamp = 0
    for row in rows:
        if not found or stamp + TTL <= row.ts:
            found.append([])
            stamp = row.ts
        stamp = max(stamp, row.ts)
        found[-1].append(row)
    return found


def by_key(readings: Any) -> list[list[Any]]:
    groups: dict[str, list[Any]] = {}
    for row in readings.all:
        groups.setdefault(row.k, []).append(row)
    return [life for rows in groups.values() for life in lives(rows)]


TABLES: dict[str, tuple[Any, Any]] = {
    "aggregate": (
        lambda k, ttl: k.aggregate(n=count(), s=sum_("v"), ttl=ttl),
        lambda life: [(life[0].k, len(life), sum(row.v for row in life))],
    ),
    "top_n": (
        lambda k, ttl: k.top_n(100, ["v", "ts"], ttl=ttl),
        lambda life: [tuple(row) for row in life],
    ),
}


@pytest.mark.parametrize("kind", TABLES)
def test_tables_forget_by_event_time(readings: Any, kind: str) -> None:
    make, shown = TABLES[kind]

    def build(env: Any) -> Any:
        return make(readings.columns(env).key_by("k"), by_event(TTL))

    assert_tables(build, Counter(row for life in by_key(readings) for row in shown(life)))


@pytest.mark.parametrize(("kind", "stream"), [("sum", "columns"), ("reduce", "rows")])
def test_running_results_forget_by_event_time(readings: Any, kind: str, stream: str) -> None:
    def build(env: Any) -> Any:
        keyed = readings.stream(env, stream).key_by("k")
        if kind == "sum":
            return keyed.sum("v", ttl=by_event(TTL))
        return keyed.reduce(
            lambda a, b: Row("k", "g", "v", "x", "ts")(b.k, b.g, a.v + b.v, b.x, b.ts),
            ttl=by_event(TTL),
        )

    expected = [
        (row.k, row.g, sum(r.v for r in life[: at + 1]), row.x, row.ts)
        for life in by_key(readings)
        for at, row in enumerate(life)
    ]
    assert_equivalent(build, expected, WAYS)


def test_sides_of_a_join_expire_by_event_time(readings: Any) -> None:
    """Whichever side is ahead: rows meet that live at the same time."""

    def build(env: Any) -> Any:
        left, right = (readings.columns(env).filter(pl.col("g") % 2 == n) for n in (0, 1))
        return left.key_by("k").join(right.key_by("k"), ttl=(by_event(40), by_event(90)))

    rows = readings.all
    expected = [
        (*a, b.g, b.v, b.x, b.ts)
        for a in rows
        for b in rows
        if a.k == b.k and a.g % 2 == 0 and b.g % 2 == 1 and b.ts < a.ts + 40 and a.ts < b.ts + 90
    ]
    assert expected
    assert_equivalent(build, expected, WAYS)
