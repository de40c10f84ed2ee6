"""User code that raises, in every place where it is called: the job ends with an error that names
the operator, or recovers exactly when the code raised once."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import strom
from chaos_kit import Always, ListSink, Once, config, environment, failure, gather, run_into
from strom.connectors.datagen import DataGenSource

RECORDS = 400
Trip = Callable[[], None]


def numbers(env: Any) -> Any:
    return env.from_collection(list(range(RECORDS))).set_parallelism(2).name("numbers")


class TrippingMap(strom.MapFunction):
    def __init__(self, where: str, trip: Trip) -> None:
        self.where = where
        self.trip = trip

    def open(self, runtime_context: Any) -> None:
        if self.where == "open":
            self.trip()

    def map(self, value: Any) -> Any:
        if self.where == "map" and value == RECORDS // 2:
            self.trip()
        return value

    def close(self) -> None:
        if self.where == "close":
            self.trip()


class TrippingProcess(strom.ProcessFunction):
    def __init__(self, trip: Trip) -> None:
        self.trip = trip

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value == RECORDS // 2:
            self.trip()
        yield value


class Keyed(strom.KeyedProcessFunction):
    """Emits each record; `where` says whether the element or a timer trips."""

    def __init__(self, where: str, trip: Trip) -> None:
        self.where = where
        self.trip = trip

    def process_element(self, value: Any, ctx: Any) -> Any:
        if self.where == "element" and value == RECORDS // 2:
            self.trip()
        ctx.timer_service().register_event_time_timer(value + 1)
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        if self.where == "event timer" and timestamp == RECORDS // 2:
            self.trip()
        return ()


class OneWindow(strom.ProcessWindowFunction):
    def __init__(self, trip: Trip) -> None:
        self.trip = trip

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        self.trip()
        yield from elements


class Total(strom.AggregateFunction):
    def __init__(self, where: str, trip: Trip) -> None:
        self.where = where
        self.trip = trip

    def _at(self, where: str) -> None:
        if where == self.where:
            self.trip()

    def create_accumulator(self) -> Any:
        self._at("create_accumulator")
        return []

    def add(self, value: Any, accumulator: Any) -> Any:
        self._at("add")
        return [*accumulator, value]

    def get_result(self, accumulator: Any) -> Any:
        self._at("get_result")
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


def then_trip(trip: Trip, value: Any = RECORDS // 2) -> Callable[[Any], Any]:
    """The identity, but for one value."""

    def identity(n: Any) -> Any:
        if n == value:
            trip()
        return n

    return identity


def timed(stream: Any) -> Any:
    strategy = strom.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda value, _: value
    )
    return stream.assign_timestamps_and_watermarks(strategy)


def windowed(stream: Any) -> Any:
    window = strom.TumblingEventTimeWindows.of(timedelta(milliseconds=100))
    return timed(stream).key_by(lambda n: n % 5).window(window)


def flat(trip: Trip) -> Callable[[Any], Any]:
    """Trips in the middle of a result, after part of it was made."""
    one = then_trip(trip)

    def generate(n: Any) -> Any:
        yield one(n)

    return generate


def keeping(one: Callable[[Any], Any]) -> Callable[[Any], bool]:
    return lambda n: one(n) is not None


def batches(trip: Trip) -> Callable[[Any], Any]:
    def function(batch: Any) -> Any:
        trip()
        return batch

    return function


def reducing(trip: Trip) -> Callable[[Any, Any], Any]:
    def function(a: Any, b: Any) -> Any:
        trip()
        return b

    return function


def assigning(trip: Trip) -> Any:
    one = then_trip(trip)
    return strom.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda value, _: one(value)
    )


def partition(trip: Trip) -> Callable[[Any, int], int]:
    def function(key: Any, n: int) -> int:
        trip()
        return int(key) % n

    return function


def asking(trip: Trip) -> Callable[[Any], Any]:
    async def function(value: Any) -> list[Any]:
        await asyncio.sleep(0)
        trip()
        return [value]

    return function


PLACES: dict[str, tuple[str, Callable[[Any, Trip], Any]]] = {
    "map": ("it", lambda s, t: s.map(TrippingMap("map", t))),
    "a lambda": ("it", lambda s, t: s.map(then_trip(t))),
    "open": ("it", lambda s, t: s.map(TrippingMap("open", t))),
    "flat_map": ("it", lambda s, t: s.flat_map(flat(t))),
    "filter": ("it", lambda s, t: s.filter(keeping(then_trip(t)))),
    "process": ("it", lambda s, t: s.process(TrippingProcess(t))),
    "keyed process": (
        "it",
        lambda s, t: timed(s).key_by(lambda n: n % 5).process(Keyed("element", t)),
    ),
    "event timer": (
        "it",
        lambda s, t: timed(s).key_by(lambda n: n % 5).process(Keyed("event timer", t)),
    ),
    "window function": ("it", lambda s, t: windowed(s).process(OneWindow(t))),
    "create_accumulator": (
        "it",
        lambda s, t: windowed(s).aggregate(Total("create_accumulator", t)),
    ),
    "add": ("it", lambda s, t: windowed(s).aggregate(Total("add", t))),
    "get_result": ("it", lambda s, t: windowed(s).aggregate(Total("get_result", t))),
    "reduce": ("it", lambda s, t: s.key_by(lambda n: n % 5).reduce(reducing(t))),
    "timestamps": ("it", lambda s, t: s.assign_timestamps_and_watermarks(assigning(t))),
    "map_batches": (
        "it",
        lambda s, t: (
            s.map(lambda n: (n,), output_type=_ROW)
            .map_batches(batches(t))
            .name("it")
            .map(lambda row: row[0])
        ),
    ),
    "async_invoke": ("it", lambda s, t: strom.AsyncDataStream.ordered_wait(s, asking(t), 0)),
    "an async function, out of order": (
        "it",
        lambda s, t: strom.AsyncDataStream.unordered_wait(s, asking(t), 0, 3),
    ),
    "key selector": (
        "numbers",
        lambda s, t: s.key_by(then_trip(t)).reduce(lambda a, b: b),
    ),
    "partitioner": (
        "numbers",
        lambda s, t: s.partition_custom(partition(t), lambda n: n).map(lambda n: n),
    ),
    "partitioner's key": (
        "numbers",
        lambda s, t: s.partition_custom(lambda key, n: key % n, then_trip(t)).map(lambda n: n),
    ),
}
"""Place -> the operator to be named, and the stream in which `trip` is called there."""

_ROW = strom.Types.ROW_NAMED(["n"], [strom.Types.LONG()])
_PAIR = strom.Types.ROW_NAMED(["n", "text"], [strom.Types.LONG(), strom.Types.STRING()])


def build(place: str, env: Any, trip: Trip) -> Any:
    name, make = PLACES[place]
    stream = make(numbers(env), trip)
    return stream.name("it") if name == "it" and place != "map_batches" else stream


@pytest.mark.parametrize("place", PLACES)
def test_a_raising_function_fails_the_job_and_is_named(place: str) -> None:
    env = environment(config())
    text = failure(build(place, env, Always()))
    assert f"operator '{PLACES[place][0]}'" in text
    assert "subtask" in text
    assert "RuntimeError: boom, always" in text
    assert "in __call__" in text, "the user's own traceback"


@pytest.mark.parametrize("place", PLACES)
def test_a_stop_iteration_is_an_error_and_not_the_end_of_the_batch(place: str) -> None:
    text = failure(build(place, environment(config()), lambda: next(iter(()))))
    assert f"operator '{PLACES[place][0]}', subtask" in text
    assert "StopIteration" in text
    assert "give it a default" in text


@pytest.mark.parametrize("place", PLACES)
def test_what_raised_once_is_made_good(place: str, tmp_path: Any) -> None:
    reference = Counter(map(repr, gather(build(place, environment(config()), lambda: None))))
    env = environment(config(interval_ms=2, batch_size=16))
    found = gather(build(place, env, Once(tmp_path, after=3 if place == "map_batches" else 1)))
    assert (tmp_path / "raised").exists(), "the function was never reached"
    assert Counter(map(repr, found)) == reference


def test_a_raising_processing_time_timer_fails_the_job_and_is_named() -> None:
    class Soon(strom.KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            timers = ctx.timer_service()
            timers.register_processing_time_timer(timers.current_processing_time() + 1)
            return ()

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            raise RuntimeError("boom, later")

    endless = DataGenSource(lambda start, n: list(range(start, start + n)), rate=1000)
    stream = environment(config()).from_source(endless).key_by(lambda n: n % 5)
    text = failure(stream.process(Soon()).name("it"))
    assert "operator 'it'" in text
    assert "boom, later" in text
    assert "in on_timer" in text


SINK_PLACES = (
    "create_writer",
    "write",
    "prepare_commit",
    "prepare_commit in the background",
    "commit",
)


@pytest.mark.parametrize("where", SINK_PLACES)
@pytest.mark.parametrize("interval_ms", [None, 2])
def test_a_raising_sink_fails_the_job_and_is_named(where: str, interval_ms: int | None) -> None:
    env = environment(config(interval_ms=interval_ms, restart=strom.NoRestart()))
    with pytest.raises(strom.JobFailedError) as caught:
        run_into(numbers(env), ListSink(where, Always()))
    text = str(caught.value)
    assert "'the sink'" in text
    assert "boom, always" in text


@pytest.mark.parametrize("where", SINK_PLACES)
def test_a_sink_that_raised_once_loses_and_repeats_nothing(where: str, tmp_path: Any) -> None:
    env = environment(config(interval_ms=2, batch_size=16))
    found = run_into(numbers(env), ListSink(where, Once(tmp_path)))
    assert (tmp_path / "raised").exists()
    assert sorted(found) == list(range(RECORDS))


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_raising_close_is_logged_with_its_operator(
    parallelism: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The records are committed when functions are closed: the job has succeeded."""
    env = environment(config(parallelism=parallelism))
    found = gather(numbers(env).map(TrippingMap("close", Always())).name("it"))
    assert sorted(found) == list(range(RECORDS))
    assert caplog.text.count("operator 'it'") == parallelism
    assert "boom, always" in caplog.text


