"""`NumberSequenceSource`: PyFlink's source of numbers."""

from __future__ import annotations

from typing import Any

import pytest
from amounts import examples
from drawn_ways import assert_equivalent
from hypothesis import given, settings
from hypothesis import strategies as st
from strom import WatermarkStrategy
from strom.connectors.datagen import NumberSequenceSource
from strom.core.errors import ConfigurationError

LONG = 1 << 63


@settings(max_examples=examples(40), deadline=None)
@given(
    start=st.one_of(st.integers(-20, 20), st.just(-LONG), st.just(LONG - 200)),
    count=st.integers(1, 120),
    schedule=st.lists(st.integers(0, 1), max_size=12),
    parallelism=st.integers(1, 4),
)
def test_both_ends_are_included_through_any_restore(
    run: Any, start: int, count: int, schedule: list[int], parallelism: int
) -> None:
    source = NumberSequenceSource(start, start + count - 1)
    first = run(source, parallelism=2)
    for subtask in schedule:
        first.step(subtask)
    rest = first.restored(first.snapshot(), parallelism).finish()
    assert sorted(first.rows() + rest.rows()) == list(range(start, start + count))


def test_records_are_ints_in_order_at_parallelism_1(run: Any) -> None:
    rows = run(NumberSequenceSource(-3, 3000)).finish().rows()
    assert rows == list(range(-3, 3001))
    assert all(type(row) is int for row in rows)


def test_every_reader_gets_a_part_also_of_few_numbers(run: Any) -> None:
    parts = run(NumberSequenceSource(1, 9), parallelism=3).finish().batches
    rows = [[n for batch in part for n in batch.rows()] for part in parts]
    assert [len(part) for part in rows] == [3, 3, 3]
    assert all(part == sorted(part) for part in rows)


def test_in_a_job() -> None:
    def build(env: Any) -> Any:
        source = NumberSequenceSource(start=5, end=304)
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        return {"halved": stream.filter(lambda n: n % 2 == 0).map(lambda n: n // 2)}

    assert_equivalent(build, [("halved", n // 2) for n in range(5, 305) if n % 2 == 0])


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        (2, 1, "end must be at least start, are 2 and 1"),
        ("1", 2, "start must be int, is '1'"),
        (1, True, "end must be int, is True"),
        (0, LONG, "end must be a number of 64 bits"),
    ],
)
def test_refused(start: Any, end: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        NumberSequenceSource(start, end)
