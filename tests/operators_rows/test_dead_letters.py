"""Records for which functions raise: put aside, counted through restarts and rescales, bounded."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import strom
from drawn_ways import assert_equivalent
from letters_kit import DEAD, MOST, RECORDS, letters, pushed, source
from strom import Row, Types, WatermarkStrategy, dead_letters
from strom.core.errors import OperatorError, StateError
from strom.testing.equivalence import Ways
from strom.testing.operator_harness import OperatorHarness

TIMES = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
    lambda n, _: n if n % 10 != 1 else int("no time")
)


class Totals(strom.KeyedProcessFunction):
    """Counts a key's records, and says the count when event time has passed the record."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(strom.ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(ctx.timestamp())
        yield ("half", value)
        if value % 10 == 3:
            raise LookupError(f"{value} in the middle")
        yield (strom.OutputTag("aside"), value)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ("timer", timestamp)
        if timestamp % 10 == 4:
            raise RuntimeError("late")


def chain(limit: int | None) -> Any:
    """A pipeline with a poison record in each place: by the last digit of the number."""
    put_aside = dead_letters(limit)

    def build(env: Any) -> Any:
        numbers = env.from_collection(list(range(RECORDS)))
        timed = numbers.assign_timestamps_and_watermarks(TIMES).on_error(put_aside).uid("times")
        mapped = timed.map(lambda n: n if n % 10 != 2 else {}[n]).on_error(put_aside).uid("map")
        totals = mapped.key_by(lambda n: n % 3).process(Totals()).on_error(put_aside).uid("totals")
        asides = totals.get_side_output(strom.OutputTag("aside"))
        flat = asides.flat_map(parts, output_type=Types.LONG()).on_error(put_aside).uid("flat")
        best = flat.key_by(lambda n: n % 2).reduce(most).on_error(put_aside).uid("most")
        letters = [one.get_dead_letters() for one in (timed, mapped, totals, flat, best)]
        return {
            "totals": totals,
            "flat": flat,
            "letters": letters[0].union(*letters[1:]).map(told),
        }

    return build


def parts(n: int) -> Iterator[Any]:
    yield n
    if n % 10 == 5:
        yield "no number"
    yield n


def most(before: int, n: int) -> int:
    return max(before, n) if n % 10 != 6 else n // 0


def told(letter: Row) -> tuple[Any, ...]:
    return letter.uid, letter.function, letter.error, letter.event_time, letter.record


def expected() -> dict[str, list[Any]]:
    numbers = {digit: range(digit, RECORDS, 10) for digit in range(10)}
    letters: list[Any] = [("times", "extract_timestamp", "ValueError", None, n) for n in numbers[1]]
    letters += [("map", "map", "KeyError", n, n) for n in numbers[2]]
    letters += [("totals", "process_element", "LookupError", n, n) for n in numbers[3]]
    letters += [("totals", "on_timer", "RuntimeError", n, None) for n in numbers[4]]
    letters += [
        ("flat", "flat_map", "strom.core.errors.TypeMismatchError", n, n) for n in numbers[5]
    ]
    letters += [("most", "reduce", "ZeroDivisionError", n, n) for n in numbers[6] for _ in "12"]
    rest = [n for n in range(RECORDS) if n % 10 not in (1, 2)]
    totals = [("half", n) for n in rest if n % 10 != 3]
    totals += [("timer", n) for n in rest if n % 10 != 4]
    flat = [n for n in rest if n % 10 not in (3, 5) for _ in "12"]
    return {"totals": totals, "flat": flat, "letters": letters}


def test_letters_and_results_are_exactly_once_through_crashes_and_rescales() -> None:
    pairs = [(name, one) for name, some in expected().items() for one in some]
    assert_equivalent(chain(MOST), pairs, Ways(seeds=range(2)))


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("I cannot say")

    def __reduce__(self) -> Any:
        raise TypeError("nor pickle")


class Locked:
    def __reduce__(self) -> Any:
        raise TypeError("locked")

    def __repr__(self) -> str:
        raise OSError("no repr")


