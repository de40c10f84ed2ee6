"""Records declared as single values, and records that their readers change, run every way."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from drawn_ways import assert_equivalent
from strom import OutputTag, ProcessFunction, TumblingEventTimeWindows, Types
from strom.testing.equivalence import Ways

SIZE = 100


class Aside(ProcessFunction):
    """Says nothing of the type of its side output."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield OutputTag("aside"), value.v


class Worst(ProcessFunction):
    """Changes what it is given."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        value.append("changed")
        yield len(value)


def test_single_values_every_way(readings: Any, kind: str) -> None:
    def build(env: Any) -> Any:
        stream = readings.stream(env, kind)
        wholes = stream.map(lambda r: float(r.v), output_type=Types.LONG())
        keyed = wholes.rebalance().key_by(lambda v: v % 3)
        sums = keyed.window(TumblingEventTimeWindows.of(SIZE)).reduce(lambda a, b: float(a + b))
        aside = stream.process(Aside()).get_side_output(OutputTag("aside", Types.DOUBLE()))
        assert sums.get_type() == Types.LONG()
        assert aside.get_type() == Types.DOUBLE()
        return {"wholes": wholes.map(repr), "sums": sums.map(repr), "aside": aside.map(repr)}

    windows: dict[Any, int] = defaultdict(int)
    for r in readings.all:
        windows[r.v % 3, r.ts // SIZE] += r.v
    expected = [("sums", repr(total)) for total in windows.values()]
    for r in readings.all:
        expected += [("wholes", repr(r.v)), ("aside", repr(float(r.v)))]
    assert_equivalent(build, expected, Ways(seeds=range(2)))


def test_changed_records_every_way(readings: Any) -> None:
    def build(env: Any) -> Any:
        lists = readings.rows(env).map(lambda r: [r.v])
        return {
            "changed": lists.process(Worst()),
            "same": lists.map(tuple),
            "elsewhere": lists.rebalance().map(tuple),
        }

    expected: list[Any] = []
    for r in readings.all:
        expected += [("changed", 2), ("same", (r.v,)), ("elsewhere", (r.v,))]
    assert_equivalent(build, expected, Ways(seeds=range(2)))
