"""State descriptors, under PyFlink's names: what a function asks its runtime context for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..core.errors import ConfigurationError
from .migration import NO_MIGRATION, StateMigration
from .ttl import StateTtlConfig


class StateDescriptor:
    """`name` is unique within an operator and is the state's identity across restores. `type_info`
    is a type of `Types`, an Arrow type, or int, float, bool, str or bytes: what is written must fit
    (`declared_types`); None, or anything else, takes every value."""

    def __init__(self, name: str, type_info: Any = None) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigurationError(
                f"{type(self).__name__}: the name must be a non-empty string, is {name!r}: "
                "state is found again by it"
            )
        self.name = name
        self.type_info = type_info
        self.ttl_config: StateTtlConfig | None = None
        """None: what is stored lives for ever."""
        self.migration = NO_MIGRATION

    def get_name(self) -> str:
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """What is stored expires as this says. Before the descriptor is given to a runtime context;
        keyed state only."""
        self.ttl_config = ttl_config if ttl_config.is_enabled() else None

    def enable_migration(
        self,
        *,
        rename: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
        drop: Iterable[str] = (),
    ) -> None:
        """What has become of the fields of values stored by an earlier program: dataclasses, named
        tuples, rows and dictionaries of a declared row type. `rename`: new names by old ones;
        `defaults`: what new fields are in old values; `drop`: old fields that are let go. Before
        the descriptor is given to a runtime context."""
        who = f"{type(self).__name__} '{self.name}'"
        self.migration = StateMigration.of(who, rename, defaults, drop)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, type_info={self.type_info!r})"


class ValueStateDescriptor(StateDescriptor):
    """One value per key."""

    def __init__(self, name: str, value_type_info: Any = None) -> None:
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor):
    """A list per key (keyed state), or per subtask (operator state), of elements of this type."""

    def __init__(self, name: str, elem_type_info: Any = None) -> None:
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor):
    """A map per key. `type_info` is the map key's type."""

    def __init__(self, name: str, key_type_info: Any = None, value_type_info: Any = None) -> None:
        super().__init__(name, key_type_info)
        self.value_type_info = value_type_info


class ReducingStateDescriptor(StateDescriptor):
    """One value per key into which `reduce_function(a, b)` (or a ReduceFunction) folds each
    addition."""

    def __init__(
        self,
        name: str,
        reduce_function: Callable[[Any, Any], Any] | Any,
        type_info: Any = None,
    ) -> None:
        super().__init__(name, type_info)
        self.reduce_function = reduce_function

    def get_reduce_function(self) -> Any:
        return self.reduce_function


class AggregatingStateDescriptor(StateDescriptor):
    """An accumulator per key, driven by an AggregateFunction. `type_info` is the accumulator's."""

    def __init__(self, name: str, agg_function: Any, state_type_info: Any = None) -> None:
        super().__init__(name, state_type_info)
        self.agg_function = agg_function

    def get_agg_function(self) -> Any:
        return self.agg_function
