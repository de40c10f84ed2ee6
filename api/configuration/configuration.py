"""`Configuration`: keys and values, from code, files, the environment and the command line."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypeVar

from ...core.errors import ConfigurationError
from ...core.redaction import redacted_values
from .loading import from_arguments, from_yaml, read_file
from .options import ConfigOption
from .values import BOOLEAN, FLOAT, INTEGER, ValueType, read_list, to_text

T = TypeVar("T")
D = TypeVar("D")


class Configuration:
    """Keys and their values, as in Flink's `config.yaml`.

    Any key may be set and read; `get_execution_environment(configuration)` and `env.configure`
    look at those that mean something to strom (docs/configuration.md lists them). Values keep the
    type they were set with, and are read as any type they can be.

    >>> configuration = Configuration()
    >>> configuration.set_string("parallelism.default", "4")
    >>> configuration.get_integer("parallelism.default", 1)
    4
    """

    def __init__(self, other: Configuration | None = None) -> None:
        self._values: dict[str, Any] = {}
        self._origins: dict[str, str] = {}
        """Where a key was set, of those that were not set in code."""
        if other is not None:
            self.add_all(other)

    # --- where it comes from -----------------------------------------------------------------

    @staticmethod
    def from_dict(map: Mapping[str, Any]) -> Configuration:
        """Of keys and values."""
        configuration = Configuration()
        for key, value in map.items():
            configuration._put(key, value)
        return configuration

    @staticmethod
    def from_file(path: str | Path) -> Configuration:
        """Of a YAML file, nested or flat; of a folder its `config.yaml`. ConfigurationError if
        there is none."""
        file = Path(path)
        if file.is_dir():
            file = file / "config.yaml"
        return Configuration.of_origin(from_yaml(read_file(file), str(file)), f"in {file}")

    @staticmethod
    def from_yaml(text: str) -> Configuration:
        """Of the text of such a file."""
        return Configuration.of_origin(from_yaml(text, "the text"), "in the text")

    @staticmethod
    def from_args(args: Sequence[str] | None = None) -> Configuration:
        """Of a command line's `-Dkey=value` or `-D key=value`; `args` None: that of this program.
        All other arguments are left alone: `remaining_args` gives them."""
        import sys

        values, _ = from_arguments(sys.argv[1:] if args is None else args)
        return Configuration.of_origin(values, "on the command line")

    @staticmethod
    def remaining_args(args: Sequence[str] | None = None) -> list[str]:
        """What `from_args` leaves, for the program's own parser."""
        import sys

        return from_arguments(sys.argv[1:] if args is None else args)[1]

    @staticmethod
    def of_origin(values: Mapping[str, Any], origin: str) -> Configuration:
        """Of keys and values, and for messages where these come from ('': from code)."""
        configuration = Configuration.from_dict(values)
        configuration._origins = dict.fromkeys(values, origin) if origin else {}
        return configuration

    # --- typed values ------------------------------------------------------------------------

    def get_string(self, key: str, default_value: str) -> str:
        """The value as text, as `to_dict` has it."""
        return to_text(self._values[key]) if key in self._values else default_value

    def set_string(self, key: str, value: str) -> None:
        self._put(key, self._of(str, key, value))

    def get_integer(self, key: str, default_value: int) -> int:
        """ConfigurationError if the value is no integer; so for the other types."""
        return self.read(INTEGER, key, default_value)

    def set_integer(self, key: str, value: int) -> None:
        self._put(key, self._of(int, key, value))

    def get_boolean(self, key: str, default_value: bool) -> bool:
        return self.read(BOOLEAN, key, default_value)

    def set_boolean(self, key: str, value: bool) -> None:
        self._put(key, self._of(bool, key, value))

    def get_float(self, key: str, default_value: float) -> float:
        return self.read(FLOAT, key, float(default_value))

    def set_float(self, key: str, value: float) -> None:
        self._put(key, float(self._of((int, float), key, value)))

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        """Only what was set as bytes."""
        if key not in self._values:
            return bytearray(default_value)
        value = self._values[key]
        if not isinstance(value, (bytes, bytearray)):
            raise self.error(key, f"it holds no bytes, but {value!r}")
        return bytearray(value)

    def set_bytearray(self, key: str, value: bytearray) -> None:
        self._put(key, bytes(self._of((bytes, bytearray), key, value)))

    def get(self, option: ConfigOption[T], default_value: T | None = None) -> T | None:
        """The option's value, else `default_value`, else the option's default (None if it has
        none)."""
        otherwise = option.default if default_value is None else default_value
        found = next((k for k in (option.key, *option.old_keys) if k in self._values), option.key)
        return self.read(option.type, found, otherwise)

    def set(self, option: ConfigOption[T], value: T) -> Configuration:
        """Give the option a value, which is checked."""
        try:
            self._put(option.key, option.type.read(value))
        except ConfigurationError as error:
            raise ConfigurationError(f"option '{option.key}': {error}") from None
        return self

    def contains(self, option: ConfigOption[Any]) -> bool:
        """Whether it is set, under its key or an old one."""
        return any(key in self._values for key in (option.key, *option.old_keys))

    @staticmethod
    def parse_list_value(value: str) -> list[str]:
        """`a;b` or `[a, b]` as a list.

        >>> Configuration.parse_list_value("a;'b;c'")
        ['a', 'b;c']
        """
        return read_list(value) if value else []

    # --- all of them -------------------------------------------------------------------------

    def key_set(self) -> Set[str]:
        return set(self._values)

    def contains_key(self, key: str) -> bool:
        return key in self._values

    def add_all(self, other: Configuration, prefix: str | None = None) -> None:
        """Take all of `other`'s keys, with `prefix` in front; they replace those that are here."""
        for key, value in other._values.items():
            whole = f"{prefix or ''}{key}"
            self._put(whole, value)
            if key in other._origins:
                self._origins[whole] = other._origins[key]

    def only(self, keys: Iterable[str]) -> Configuration:
        """Of these keys those that are set, with where they were."""
        found = Configuration()
        for key in keys:
            if key in self._values:
                found._put(key, self._values[key])
                if key in self._origins:
                    found._origins[key] = self._origins[key]
        return found

    def add_all_to_dict(self, target_dict: dict[str, str]) -> None:
        target_dict.update(self.to_dict())

    def to_dict(self) -> dict[str, str]:
        """All values as text: what may stand in a file. Bytes as base64."""
        return {key: to_text(value) for key, value in self._values.items()}

    def remove_config(self, key: str) -> bool:
        """Whether there was one."""
        self._origins.pop(key, None)
        return self._values.pop(key, _NOTHING) is not _NOTHING

    def raw(self, key: str) -> Any:
        """The value as it was set; KeyError if it was not."""
        return self._values[key]

    def origin(self, key: str) -> str:
        """Where the key was set, for messages: '' if in code."""
        return self._origins.get(key, "")

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> Configuration:
        return Configuration(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Configuration:
        copied = Configuration(self)
        copied._values = copy.deepcopy(self._values, memo)
        return copied

    def __str__(self) -> str:
        return str(self._shown())

    def __repr__(self) -> str:
        return f"Configuration({self._shown()})"

    def _shown(self) -> dict[str, str]:
        """Without secrets, as logs may have it."""
        return redacted_values(self.to_dict())

    # --- inside ------------------------------------------------------------------------------

    def _put(self, key: str, value: Any) -> None:
        if not isinstance(key, str) or not key:
            raise ConfigurationError(f"the key of a configuration must be a name, is {key!r}")
        if value is None:
            raise ConfigurationError(f"option '{key}' has no value: use remove_config")
        self._values[key] = value
        self._origins.pop(key, None)

    def read(self, kind: ValueType[T], key: str, default: D) -> T | D:
        """The value as one of `kind`; ConfigurationError if it is none."""
        if key not in self._values:
            return default
        try:
            return kind.read(self._values[key])
        except ConfigurationError as error:
            raise self.error(key, str(error)) from None

    def _of(self, kinds: Any, key: str, value: Any) -> Any:
        """PyFlink's setters take values of their type only."""
        if not isinstance(value, kinds) or (kinds is not bool and isinstance(value, bool)):
            names = getattr(kinds, "__name__", None) or " or ".join(k.__name__ for k in kinds)
            raise ConfigurationError(f"option '{key}' must be {names}, is {value!r}")
        return value

    def error(self, key: str, reason: str) -> ConfigurationError:
        """What is wrong with the value of a key, and where that was set."""
        where = self.origin(key)
        return ConfigurationError(f"option '{key}'{' ' if where else ''}{where}: {reason}")


_NOTHING = object()
