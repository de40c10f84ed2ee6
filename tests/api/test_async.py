"""AsyncDataStream and async_map_batches as a program is written: specs, and mistakes by name."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from strom import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    CheckpointedFunction,
    ConfigurationError,
    ExponentialBackoffDelayRetryStrategy,
    FixedDelayRetryStrategy,
    GraphError,
    NoRetryStrategy,
    RetryPredicate,
    StreamExecutionEnvironment,
    Time,
    Types,
    count,
)
from strom.api.specs.async_io import AsyncMapBatchesSpec, AsyncWaitSpec
from strom.core.batch import schema_text


class Ask(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        return [value]


class Plain(AsyncFunction[int, int]):
    def async_invoke(self, value: int) -> list[int]:  # type: ignore[override]
        return [value]


class LateLater(Ask):
    async def timeout(self, value: int) -> list[int]:  # type: ignore[override]
        return [value]


class Remembers(Ask, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        """Has none."""

    def snapshot_state(self, context: Any) -> None:
        """Has none."""


class RemembersBatches(Remembers):
    async def __call__(self, batch: Any) -> Any:
        return batch


async def ask(value: Any) -> list[Any]:
    return [value]


class Model:
    async def __call__(self, batch: Any) -> Any:
        return batch


@pytest.fixture
def numbers() -> Any:
    return StreamExecutionEnvironment.get_execution_environment().from_collection([1, 2])


def spec_of(stream: Any) -> Any:
    return stream._settable("test").spec


def test_the_parameters_are_those_of_pyflink() -> None:
    plain = ["data_stream", "async_function", "timeout", "capacity", "output_type"]
    retried = [*plain[:3], "async_retry_strategy", *plain[3:]]
    for order in ("ordered", "unordered"):
        for name, want in ((f"{order}_wait", plain), (f"{order}_wait_with_retry", retried)):
            found = inspect.signature(getattr(AsyncDataStream, name)).parameters
            assert list(found) == want
            assert found["capacity"].default == 100


def test_specs(numbers: Any) -> None:
    function, row = Ask(), Types.ROW_NAMED(["n"], [Types.LONG()])
    asked = AsyncDataStream.ordered_wait(numbers, function, Time.seconds(2), 7, row)
    want = AsyncWaitSpec(
        function=function, timeout_s=2.0, capacity=7, ordered=True, schema=pa.schema({"n": "int64"})
    )
    assert spec_of(asked) == want
    retry = AsyncRetryStrategy.fixed_delay(3, 10)
    asked = AsyncDataStream.unordered_wait_with_retry(numbers, ask, 0, retry)
    assert spec_of(asked) == AsyncWaitSpec(
        function=ask, timeout_s=None, capacity=100, ordered=False, retry=retry
    )
    assert asked._settable("test").name == "UnorderedWait"
    batches = numbers.async_map_batches(
        Model, "pandas", timeout=timedelta(seconds=1), ordered=False
    )
    assert spec_of(batches) == AsyncMapBatchesSpec(
        function=Model, timeout_s=1.0, capacity=100, ordered=False, batch_format="pandas"
    )


def test_batches_have_the_same_settings_under_the_same_names(numbers: Any) -> None:
    settings = inspect.signature(numbers.async_map_batches).parameters
    assert settings["capacity"].default == 100
    retry = AsyncRetryStrategy.fixed_delay(3, 10)
    assert spec_of(numbers.async_map_batches(Model, async_retry_strategy=retry)).retry == retry
    with pytest.raises(ConfigurationError, match="batches: expected an AsyncRetryStrategy"):
        numbers.async_map_batches(Model, async_retry_strategy=3)


def test_the_columns_of_results_are_known(numbers: Any) -> None:
    row = Types.ROW_NAMED(["n"], [Types.LONG()])
    asked = AsyncDataStream.ordered_wait(numbers, ask, 0, output_type=row)
    with pytest.raises(GraphError, match=r"has no column 'm'"):
        asked.key_by("m")
    assert schema_text(spec_of(asked).result_schema(None, None)) == "[n: int64]"


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (Plain(), "must be declared as 'async def'"),
        (Ask, "got the class Ask; pass an instance"),
        (LateLater(), "must be a plain 'def'"),
        (lambda value: [value], "an AsyncFunction or an 'async def'"),
        (None, "an AsyncFunction or an 'async def'"),
        (Remembers(), "Remembers is a CheckpointedFunction, but requests run beside"),
    ],
)
def test_functions_that_are_none(numbers: Any, function: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^ordered_wait: .*{says}"):
        AsyncDataStream.ordered_wait(numbers, function, 1000)


@pytest.mark.parametrize(
    "function", [lambda batch: batch, None, Ask(), Ask, dict, RemembersBatches]
)
def test_batch_functions_that_are_none(numbers: Any, function: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^async_map_batches: "):
        numbers.async_map_batches(function)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"timeout": -1}, "timeout"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": None}, "timeout"),
        ({"timeout": 1, "capacity": 0}, "capacity"),
        ({"timeout": 1, "capacity": 1.5}, "capacity"),
    ],
)
def test_settings_are_checked(numbers: Any, settings: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^unordered_wait: {says}"):
        AsyncDataStream.unordered_wait(numbers, Ask(), **settings)


def test_what_is_no_stream_no_strategy_no_format(numbers: Any) -> None:
    with pytest.raises(ConfigurationError, match="ordered_wait: expected a DataStream"):
        AsyncDataStream.ordered_wait([1], Ask(), 1)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="with_retry: expected an AsyncRetryStrategy"):
        AsyncDataStream.ordered_wait_with_retry(numbers, Ask(), 1, 3)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="async_map_batches: batch_format must be one"):
        numbers.async_map_batches(Model, "csv")


def test_strategies_are_pyflinks() -> None:
    assert isinstance(AsyncRetryStrategy.no_restart(), NoRetryStrategy)
    fixed = AsyncRetryStrategy.fixed_delay(2, 30, None, None)
    assert isinstance(fixed, FixedDelayRetryStrategy)
    assert [fixed.can_retry(n) for n in (1, 2, 3)] == [True, True, False]
    assert fixed.get_backoff_time_millis(2) == 30
    growing = AsyncRetryStrategy.exponential_backoff(2, 30, 100, 2.5, None, None)
    assert isinstance(growing, ExponentialBackoffDelayRetryStrategy)
    assert [growing.get_backoff_time_millis(n) for n in (1, 2, 3, 5000)] == [30, 75, 100, 100]
    assert growing.get_backoff_time_millis(2) == 75, "it remembers nothing of another request"
    assert NoRetryStrategy[Any]().get_backoff_time_millis(1) == -1
    predicate = RetryPredicate[Any](bool, None)
    assert predicate.result_predicate() is bool
    assert predicate.exception_predicate() is None


def changelog() -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection(pa.table({"k": ["a"], "n": [1]})).key_by("k")


def test_a_changelog_is_asked_in_order_only() -> None:
    rows = changelog().aggregate(n=count())
    with pytest.raises(GraphError, match="may pass each other; ask in order"):
        AsyncDataStream.unordered_wait(rows, ask, 0)
    with pytest.raises(GraphError, match="may pass each other; ask in order"):
        rows.async_map_batches(Model, ordered=False)
    AsyncDataStream.ordered_wait(rows, ask, 0)


def test_upserts_are_not_hidden_behind_a_request() -> None:
    """A reader that needs -U is told so, as it is behind a map."""
    upserts = changelog().aggregate(changelog="upsert", n=count())
    kinds = Types.ROW_NAMED(["k", "n", "__row_kind"], [Types.STRING(), Types.LONG(), Types.BYTE()])
    asked = AsyncDataStream.ordered_wait(upserts, ask, 0, output_type=kinds)
    with pytest.raises(GraphError, match="upsert changelog"):
        asked.key_by("k").aggregate(total=count())
