"""Categories as pandas makes them: codes of one byte, and other words in every batch."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from strom import (
    DataStream,
    EventTimeSessionWindows,
    JobConfig,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    count,
)
from strom.connectors.datagen import DataGenSource

TIME = WatermarkStrategy.for_bounded_out_of_orderness(1000).with_timestamp_assigner("time")
WINDOW = TumblingEventTimeWindows.of(1000)
ROWS, BLOCK = 2000, 50

Build = Callable[[Any], DataStream]

KEYED: dict[str, Build] = {
    "window": lambda words: words.window(WINDOW).aggregate(n=count()),
    "session": lambda words: words.window(EventTimeSessionWindows.with_gap(5)).aggregate(n=count()),
    "top": lambda words: words.window(WINDOW).top_n(1, "time"),
    "over": lambda words: words.over(range=timedelta(seconds=1)).aggregate(n=count()),
    "group": lambda words: words.aggregate(n=count()),
}


def plain(start: int, number: int) -> pa.RecordBatch:
    numbers = np.arange(start, start + number)
    words = pa.array([f"word {n // 3}" for n in numbers.tolist()], pa.string())
    return pa.record_batch({"word": words, "time": pa.array(numbers)})


def coded(start: int, number: int) -> pa.RecordBatch:
    data = plain(start, number)
    words = data.column(0).cast(pa.dictionary(pa.int8(), pa.string()))
    return pa.record_batch({"word": words, "time": data.column(1)})


@pytest.mark.parametrize("combining", [True, False])
@pytest.mark.parametrize("name", KEYED)
def test_more_words_than_codes(name: str, combining: bool) -> None:
    def run(generate: Any) -> list[Any]:
        settings = JobConfig(parallelism=2, batch_size=BLOCK, local_combining=combining)
        env = StreamExecutionEnvironment.get_execution_environment(settings)
        source = DataGenSource(generate, ROWS, splits=2, block=BLOCK)
        words = env.from_source(source, TIME, "words").key_by("word")
        return [tuple(row) for row in KEYED[name](words).execute_and_collect()]

    found, expected = run(coded), run(plain)
    if name == "group":  # how often a word is updated depends on how batches are put together
        last = [{row[0]: row[1] for row in rows} for rows in (found, expected)]
        found, expected = list(last[0].items()), list(last[1].items())
    assert sorted(found) == sorted(expected)
    assert len({row[0] for row in found}) > 600 or name == "top"
