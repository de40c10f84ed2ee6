"""What can only fail later is an error in the line that says it."""

from __future__ import annotations

from typing import Any

import pytest
from strom import (
    ConfigurationError,
    JobFailedError,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)


async def later(value: Any) -> Any:
    return value


class Later(MapFunction):
    async def map(self, value: Any) -> Any:  # type: ignore[override]
        return value


@pytest.fixture
def stream() -> Any:
    return StreamExecutionEnvironment.get_execution_environment().from_collection([1])


@pytest.mark.parametrize("method", ["map", "flat_map", "filter", "key_by"])
def test_coroutine_functions(stream: Any, method: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{method}.*'async def'.*AsyncDataStream"):
        getattr(stream, method)(later)


def test_coroutine_methods(stream: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"map: .*'async def'"):
        stream.map(Later())


def test_tuples_without_fields() -> None:
    with pytest.raises(ConfigurationError, match="TUPLE: a tuple without fields"):
        Types.TUPLE([])


@pytest.mark.parametrize("name", ["", None, 1])
def test_names_of_states(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="ValueStateDescriptor: the name must be"):
        ValueStateDescriptor(name)


class Nothing(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self.kept = context.get_list_state(ListStateDescriptor("kept"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.kept.update(None)


def test_lists_of_nothing(stream: Any) -> None:
    result = stream.key_by(lambda value: value).process(Nothing())
    with pytest.raises(JobFailedError, match=r"list state's update takes an iterable.*got None"):
        result.execute_and_collect(limit=1)
