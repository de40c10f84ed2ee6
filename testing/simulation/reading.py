"""How simulated jobs read: sources, and, where some records are to be refused, a function right
behind each that raises for these, with `on_error(dead_letters(...))`.

A record that is refused has a value below 0, and no other one has. What comes out of it is a letter
in the stream `LETTERS`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from ...api.dead_letters import dead_letters
from ...api.functions.user_functions import ProcessFunction
from ...api.streams.data_stream import DataStream, StreamExecutionEnvironment
from ...api.watermarks import WatermarkStrategy
from ...core.row import Row
from ..scripted import ScriptedSource
from .records import DISORDER, Data, Limit, refused_of

SCHEMA: Final = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])

LETTERS: Final = "letters"

Strategy = WatermarkStrategy.for_bounded_out_of_orderness(DISORDER)


class Refused(Exception):
    """What the functions raise."""


def _looked_at(value: int) -> bool:
    if value < 0:
        raise Refused(value)
    return True


class _Passing(ProcessFunction):
    """What it emits before it raises does not go out."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value
        _looked_at(value[1])


def _passing(value: Any) -> Iterator[Any]:
    yield value
    _looked_at(value[1])


class Reading:
    """Of one job."""

    def __init__(self, env: StreamExecutionEnvironment, limit: Limit = "none") -> None:
        self._env = env
        self._limit = limit
        self.letters: list[DataStream] = []
        """What was put aside behind each source that has something to refuse."""

    def tuples(self, lanes: list[list[Any]], name: str) -> DataStream:
        strategy = Strategy.with_timestamp_assigner(lambda r, _: r[2])
        source = self._env.from_source(ScriptedSource(lanes), strategy, name)
        count = len(refused_of(lanes))
        if not count:
            return source
        match count % 4:
            case 0:
                passing = source.map(lambda r: r if _looked_at(r[1]) else None)
            case 1:
                passing = source.filter(lambda r: _looked_at(r[1]))
            case 2:
                passing = source.flat_map(_passing)
            case _:
                passing = source.process(_Passing())
        return self._with_letters(passing, name, count)

    def columns(self, lanes: list[list[Any]], name: str) -> DataStream:
        rows = [
            [Row(k=r[0], v=r[1], ts=r[2]) if isinstance(r, tuple) else r for r in lane]
            for lane in lanes
        ]
        strategy = Strategy.with_timestamp_assigner("ts")
        source = self._env.from_source(ScriptedSource(rows, SCHEMA), strategy, name)
        count = len(refused_of(lanes))
        if not count:
            return source
        passing = source.filter(lambda r: _looked_at(r.v))
        return self._with_letters(passing, name, count)

    def _with_letters(self, passing: DataStream, name: str, count: int) -> DataStream:
        most = {"none": None, "exact": count, "short": count - 1}[self._limit]
        passing = passing.name(f"pass {name}").on_error(dead_letters(limit=most))
        if self._limit == "short":
            passing = passing.set_parallelism(1)  # each subtask has the whole limit for itself
        told = passing.get_dead_letters().map(_told)
        self.letters.append(told)
        return passing


def _told(letter: Any) -> tuple[Any, ...]:
    """What a letter has to say, whatever the schedule was."""
    return letter.operator, letter.error.rpartition(".")[2], letter.event_time, *letter.record


def expected_letters(data: Data, sources: Iterable[str]) -> list[tuple[str, Any]]:
    """All that come about if the job does not fail. `sources`: those that the job reads."""
    lanes = {"a": data.first, "b": data.second}
    return [
        (LETTERS, (f"pass {name}", Refused.__name__, r[2], *r))
        for name in sources
        for r in refused_of(lanes[name])
    ]
