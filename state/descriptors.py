"""State descriptors, under PyFlink's names: what a function asks its runtime context for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StateDescriptor:
    """`name` is unique within an operator and is the state's identity across restores. `type_info`
    is a type of `Types`, an Arrow type, or int, float, bool, str or bytes: what is written must fit
    (`declared_types`); None, or anything else, takes every value."""

    name: str
    type_info: Any = None

    def get_name(self) -> str:
        return self.name


@dataclass(frozen=True)
class ValueStateDescriptor(StateDescriptor):
    """One value per key."""


@dataclass(frozen=True)
class ListStateDescriptor(StateDescriptor):
    """A list per key (keyed state), or per subtask (operator state)."""


@dataclass(frozen=True)
class MapStateDescriptor(StateDescriptor):
    """A map per key. `type_info` is the key's, `value_type_info` the value's type."""

    value_type_info: Any = None


@dataclass(frozen=True)
class ReducingStateDescriptor(StateDescriptor):
    """One value per key into which `reduce_function(a, b)` (or a ReduceFunction) folds each
    addition."""

    reduce_function: Callable[[Any, Any], Any] | Any = None

    def __init__(self, name: str, reduce_function: Any, type_info: Any = None) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "reduce_function", reduce_function)
        object.__setattr__(self, "type_info", type_info)

    def get_reduce_function(self) -> Any:
        return self.reduce_function


@dataclass(frozen=True)
class AggregatingStateDescriptor(StateDescriptor):
    """An accumulator per key, driven by an AggregateFunction."""

    agg_function: Any = None

    def __init__(self, name: str, agg_function: Any, state_type_info: Any = None) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "agg_function", agg_function)
        object.__setattr__(self, "type_info", state_type_info)

    def get_agg_function(self) -> Any:
        return self.agg_function
