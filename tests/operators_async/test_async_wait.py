"""Asynchronous operators under the harness: virtual time, one thread."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from strom import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    JobConfig,
    OperatorError,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
)
from strom.core.elements import MAX_TIMESTAMP, StreamStatus, Watermark
from strom.testing.operator_harness import OperatorHarness


class Waits(AsyncFunction[Any, Any]):
    """Answers a number `n` after `n` ms of virtual time, once per thousand that it has more."""

    def __init__(self, late: Any = None) -> None:
        self.late = late
        self.asked: list[Any] = []

    async def async_invoke(self, value: Any) -> list[Any]:
        self.asked.append(value)
        await asyncio.sleep(value % 1000 / 1000)
        return [value] * max(1, value // 1000)

    def timeout(self, value: Any) -> list[Any]:
        if self.late is None:
            return super().timeout(value)
        return [(self.late, value)]


def harness(
    function: Any,
    ordered: bool = True,
    timeout: int = 0,
    capacity: int = 100,
    retry: Any = None,
    output_type: Any = None,
    **settings: Any,
) -> OperatorHarness:
    env = StreamExecutionEnvironment.get_execution_environment()
    name = "ordered_wait_with_retry" if ordered else "unordered_wait_with_retry"
    wait = getattr(AsyncDataStream, name)
    retry = retry or AsyncRetryStrategy.no_restart()
    stream = wait(env.from_collection([]), function, timeout, retry, capacity, output_type)
    return OperatorHarness.of(stream, **settings)


def test_ordered_results_keep_the_order_and_the_times() -> None:
    run = harness(Waits())
    run.push([30, 10, 20], timestamps=[1, 2, 3])
    run.advance_processing_time(25)
    assert run.outputs() == []
    run.advance_processing_time(30)
    assert run.stamped_outputs() == [(30, 1), (10, 2), (20, 3)]


def test_unordered_results_come_as_they_are_answered() -> None:
    run = harness(Waits(), ordered=False)
    run.push([30, 10, 3020], timestamps=[1, 2, 3])
    run.advance_processing_time(25)
    assert run.stamped_outputs() == [(10, 2), (3020, 3), (3020, 3), (3020, 3)]
    run.advance_processing_time(30)
    assert run.outputs()[-1] == 30


@pytest.mark.parametrize("ordered", [True, False])
def test_watermarks_and_idleness_pass_nothing_in_flight(ordered: bool) -> None:
    run = harness(Waits(), ordered)
    run.watermark(1)
    assert run.controls() == [Watermark(1)]
    run.push([30], timestamps=[5])
    run.watermark(6)
    run.status(False)
    run.push([10], timestamps=[7])
    run.advance_processing_time(20)
    assert run.output.elements == [Watermark(1)]
    run.advance_processing_time(30)
    kinds = [
        e if isinstance(e, (Watermark, StreamStatus)) else e.rows() for e in run.output.elements
    ]
    assert kinds == [Watermark(1), [30], Watermark(6), StreamStatus(False), [10]]


def test_the_capacity_bounds_what_is_in_flight() -> None:
    """Work is parked while records wait for room, and a snapshot may be taken all the time."""
    function = Waits()
    run = harness(function, capacity=2)
    asked = run.operator._spec.function.asked
    run.push([10, 20, 30, 40])
    assert asked == [10, 20]
    assert run.busy
    assert run.settled
    run.push([50])  # from an operator ahead in the chain
    run.watermark(9)
    assert asked == [10, 20]
    assert run.settled
    run.advance_processing_time(10)
    assert asked == [10, 20, 30]
    assert run.outputs() == [10]
    run.advance_processing_time(60)
    assert asked == [10, 20, 30, 40, 50]
    assert not run.busy
    run.advance_processing_time(200)
    assert run.outputs() == [10, 20, 30, 40, 50]
    assert run.controls() == [Watermark(9)]


def test_finish_waits_for_all() -> None:
    run = harness(Waits(), capacity=1)
    run.push([10, 20])
    run.finish()
    assert run.outputs() == []
    assert run.controls() == []
    run.advance_processing_time(1000)
    assert run.outputs() == [10, 20]
    assert run.controls() == [Watermark(MAX_TIMESTAMP)]
    assert not run.busy


def test_results_become_columns_of_the_declared_type() -> None:
    async def pair(value: int) -> list[Any]:
        return [(value, str(value))]

    row = Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()])
    run = harness(pair, output_type=row)
    run.push([1, 2], timestamps=[5, 6])
    (batch,) = run.batches()
    assert batch.data.to_pydict() == {"n": [1, 2], "text": ["1", "2"]}  # type: ignore[union-attr]


def test_many_results_go_out_in_steps() -> None:
    run = harness(Waits(), config=JobConfig(batch_size=4))
    run.pausing = True
    run.push([9005])
    run.pausing = False
    run.pausing = True
    run.advance_processing_time(5)
    seen = [len(run.outputs())]
    while run.busy:
        assert run.settled
        again = harness(Waits(), config=JobConfig(batch_size=4), restored=run.snapshot())
        again.advance_processing_time(1000)
        assert len(run.outputs()) + len(again.outputs()) == 9
        run.resume()
        seen.append(len(run.outputs()))
    assert seen[:3] == [4, 8, 9]


@pytest.mark.parametrize("ordered", [True, False])
def test_what_is_in_flight_is_asked_again_after_a_restore(ordered: bool) -> None:
    run = harness(Waits(), ordered, capacity=2)
    run.push([30, 10, 20], timestamps=[1, 2, 3])
    run.watermark(9)
    run.advance_processing_time(15)
    before = run.outputs()
    assert before == ([] if ordered else [10])
    again = harness(Waits(), ordered, capacity=2, restored=run.snapshot())
    again.push([1], timestamps=[12])
    asked = again.operator._spec.function.asked
    again.advance_processing_time(1000)
    assert asked[:2] == [30, 20]
    assert asked[-1] == 1
    after = again.stamped_outputs()
    if ordered:
        assert after == [(30, 1), (10, 2), (20, 3), (1, 12)]
    else:
        assert sorted(after) == [(1, 12), (20, 3), (30, 1)]
    assert again.controls() == [Watermark(9)]
    where = again.output.elements.index(Watermark(9))
    behind = [row for e in again.output.elements[where + 1 :] for row in e.rows()]  # type: ignore[union-attr]
    assert behind == [1]


def joined(*runs: OperatorHarness) -> Any:
    """The state of several subtasks, as another one is shown it."""
    first, *_ = snapshots = [run.snapshot() for run in runs]
    tables = zip(*(one.operator for one in snapshots), strict=True)
    whole = [
        type(alike[0])(alike[0].name, alike[0].mode, sum((one.items for one in alike), ()))
        for alike in tables
    ]
    return type(first)(first.keyed, tuple(whole), 0)


def test_a_restored_subtask_takes_the_least_watermark() -> None:
    """Records of others, dealt to this subtask, are not behind a watermark that they never saw."""
    run = harness(Waits())
    run.push([30], timestamps=[1])
    run.watermark(9)
    other = harness(Waits())
    other.push([20], timestamps=[2])
    other.watermark(4)
    again = harness(Waits(), restored=joined(run, other))
    again.advance_processing_time(1000)
    assert again.outputs() == [30, 20]
    assert again.controls() == [Watermark(4)]
    again.watermark(3)  # of records that another subtask read before
    again.watermark(5)
    assert again.controls() == [Watermark(4), Watermark(5)]


def test_a_restored_subtask_does_not_wait_for_idle_ones() -> None:
    """Who reads them would not have waited either; if all are idle, the greatest is due."""
    run, idle, later = harness(Waits()), harness(Waits()), harness(Waits())
    run.push([30], timestamps=[1])
    run.watermark(9)
    idle.status(False)
    later.watermark(3)
    later.push([900], timestamps=[4])
    later.status(False)
    for status, reached in ((True, 9), (False, 12)):
        run.watermark(reached)
        run.status(status)
        again = harness(Waits(), restored=joined(run, idle, later))
        again.advance_processing_time(1000)
        assert again.controls() == [Watermark(reached)]
        again.close()
    for one in (run, idle, later):
        one.close()


class Spoils(AsyncFunction[Any, Any]):
    """Changes the record before it waits, and fails or is late as often as it is told to."""

    def __init__(self, fails: int = 0) -> None:
        self.fails = fails

    async def async_invoke(self, value: Any) -> list[Any]:
        value["n"] += 1
        value["seen"].append(value["n"])
        await asyncio.sleep(0.01)
        if self.fails:
            self.fails -= 1
            raise ConnectionError("down")
        return [(value["n"], value["seen"])]

    def timeout(self, value: Any) -> list[Any]:
        value["n"] += 10
        return [(value["n"], value["seen"])]


def test_a_record_that_a_coroutine_has_changed_is_asked_again_as_it_came() -> None:
    expected = [(1, [1])]
    run = harness(Spoils())
    run.push([{"n": 0, "seen": []}])
    run.advance_processing_time(5)
    again = harness(Spoils(), restored=run.snapshot())
    again.advance_processing_time(100)
    run.advance_processing_time(100)
    assert run.outputs() == again.outputs() == expected
    down = AsyncRetryStrategy.fixed_delay(2, 10, None, lambda e: True)
    run = harness(Spoils(2), retry=down)
    run.push([{"n": 0, "seen": []}])
    run.advance_processing_time(100)
    assert run.outputs() == expected
    run = harness(Spoils(), timeout=5)
    run.push([{"n": 0, "seen": []}])
    run.advance_processing_time(100)
    assert run.outputs() == [(10, [])]
    run.close()
    again.close()


def test_what_the_coroutine_has_is_its_own() -> None:
    """Whoever else reads the stream has the record as it was."""
    record = {"n": 0, "seen": []}
    run = harness(Spoils())
    run.push([record])
    run.advance_processing_time(100)
    assert record == {"n": 0, "seen": []}


def test_a_record_that_cannot_be_copied_is_asked_all_the_same() -> None:
    record = (x for x in range(3))

    async def counted(value: Any) -> list[Any]:
        return [list(value)]

    run = harness(counted)
    run.push([record])
    assert run.outputs() == [[0, 1, 2]]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_list_that_is_filled_again_holds_nobodys_results(ordered: bool) -> None:
    class Reuses(AsyncFunction[Any, Any]):
        answers: ClassVar[list[Any]] = []

        async def async_invoke(self, value: Any) -> list[Any]:
            await asyncio.sleep(value / 1000)
            self.answers[:] = [value]
            return self.answers

        def timeout(self, value: Any) -> list[Any]:
            self.answers[:] = [value]
            return self.answers

    for timeout in (0, 3):
        run = harness(Reuses(), ordered, timeout)
        run.push([1, 2, 9, 10])
        run.advance_processing_time(100)
        assert sorted(run.outputs()) == [1, 2, 9, 10]
        run.close()


# --- what goes wrong -----------------------------------------------------------------------


async def gives(value: Any) -> Any:
    return value


async def raises(value: Any) -> list[Any]:
    raise value


def test_what_is_no_list_fails_by_name() -> None:
    for value in (None, "ab", ("a", 1), {"a": 1}, 5):
        run = harness(gives)
        with pytest.raises(OperatorError, match=r"'operator', subtask 0: .*return a list") as error:
            run.push([value])
        assert repr(value) in str(error.value)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        StopIteration(),
        asyncio.CancelledError(),
        SystemExit(3),
        GeneratorExit(),
        BaseException("odd"),
        TimeoutError("theirs"),
    ],
)
def test_whatever_is_raised_fails_by_name(error: BaseException) -> None:
    run = harness(raises, ordered=False)
    with pytest.raises(OperatorError, match=r"operator 'operator', subtask 0: .*") as raised:
        run.push([error])
    assert f"{type(error).__name__}" in raised.value.summary
    assert "for the record" in raised.value.summary
    assert "in raises" in raised.value.summary
    run.close()


def test_a_timeout_fails_by_name_unless_it_has_results() -> None:
    run = harness(Waits(), timeout=50)
    run.push([10, 900, 20])
    with pytest.raises(
        OperatorError, match=r"did not end within 0.05 s for the record 900"
    ) as late:
        run.advance_processing_time(60)
    assert "TimeoutError" in late.value.summary
    run.close()


def test_a_late_record_has_the_results_that_timeout_gives() -> None:
    run = harness(Waits("late"), timeout=50)
    run.push([10, 900, 20], timestamps=[1, 2, 3])
    run.advance_processing_time(100)
    assert run.stamped_outputs() == [(10, 1), (("late", 900), 2), (20, 3)]
    run.advance_processing_time(2000)
    assert len(run.outputs()) == 3
    run.close()


def test_what_timeout_gives_is_checked() -> None:
    run = harness(Waits(), timeout=50)
    run.operator._spec.function.timeout = lambda value: None
    run = OperatorHarness(run.operator._spec)
    run.push([900])
    with pytest.raises(OperatorError, match="return a list"):
        run.advance_processing_time(60)
    run.close()


class Flaky(AsyncFunction[Any, Any]):
    """Fails, then gives nothing, then the answer."""

    def __init__(self) -> None:
        self.times: list[float] = []

    async def async_invoke(self, value: Any) -> list[Any]:
        self.times.append(asyncio.get_running_loop().time() * 1000)
        if len(self.times) == 1:
            raise ConnectionError("down")
        return [] if len(self.times) == 2 else [value]


def test_retries_after_errors_and_unwanted_results() -> None:
    strategy = AsyncRetryStrategy.exponential_backoff(
        3, 10, 1000, 3.0, lambda results: not results, lambda e: isinstance(e, ConnectionError)
    )
    run = harness(Flaky(), retry=strategy)
    run.push(["x"], timestamps=[4])
    run.advance_processing_time(1000)
    assert run.stamped_outputs() == [("x", 4)]
    times = run.operator._spec.function.times
    assert [round(at - times[0]) for at in times] == [0, 10, 40]


def test_the_last_attempt_counts() -> None:
    down = AsyncRetryStrategy.fixed_delay(2, 10, None, lambda e: True)
    run = harness(raises, retry=down)
    run.push([ValueError("always")])
    with pytest.raises(OperatorError, match=r"failed at attempt 3 .*ValueError: always"):
        run.advance_processing_time(1000)
    empty = AsyncRetryStrategy.fixed_delay(2, 10, lambda results: True, None)
    run = harness(gives, retry=empty)
    run.push([[7]])
    run.advance_processing_time(1000)
    assert run.outputs() == [7]


def test_a_timeout_ends_retries() -> None:
    down = AsyncRetryStrategy.fixed_delay(100, 20, None, lambda e: True)
    run = harness(raises, retry=down, timeout=50)
    run.push([ValueError("always")])
    with pytest.raises(OperatorError, match=r"did not end within 0.05 s"):
        run.advance_processing_time(1000)


def test_what_a_predicate_raises_fails_by_name() -> None:
    def broken(_: Any) -> bool:
        raise LookupError("my predicate")

    for value, strategy in (
        (ValueError("x"), AsyncRetryStrategy.fixed_delay(2, 10, None, broken)),
        ([1], AsyncRetryStrategy.fixed_delay(2, 10, broken, None)),
    ):
        run = harness(raises if isinstance(value, Exception) else gives, retry=strategy)
        with pytest.raises(OperatorError, match="LookupError: my predicate"):
            run.push([value])


class Lifecycle(AsyncFunction[Any, Any]):
    """All of its methods see the loop that its coroutines run on."""

    calls: ClassVar[list[str]] = []

    async def open(self, runtime_context: RuntimeContext) -> None:  # type: ignore[override]
        self.loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        self.calls.append(f"open {runtime_context.get_index_of_this_subtask()}")

    async def async_invoke(self, value: Any) -> list[Any]:
        assert self.loop is asyncio.get_running_loop()
        await asyncio.sleep(1)
        return [value]

    def timeout(self, value: Any) -> list[Any]:
        assert self.loop is asyncio.get_running_loop()
        return ["late"]

    async def close(self) -> None:  # type: ignore[override]
        assert self.loop is asyncio.get_running_loop()
        await asyncio.sleep(0)
        self.calls.append("close")


def test_everything_of_the_function_runs_on_the_loop() -> None:
    Lifecycle.calls.clear()
    run = harness(Lifecycle(), timeout=10)
    run.push([1])
    run.advance_processing_time(50)
    assert run.outputs() == ["late"]
    run.close()
    assert Lifecycle.calls == ["open 0", "close"]


def test_state_is_plain_of_slices_too() -> None:
    """A snapshot of a slice of a batch of columns holds the slice."""
    env = StreamExecutionEnvironment.get_execution_environment()

    async def never(batch: pa.RecordBatch) -> pa.RecordBatch:
        await asyncio.sleep(3600)
        return batch

    source = env.from_collection([(1,)], Types.ROW_NAMED(["n"], [Types.LONG()]))
    run = OperatorHarness.of(source.async_map_batches(never))
    whole = pa.record_batch({"n": list(range(100_000))})
    from strom import ColumnBatch

    run.push(ColumnBatch(whole.slice(5, 10)))
    table = run.snapshot().operator[0]
    assert len(table.items) == 1
    assert len(table.items[0]) < 2000
    run.close()