class Gone:
    """Pickles, and does not come back."""

    def __reduce__(self) -> Any:
        return int, ("gone",)

    def __repr__(self) -> str:
        return "Gone" * 10_000


def test_what_cannot_be_said_or_pickled_is_put_aside_all_the_same() -> None:
    def refuse(_: Any) -> Any:
        raise Mute()

    harness = pushed(source().map(refuse).on_error(dead_letters()), Locked(), Gone(), "x\udce9")
    first, second, third = harness.side_outputs(DEAD)
    assert (first.record, second.record, third.record) == (None, None, "x\udce9")
    assert "repr raises OSError" in first.text
    assert third.text == "'x\\udce9'"
    assert second.text.startswith("GoneGone")
    assert len(second.text) < 3000
    assert "cannot be had" in first.message
    assert first.error.endswith("Mute")
    assert first.event_time is None
    assert first.uid is None
    assert first.operator == "operator"


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), MemoryError(), GeneratorExit(), StateError("broken")],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("method", ["map", "flat_map", "filter", "map_batches"])
def test_what_is_no_matter_of_the_record_fails_the_job(method: str, error: BaseException) -> None:
    def function(_: Any) -> Any:
        raise error

    with pytest.raises(type(error)):
        pushed(getattr(source(), method)(function).on_error(dead_letters()), (1,), (2,))


