"""StopIteration out of user code, in the places that `test_user_code` leaves out. Whoever calls the
code from inside an iterator takes it for the end of that iterator, and what is left is lost without
a word; so it has to fail the job and name the operator, like every other error."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
import strom
from chaos_kit import ListSink, config, environment, failure, run_into
from strom.connectors.datagen import DataGenSource

FORBIDDEN = "STROM_TEST_FORBIDDEN"
"""In the environment: functions are shipped by value, whatever the module holds by then."""

HERE = re.escape(__file__)
RECORDS = 40
FIRST = (0, 1, 2, 4, 5)
"""The numbers that `pick` finds."""

ROW = pa.schema([("n", pa.int64())])
TIMES = strom.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n)


def pick(n: Any) -> Any:
    """As users write it: raises StopIteration for what is not there, or an error of strom."""
    if FORBIDDEN in os.environ and n not in FIRST:
        raise strom.ConfigurationError("forbidden")
    return next(v for v in FIRST if v == n)


def numbers(env: Any) -> Any:
    return env.from_collection(list(range(RECORDS))).set_parallelism(2).name("numbers")


def rows(env: Any) -> Any:
    return numbers(env).map(lambda n: (n,), output_type=ROW)


def elements(kind: Any) -> Any:
    return pl.col("n").map_elements(lambda n: pick(-1), return_dtype=kind)


def timed(env: Any) -> Any:
    return numbers(env).assign_timestamps_and_watermarks(TIMES)


def keyed(env: Any) -> Any:
    return timed(env).key_by(lambda n: n % 2)


def windowed(env: Any) -> Any:
    return keyed(env).window(strom.TumblingEventTimeWindows.of(timedelta(milliseconds=10)))


class PickMap(strom.MapFunction):
    def map(self, value: Any) -> Any:
        return pick(value)


class PickFlatMap(strom.FlatMapFunction):
    def flat_map(self, value: Any) -> Any:
        return [pick(value)]


class PickFilter(strom.FilterFunction):
    def filter(self, value: Any) -> bool:
        return pick(value) >= 0


class Doubt:
    """Neither true nor false, but for what can be picked."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __bool__(self) -> bool:
        return pick(self.n) >= 0


class Unready:
    """A result that is an iterable, but not for all."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Any:
        return iter([pick(self.n)])


@dataclass(frozen=True)
class OddKey:
    n: int
    where: str

    def _at(self, where: str) -> None:
        if where == self.where:
            pick(self.n)

    def __hash__(self) -> int:
        self._at("hash")
        return hash(self.n % 3)

    def __eq__(self, other: object) -> bool:
        self._at("eq")
        return isinstance(other, OddKey) and self.n == other.n


class OddNumber:
    def __init__(self, n: int) -> None:
        self.n = n

    def __add__(self, other: Any) -> Any:
        return OddNumber(pick(self.n + 1))

    def __pos__(self) -> Any:
        return self

    def __lt__(self, other: Any) -> bool:
        return pick(self.n) < 0


class Assigner(strom.TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(pick(value))


class Generator(strom.WatermarkGenerator):
    def __init__(self, where: str) -> None:
        self.where = where

    def on_event(self, value: Any, timestamp: int) -> int | None:
        if self.where == "on_event":
            pick(value)
        return None

    def on_periodic(self) -> int | None:
        if self.where == "on_periodic":
            pick(-1)
        return None


class PickTrigger(strom.Trigger):
    def __init__(self, where: str) -> None:
        self.where = where

    def _at(self, where: str) -> Any:
        if where == self.where:
            pick(-1)
        return strom.TriggerResult.CONTINUE

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> Any:
        ctx.register_event_time_timer(window.max_timestamp())
        return self._at("on_element")

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> Any:
        return strom.TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> Any:
        return self._at("on_event_time")

    def on_merge(self, window: Any, ctx: Any) -> None:
        self._at("on_merge")

    def clear(self, window: Any, ctx: Any) -> None:
        self._at("clear")


class Kept(strom.AggregateFunction):
    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Any, accumulator: Any) -> Any:
        return [*accumulator, value]

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return [pick(-1)]


class Cleared(strom.ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return list(elements)

    def clear(self, context: Any) -> None:
        pick(-1)


class Applied(strom.WindowFunction):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return [pick(n) for n in inputs]


class WithState(strom.KeyedProcessFunction):
    """Adds each record to a state whose function raises."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def open(self, runtime_context: Any) -> None:
        if self.kind == "reducing":
            descriptor = strom.ReducingStateDescriptor("s", lambda a, b: pick(-1))
            self.state = runtime_context.get_reducing_state(descriptor)
        else:
            descriptor = strom.AggregatingStateDescriptor("s", Adding())
            self.state = runtime_context.get_aggregating_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.state.add(value)
        return [value]


