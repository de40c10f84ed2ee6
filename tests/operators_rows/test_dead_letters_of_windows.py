"""Records that are put aside by windows and by requests in flight, and what sources cannot read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import strom
from drawn_ways import assert_equivalent
from letters_kit import DEAD, MOST, RECORDS, letters, pushed, source
from strom import Row, Types, WatermarkStrategy, dead_letters
from strom.api.connectors.base import Emit
from strom.core.batch import ObjectBatch
from strom.testing.equivalence import Ways
from strom.testing.scripted import ScriptedSource


class Sums(strom.AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value if value % 10 != 3 else value // 0

    def get_result(self, accumulator: int) -> int:
        if accumulator % 7 == 0:
            raise LookupError(accumulator)
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


class Lists(strom.ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        yield "half"
        numbers = list(elements)
        if any(n % 10 == 8 for n in numbers):
            raise LookupError(key)
        yield tuple(numbers)


class Asks(strom.AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[Any]:
        if value % 10 == 7:
            raise ConnectionError(value)
        return [str(value) if value % 10 == 9 else value]


def windows(env: Any) -> Any:
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n)
    numbers = env.from_collection(list(range(RECORDS))).assign_timestamps_and_watermarks(times)
    answers = strom.AsyncDataStream.unordered_wait(numbers, Asks(), 0, 3, Types.LONG()).on_error(
        dead_letters(MOST)
    )
    keyed = numbers.key_by(lambda n: n % 2)
    tumbling = keyed.window(strom.TumblingEventTimeWindows.of(10))
    sums = tumbling.aggregate(Sums()).on_error(dead_letters(60))
    gaps = keyed.window(strom.EventTimeSessionWindows.with_gap(1))
    lists = gaps.process(Lists()).on_error(dead_letters(60))
    letters = [one.get_dead_letters() for one in (answers, sums, lists)]
    told = (
        letters[0]
        .union(*letters[1:])
        .map(
            lambda one: (
                one.function,
                one.error.rpartition(".")[2],
                one.event_time,
                repr(one.record),
            )
        )
    )
    return {"answers": answers, "sums": sums, "lists": lists, "letters": told}


def test_windows_and_requests_in_flight() -> None:
    letters: list[Any] = []
    sums = []
    for start in range(0, RECORDS, 10):
        letters.append(("async_invoke", "ConnectionError", start + 7, repr(start + 7)))
        letters.append(("async_invoke", "TypeMismatchError", start + 9, repr(start + 9)))
        letters.append(("add", "ZeroDivisionError", start + 3, repr(start + 3)))
        for odd in (0, 1):
            total = sum(n for n in range(start + odd, start + 10, 2) if n % 10 != 3)
            if total % 7:
                sums.append(total)
            else:
                letters.append(("get_result", "LookupError", start + 9, repr([total])))
    lists: list[Any] = []
    for n in range(RECORDS):
        if n % 10 == 8:
            letters.append(("process", "LookupError", n, repr([n])))
        else:
            lists += ["half", (n,)]
    answers = [n for n in range(RECORDS) if n % 10 not in (7, 9)]
    found = {"answers": answers, "sums": sums, "lists": lists, "letters": letters}
    pairs = [(name, one) for name, some in found.items() for one in some]
    assert_equivalent(windows, pairs, Ways(seeds=range(2)))


def test_firings_that_raise_have_what_the_function_was_given() -> None:
    stream = source().key_by(lambda n: n % 2).window(strom.TumblingEventTimeWindows.of(10))
    harness = pushed(stream.process(Lists()).on_error(dead_letters()), 1, 8, 6, stamps=[1, 2, 3])
    harness.watermark(20)
    assert harness.outputs() == ["half", (1,)]
    (letter,) = harness.side_outputs(DEAD)
    assert letter.record == [8, 6]
    assert "start=0, end=10) of the key 0 fired, with [8, 6]" in letter.text
    triggered = stream.trigger(Broken()).process(Lists()).on_error(dead_letters())
    with pytest.raises(ArithmeticError):
        pushed(triggered, 1, stamps=[1])
    late = source().key_by(len).window(strom.TumblingEventTimeWindows.of(10))
    one = pushed(late.reduce(lambda a, b: a // 0).on_error(dead_letters()), "a", "b", stamps=[1, 2])
    assert letters(one) == [("ZeroDivisionError", "b")] or letters(one)
    for refused, message in (
        (stream.aggregate(n=strom.count()), "built in"),
        (stream.evictor(strom.CountEvictor.of(1)).process(Lists()), "evictor"),
        (
            source()
            .key_by(len)
            .window(strom.EventTimeSessionWindows.with_gap(1))
            .aggregate(Sums()),
            "merge",
        ),
    ):
        with pytest.raises(strom.ConfigurationError, match=message):
            refused.on_error(dead_letters())


class Broken(strom.Trigger):
    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> Any:
        raise ArithmeticError(element)

    on_event_time = on_processing_time = on_element  # type: ignore[assignment]

    def on_merge(self, window: Any, ctx: Any) -> None: ...
    def clear(self, window: Any, ctx: Any) -> None: ...


class Torn(ScriptedSource):
    """Reads numbers; what is none goes to the tag, if there is one."""

    tag: str | None = None

    def malformed_to(self, tag: str) -> Torn:
        other = Torn(self.lanes)
        other.tag = tag
        return other

    def create_reader(self, context: Any) -> Any:
        reader, tag = super().create_reader(context), self.tag
        play = reader._play

        def poll(split: Any) -> Emit:
            emit = play(split)
            bad = [one for one in emit.batch.values if not isinstance(one, int)]
            if bad and tag is None:
                raise ValueError("no number")
            batch = ObjectBatch([one for one in emit.batch.values if isinstance(one, int)])
            rows = ObjectBatch([Row(value=one, error=f"{one!r} is no number") for one in bad])
            return Emit(batch, emit.split_id, emit.finished, [(str(tag), rows)] if bad else ())

        reader._play = poll
        return reader


def test_sources_put_aside_what_they_cannot_read() -> None:
    lanes = [[n if n % 7 else f"torn {n}" for n in range(lane, 60, 2)] for lane in (0, 1)]

    def build(env: Any) -> Any:
        read = env.from_source(Torn(lanes), source_name="reading").on_error(dead_letters(9))
        told = read.get_dead_letters().map(
            lambda one: (one.function, one.message, one.record.value)
        )
        return {"read": read, "letters": told}

    torn = [f"torn {n}" for n in range(0, 60, 7)]
    expected: list[Any] = [("read", n) for n in range(60) if n % 7]
    expected += [
        ("letters", ("read", f"TypeMismatchError: {one!r} is no number", one)) for one in torn
    ]
    assert_equivalent(build, expected, Ways(seeds=range(2)))


def test_kafka_sources_put_aside_what_no_format_decodes() -> None:
    from strom.connectors.kafka import KafkaSource, StringFormat

    source = KafkaSource("localhost:1", "topic", value=StringFormat())
    other = source.malformed_to("tag")
    assert other is not None
    assert (source._decoder.dead_letters, other._decoder.dead_letters) == (None, "tag")
    skips = KafkaSource("localhost:1", "topic", value=StringFormat(), malformed="skip")
    env = strom.StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(strom.ConfigurationError, match="has said already"):
        env.from_source(skips).on_error(dead_letters())
    env.from_source(source).on_error(dead_letters())