def test_what_state_raises_fails_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    from strom.state import memory

    class Keeps(strom.KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            ctx.timer_service().register_event_time_timer(1)

    def broken(*_: Any) -> Any:
        raise OSError("the disk is gone")

    stream = source().key_by(lambda n: n).process(Keeps()).on_error(dead_letters())
    harness = OperatorHarness.of(stream)
    queue = type(harness.keyed_state.timers("__event_timers"))
    code = broken.__code__.replace(co_filename=memory.__file__)
    monkeypatch.setattr(queue, "register", type(broken)(code, {"OSError": OSError}))
    with pytest.raises(OSError, match="the disk is gone"):
        harness.push([1])


def test_stop_iteration_is_an_error_like_any_other() -> None:
    def function(n: int) -> Any:
        return [next(v for v in (1, 2) if v == n)]

    for method, good in (("map", [[1], [2]]), ("flat_map", [1, 2]), ("filter", [1, 2])):
        harness = pushed(getattr(source(), method)(function).on_error(dead_letters()), 1, 7, 2)
        assert harness.outputs() == good
        assert letters(harness) == [("StopIteration", 7)]


def test_nothing_of_a_record_goes_out_in_parts() -> None:
    tag = strom.OutputTag("numbers", Types.LONG())

    class Both(strom.ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield (1,)
            yield tag, value

    stream = source().process(Both(), output_type=Types.TUPLE([Types.LONG()]))
    stream.get_side_output(tag)
    harness = pushed(stream.on_error(dead_letters()), *[5, "five", None, 6, object] * 3)
    assert harness.outputs() == [(1,)] * 9
    assert harness.side_outputs("numbers") == [5, None, 6] * 3
    assert [record for _, record in letters(harness)] == ["five", object] * 3


def test_columns_stay_columns_and_event_times_stay_theirs() -> None:
    rows = source().map(lambda n: (n,), output_type=Types.ROW_NAMED(["n"], [Types.LONG()]))
    made = OperatorHarness.of(rows)
    made.push([0, 1, 2, 3], timestamps=[10, 11, 12, 13])
    (batch,) = made.batches()
    kept = OperatorHarness.of(rows.filter(lambda r: 6 // r.n > 2).on_error(dead_letters()))
    kept.push(batch)
    assert type(kept.batches()[0]) is type(batch)
    assert kept.stamped_outputs() == [(Row(n=1), 11), (Row(n=2), 12)]
    assert letters(kept) == [("ZeroDivisionError", Row(n=0))]
    assert [letter.event_time for letter in kept.side_outputs(DEAD)] == [10]
    assert kept.output.side[DEAD][0].timestamps.tolist() == [10]


def test_a_batch_that_raises_is_tried_in_halves() -> None:
    sizes: list[int] = []

    def function(batch: Any) -> Any:
        numbers = batch.column(0).to_pylist()
        sizes.append(len(numbers))
        return {"n": [12 // n for n in numbers]}

    stream = source().map_batches(function).on_error(dead_letters())
    harness = pushed(stream, *[Row(n=n) for n in [1, 2, 3, 0, 4, 6, 12, 0]])
    assert [row.n for row in harness.outputs()] == [12, 6, 4, 3, 2, 1]
    assert letters(harness) == [("ZeroDivisionError", Row(n=0))] * 2
    assert sizes == [8, 4, 2, 2, 1, 1, 4, 2, 2, 1, 1]


def test_the_count_is_of_all_attempts_and_subtasks() -> None:
    def poison(n: int) -> None:
        raise ValueError(n)

    stream = source().map(poison).on_error(dead_letters(limit=5))
    first = pushed(stream, 1, 2)
    again = OperatorHarness.of(stream, restored=first.snapshot())
    again.push([3, 4])
    assert again.metrics.counts == {"numDeadLetters": 4}
    from strom.core.ids import KeyGroupRange
    from strom.testing.operator_harness import regroup

    both = regroup([again.snapshot(), pushed(stream, 5).snapshot()], KeyGroupRange(0, 127))
    full = OperatorHarness.of(stream, restored=both)
    with pytest.raises(OperatorError, match=r"6 of them.*limit=5.*the last one, in map for 6") as e:
        full.push([6])
    assert not e.value.recoverable
    assert "ValueError: 6 (at" in str(e.value)
    assert not letters(full)


def test_lines_of_the_log_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "strom.operators.letters"):
        pushed(source().map(lambda n: n // 0).on_error(dead_letters()), *range(100))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 13
    assert "dead letter 64 of this attempt: map: ZeroDivision" in said[-1]


def test_what_cannot_put_records_aside_is_refused() -> None:
    class Stores(strom.CheckpointedFunction):
        def __call__(self, batch: Any) -> Any: ...
        def initialize_state(self, context: Any) -> None: ...
        def snapshot_state(self, context: Any) -> None: ...

    stream = source()
    for one, message in (
        (stream, r"CollectionSource does not put aside.*read the lines"),
        (stream.print(), "does not call a function"),
        (stream.map_batches(Stores), "keeps state"),
        (stream.map_batches(Stores()), "keeps state"),
    ):
        with pytest.raises(strom.ConfigurationError, match=message):
            one.on_error(dead_letters())
    with pytest.raises(strom.GraphError, match=r"only a view.*key function"):
        stream.key_by(len).on_error(dead_letters())
    with pytest.raises(strom.GraphError, match=r"call on_error\(dead_letters"):
        stream.map(len).get_dead_letters()
    with pytest.raises(strom.ConfigurationError, match="'ignore'"):
        stream.map(len).on_error("ignore")  # type: ignore[arg-type]
    for limit in (-1, True, 1.5):
        with pytest.raises(strom.ConfigurationError, match="limit is how many"):
            dead_letters(limit)  # type: ignore[arg-type]
    assert (
        stream.map(len).on_error(dead_letters()).on_error("fail")._settable("").spec.on_error
        is None
    )


def test_a_job_tells_of_its_letters_and_fails_by_name() -> None:
    env = strom.StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([1, 0, 2, 0]).map(lambda n: 6 // n).name("divide")
    stream.on_error(dead_letters(limit=2)).sink_to(strom.DiscardSink())
    assert "records for which it raises become dead letters; beyond 2 of them" in env.explain()
    assert env.execute().metrics["metrics"]["divide.numDeadLetters"] == 2
    stream.on_error(dead_letters(limit=1))
    stream.sink_to(strom.DiscardSink())
    with pytest.raises(strom.JobFailedError) as failed:
        env.execute()
    text = str(failed.value)
    assert "operator 'divide', subtask 0: records have made its function raise, 2 of them" in text
    assert "dead_letters(limit=1) allows 1; the last one, in map for 0: ZeroDivisionError" in text
    assert f"(at {__file__}:" in text
