"""What takes each record for one refuses a changelog: its updates would count twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from strom import (
    EventTimeSessionWindows,
    JobFailedError,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WindowFunction,
    count,
    sum_,
)
from strom.connectors.datagen import DataGenSource

TABLE = pa.table({"k": ["a", "a", "b", "a"], "v": [1, 2, 3, 4], "ts": [1, 2, 3, 4]})


def changelog() -> Any:
    """Running sums, with an update for each record."""

    def rows(start: int, count: int) -> pa.RecordBatch:
        return TABLE.slice(start, count).combine_chunks().to_batches()[0]

    env = StreamExecutionEnvironment.get_execution_environment()
    source = DataGenSource(rows, count=4, schema=TABLE.schema, block=1)
    stream = env.from_source(source).with_event_time("ts")
    return stream.key_by("k").aggregate(s=sum_("v")).key_by("k")


class Sizes(WindowFunction):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return [len(list(inputs))]


TUMBLING = TumblingEventTimeWindows.of(10)

REFUSED: dict[str, Callable[[Any], Any]] = {
    "sliced windows": lambda s: s.window(TUMBLING).aggregate(n=count(), s=sum_("s")),
    "sessions": lambda s: s.window(EventTimeSessionWindows.with_gap(5)).aggregate(n=count()),
    "count windows": lambda s: s.count_window(2).aggregate(n=count()),
    "row windows": lambda s: s.window(TUMBLING).apply(Sizes()),
    "rolling sum": lambda s: s.sum("s"),
    "reduce": lambda s: s.reduce(lambda a, b: b),
}


@pytest.mark.parametrize("use", REFUSED.values(), ids=REFUSED)
def test_a_changelog_is_refused_by_name(use: Callable[[Any], Any]) -> None:
    results = use(changelog()).name("it")
    with pytest.raises(JobFailedError, match=r"operator 'it'.* only insert.*changelog"):
        list(results.execute_and_collect())