def test_a_raising_close_hides_no_other_error(caplog: pytest.LogCaptureFixture) -> None:
    class Both(TrippingMap):
        def map(self, value: Any) -> Any:
            raise ValueError("the first cause")

    text = failure(numbers(environment(config())).map(Both("close", Always())).name("it"))
    assert "ValueError: the first cause" in text


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit("x"), CancelledError()], ids=repr)
def test_exceptions_beyond_exception_fail_the_job_too(error: BaseException) -> None:
    def exit_(n: Any) -> Any:
        raise error

    text = failure(numbers(environment(config())).map(exit_).name("it"))
    assert "operator 'it'" in text
    assert type(error).__name__ in text


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit("x")], ids=repr)
def test_exceptions_beyond_exception_end_neither_a_close_nor_a_commit(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def exit_() -> None:
        raise error

    found = gather(numbers(environment(config())).map(TrippingMap("close", exit_)).name("it"))
    assert sorted(found) == list(range(RECORDS))
    assert "operator 'it', subtask 0: closing its function failed" in caplog.text
    env = environment(config(interval_ms=2, restart=strom.NoRestart()))
    with pytest.raises(strom.JobFailedError, match=f"'the sink'.*{type(error).__name__}"):
        run_into(numbers(env), ListSink("prepare_commit in the background", exit_))


def test_a_keyboard_interrupt_in_a_function_fails_the_job() -> None:
    """Like every other error: the one of a person at the keyboard is raised elsewhere."""

    def interrupt(n: Any) -> Any:
        raise KeyboardInterrupt

    text = failure(numbers(environment(config())).map(interrupt).name("it"))
    assert "operator 'it', subtask 0: KeyboardInterrupt" in text


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text for you")


def test_an_error_without_a_text() -> None:
    def raise_(n: Any) -> Any:
        raise Unprintable

    text = failure(numbers(environment(config())).map(raise_).name("it"))
    assert "operator 'it'" in text
    assert "Unprintable" in text


@pytest.mark.parametrize(
    "result",
    [
        "a text",
        None,
        1,
        (1,),
        (1, "x", 2),
        ("x", 1),
        {"n": 1, "other": "x"},
        (2**70, "x"),
        (1.5, ""),
    ],
    ids=repr,
)
def test_a_result_that_is_not_of_the_declared_type(result: Any) -> None:
    env = environment(config())
    text = failure(numbers(env).map(lambda n: result, output_type=_PAIR).name("it"))
    assert "operator 'it'" in text
    assert "TypeMismatchError" in text


def test_what_cannot_be_sent_is_refused_before_anything_starts() -> None:
    import threading

    lock = threading.Lock()
    env = environment(config())
    numbers(env).map(lambda n: (lock, n)).name("it").sink_to(strom.DiscardSink())
    with pytest.raises(strom.SerializationError, match="'it'"):
        env.execute_async("never")


def test_each_subtask_and_attempt_has_its_own_function_object(tmp_path: Any) -> None:
    """As on Ray, where each is unpickled: what is kept on `self` is neither shared by subtasks
    nor does it outlive a failure."""

    class Counting(strom.MapFunction):
        def __init__(self, trip: Trip) -> None:
            self.trip = trip
            self.opened = 0
            self.seen = 0

        def open(self, runtime_context: Any) -> None:
            self.opened += 1

        def map(self, value: Any) -> Any:
            self.seen += 1
            if value == RECORDS // 2:
                self.trip()
            return (self.opened, self.seen)

    env = environment(config(interval_ms=1000))
    found = gather(numbers(env).map(Counting(Once(tmp_path))))
    assert (tmp_path / "raised").exists()
    assert {opened for opened, _ in found} == {1}
    half = list(range(1, RECORDS // 2 + 1))
    assert sorted(seen for _, seen in found) == sorted(half + half)
