"""`ConfigOption`: a key, the type of its value and its default; built as PyFlink and Flink do.

>>> threads = ConfigOptions.key("my.threads").int_type().default_value(4)
>>> threads.key, threads.default
('my.threads', 4)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Any, Generic, TypeVar, cast

from ...core.errors import ConfigurationError
from .memory import MemorySize
from .values import (
    BOOLEAN,
    DURATION,
    FLOAT,
    INTEGER,
    LIST,
    MAP,
    MEMORY,
    STRING,
    ValueType,
    enum_type,
)

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, eq=False)
class ConfigOption(Generic[T]):
    """Read and set with `Configuration.get` and `set`. `old_keys`: under which it is found, too."""

    key: str
    type: ValueType[T]
    default: T | None = None
    description: str = ""
    old_keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.key, str) or not self.key:
            raise ConfigurationError(f"the key of an option must be a name, is {self.key!r}")

    def has_default_value(self) -> bool:
        return self.default is not None

    def default_value(self) -> T | None:
        return self.default

    def with_description(self, description: str) -> ConfigOption[T]:
        return replace(self, description=description)

    def with_deprecated_keys(self, *keys: str) -> ConfigOption[T]:
        """Also found under these keys, if not under its own."""
        return replace(self, old_keys=(*self.old_keys, *keys))


@dataclass(frozen=True)
class TypedConfigOptionBuilder(Generic[T]):
    """The last step: with or without a default."""

    key: str
    type: ValueType[T]

    def default_value(self, value: T) -> ConfigOption[T]:
        return ConfigOption(self.key, self.type, self.type.read(value))

    def no_default_value(self) -> ConfigOption[T]:
        return ConfigOption(self.key, self.type)

    def as_list(self) -> TypedConfigOptionBuilder[list[str]]:
        """A list of texts."""
        return TypedConfigOptionBuilder(self.key, LIST)


@dataclass(frozen=True)
class OptionBuilder:
    """The second step: the type."""

    key: str

    def boolean_type(self) -> TypedConfigOptionBuilder[bool]:
        return TypedConfigOptionBuilder(self.key, BOOLEAN)

    def int_type(self) -> TypedConfigOptionBuilder[int]:
        return TypedConfigOptionBuilder(self.key, INTEGER)

    def long_type(self) -> TypedConfigOptionBuilder[int]:
        return TypedConfigOptionBuilder(self.key, INTEGER)

    def float_type(self) -> TypedConfigOptionBuilder[float]:
        return TypedConfigOptionBuilder(self.key, FLOAT)

    def double_type(self) -> TypedConfigOptionBuilder[float]:
        return TypedConfigOptionBuilder(self.key, FLOAT)

    def string_type(self) -> TypedConfigOptionBuilder[str]:
        return TypedConfigOptionBuilder(self.key, STRING)

    def duration_type(self) -> TypedConfigOptionBuilder[timedelta]:
        return TypedConfigOptionBuilder(self.key, DURATION)

    def memory_type(self) -> TypedConfigOptionBuilder[MemorySize]:
        return TypedConfigOptionBuilder(self.key, MEMORY)

    def map_type(self) -> TypedConfigOptionBuilder[dict[str, str]]:
        return TypedConfigOptionBuilder(self.key, MAP)

    def enum_type(self, enum_class: type[E]) -> TypedConfigOptionBuilder[E]:
        return TypedConfigOptionBuilder(self.key, cast(Any, enum_type(enum_class)))


_Builder = OptionBuilder


class ConfigOptions:
    """Where an option begins."""

    OptionBuilder = OptionBuilder
    TypedConfigOptionBuilder = TypedConfigOptionBuilder

    @staticmethod
    def key(key: str) -> _Builder:
        return _Builder(key)