class Adding(Kept):
    def add(self, value: Any, accumulator: Any) -> Any:
        return [pick(value)]


def sessions(env: Any, gap: Any) -> Any:
    return keyed(env).window(strom.EventTimeSessionWindows.with_dynamic_gap(gap))


def from_late_joiner(env: Any) -> Any:
    """Session windows that meet only when a record between them comes."""
    stream = env.from_collection([0, 8, 4]).name("numbers")
    late = strom.WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=1))
    stream = stream.assign_timestamps_and_watermarks(
        late.with_timestamp_assigner(lambda n, _: n)
    ).key_by(lambda n: 0)
    return stream.window(strom.EventTimeSessionWindows.with_gap(timedelta(milliseconds=5)))


def generated(make: Callable[[int, int], Any]) -> Callable[[Any], Any]:
    def build(env: Any) -> Any:
        return env.from_source(DataGenSource(make, RECORDS), source_name="it").map(lambda n: n)

    return build


def by_source(strategy: Any) -> Callable[[Any], Any]:
    def build(env: Any) -> Any:
        source = DataGenSource(lambda start, n: list(range(start, start + n)), RECORDS)
        return env.from_source(source, strategy, source_name="it").map(lambda n: n)

    return build


def custom(where: str) -> Any:
    return strom.WatermarkStrategy.for_generator(lambda: Generator(where))


PLACES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a map": ("it", lambda env: numbers(env).map(pick)),
    "a map into columns": ("it", lambda env: numbers(env).map(lambda n: (pick(n),), ROW)),
    "a filter": ("it", lambda env: numbers(env).filter(lambda n: pick(n) >= 0)),
    "a filter of columns": ("it", lambda env: rows(env).filter(lambda row: pick(row.n) >= 0)),
    "a filter's result": ("it", lambda env: numbers(env).filter(Doubt)),
    "an iterable result": ("it", lambda env: numbers(env).flat_map(Unready)),
    "keyed map": ("it", lambda env: keyed(env).map(PickMap())),
    "keyed flat_map": ("it", lambda env: keyed(env).flat_map(PickFlatMap())),
    "keyed filter": ("it", lambda env: keyed(env).filter(PickFilter())),
    "expression": (
        "it",
        lambda env: rows(env).select(
            pl.col("n").map_elements(lambda n: pick(n), return_dtype=pl.Int64)
        ),
    ),
    "key selector": ("numbers", lambda env: numbers(env).key_by(pick).reduce(max)),
    "a key's hash": (
        "numbers",
        lambda env: numbers(env).key_by(lambda n: OddKey(n, "hash")).reduce(lambda a, b: b),
    ),
    "a key's equality": (
        "it",
        lambda env: numbers(env).key_by(lambda n: OddKey(n, "eq")).reduce(lambda a, b: b),
    ),
    "rolling sum": (
        "it",
        lambda env: numbers(env).map(lambda n: OddNumber(n)).key_by(lambda o: 0).sum(),
    ),
    "rolling min": (
        "it",
        lambda env: numbers(env).map(lambda n: OddNumber(n)).key_by(lambda o: 0).min(),
    ),
    "timestamps over timestamps": (
        "it",
        lambda env: timed(env).assign_timestamps_and_watermarks(
            strom.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Assigner())
        ),
    ),
    "timestamps of a source": (
        "it",
        by_source(
            strom.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Assigner())
        ),
    ),
    "on_event": ("it", by_source(custom("on_event"))),
    "on_periodic": (
        "it",
        lambda env: env.from_source(
            DataGenSource(lambda start, n: list(range(start, start + n)), rate=1000),
            custom("on_periodic"),
            source_name="it",
        ).map(lambda n: n),
    ),
    "generate": ("it", generated(lambda start, n: pick(-1))),
    "dynamic gap": ("it", lambda env: sessions(env, pick).aggregate(Kept())),
    "merge": ("it", lambda env: from_late_joiner(env).aggregate(Kept())),
    "on_merge": (
        "it",
        lambda env: from_late_joiner(env).trigger(PickTrigger("on_merge")).reduce(max),
    ),
    "on_element": ("it", lambda env: windowed(env).trigger(PickTrigger("on_element")).reduce(max)),
    "on_event_time": (
        "it",
        lambda env: windowed(env).trigger(PickTrigger("on_event_time")).reduce(max),
    ),
    "a trigger's clear": (
        "it",
        lambda env: windowed(env).trigger(PickTrigger("clear")).reduce(max),
    ),
    "window reduce": ("it", lambda env: windowed(env).reduce(lambda a, b: pick(-1))),
    "window apply": (
        "it",
        lambda env: windowed(env).apply(Applied()),
    ),
    "a window function's clear": ("it", lambda env: windowed(env).process(Cleared())),
    "reducing state": ("it", lambda env: keyed(env).process(WithState("reducing"))),
    "aggregating state": ("it", lambda env: keyed(env).process(WithState("aggregating"))),
    "lookup": (
        "it",
        lambda env: rows(env).lookup_join(lambda keys: pick(-1), left_on="n", right_on="n"),
    ),
    "elements of an expression": ("it", lambda env: rows(env).select(elements(pl.Int64))),
    "elements of a filter": ("it", lambda env: rows(env).filter(elements(pl.Boolean))),
    "elements of an aggregate": (
        "it",
        lambda env: rows(env).key_by("n").aggregate(s=strom.sum_(elements(pl.Int64))),
    ),
    "elements of a condition": (
        "it",
        lambda env: rows(env).key_by("n").join(rows(env).key_by("n"), where=elements(pl.Boolean)),
    ),
}
"""Place -> the operator to be named, and a program in which user code raises there."""

