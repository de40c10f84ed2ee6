"""Map, flat map and filter functions with keyed state, as keyed process functions.

A function object on a keyed stream may ask its runtime context for state of the current key, which
only a keyed operator has. A plain callable cannot, and takes the cheaper unkeyed operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
)


class _Keyed(KeyedProcessFunction):
    """Owns the user's function and passes its lifecycle on."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        self.function.open(runtime_context)

    def close(self) -> None:
        self.function.close()


class KeyedMap(_Keyed):
    function: MapFunction

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        return [self.function.map(value)]


class KeyedFlatMap(_Keyed):
    function: FlatMapFunction

    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterable[Any] | None:
        return self.function.flat_map(value)


class KeyedFilter(_Keyed):
    function: FilterFunction

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        return [value] if self.function.filter(value) else []