SOURCES = ("timestamps of a source", "on_event", "on_periodic", "generate")
"""Those where the source is called "it"."""


@pytest.mark.parametrize("place", PLACES)
def test_it_fails_the_job_and_names_the_operator(place: str) -> None:
    name, make = PLACES[place]
    stream = make(environment(config(auto_watermark_interval=timedelta(milliseconds=20))))
    text = failure(stream.name("it") if place not in SOURCES and name == "it" else stream)
    assert f"operator '{name}', subtask" in text
    first, _, trace = text.partition("\n")
    assert re.search(rf"StopIteration: next\(\) found.* \(at {HERE}:\d+ in pick\)$", first)
    frames = re.findall(r'File "(.*)", line', trace)
    assert {*frames[:1], *frames[-1:]} <= {__file__}


@pytest.mark.parametrize("place", PLACES)
def test_an_error_of_our_own_that_a_function_raises_has_its_line(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, make = PLACES[place]
    monkeypatch.setenv(FORBIDDEN, "yes")
    stream = make(environment(config(auto_watermark_interval=timedelta(milliseconds=20))))
    text = failure(stream.name("it") if place not in SOURCES and name == "it" else stream)
    assert re.search(rf"operator '{name}', subtask.*: forbidden.* \(at {HERE}:\d+ in pick\)", text)


@pytest.mark.parametrize(
    "where", ["create_writer", "write", "prepare_commit", "prepare_commit in the background"]
)
def test_of_a_sink(where: str) -> None:
    with pytest.raises(strom.JobFailedError, match=r"'the sink'(.|\n)*StopIteration"):
        run_into(numbers(environment(config())), ListSink(where, lambda: pick(-1)))


class Splits(DataGenSource):
    """A source whose enumerator raises."""

    def create_enumerator(self, context: Any, restored: Any) -> Any:
        made = super().create_enumerator(context, restored)
        made.next_splits = lambda subtask: pick(-1)
        return made


def test_of_an_enumerator() -> None:
    source = Splits(lambda start, n: list(range(start, start + n)), RECORDS)
    env = environment(config())
    text = failure(env.from_source(source, source_name="it").map(lambda n: n))
    assert "operator 'it', subtask" in text
    assert "StopIteration: next() found its iterator at the end: give it a default" in text


def test_the_end_of_a_users_own_iterator_is_an_end() -> None:
    """What cannot be told apart: an iterator that a function returns may end when it likes."""

    class UpTo(Sequence[int]):
        def __init__(self, n: int) -> None:
            self.n = n

        def __len__(self) -> int:
            return self.n

        def __getitem__(self, at: Any) -> Any:
            if at < self.n:
                return at
            raise IndexError

    env = environment(config(parallelism=1))
    assert list(env.from_collection([2, 0, 1]).flat_map(UpTo).execute_and_collect()) == [0, 1, 0]
