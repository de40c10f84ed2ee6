"""Values of options as text: how each type is read from a configuration, and written into one.

Texts are Flink's: `10 s`, `64 mb`, `true`; a list is `a;b` or `[a, b]`, a map `k:v,k:v` or
`{k: v}`. What Flink quotes is quoted: `'a;b';c`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from ...core.errors import ConfigurationError
from .memory import MemorySize

T = TypeVar("T")

_UNITS: Final = {
    "d day days": timedelta(days=1),
    "h hour hours": timedelta(hours=1),
    "m min minute minutes": timedelta(minutes=1),
    "s sec secs second seconds": timedelta(seconds=1),
    "ms milli millis millisecond milliseconds": timedelta(milliseconds=1),
    "µs micro micros microsecond microseconds": timedelta(microseconds=1),
}

_FACTORS: Final = {name: unit for names, unit in _UNITS.items() for name in names.split()}

_NANOSECONDS: Final = {"ns", "nano", "nanos", "nanosecond", "nanoseconds"}

_DURATION: Final = re.compile(r"\s*(\d+)\s*([A-Za-zµ]*)\s*")


@dataclass(frozen=True)
class ValueType(Generic[T]):
    """`read` takes what a program or a file gave: text, or a value that is of the type already. It
    raises ConfigurationError that says what was expected. `write` makes text of which `read` gives
    the value again."""

    name: str
    read: Callable[[Any], T]
    write: Callable[[T], str] = str


def folders_in(value: str) -> tuple[str, ...]:
    """Folders, separated by commas or semicolons.

    >>> folders_in("/mnt/a, /mnt/b;")
    ('/mnt/a', '/mnt/b')
    """
    return tuple(part.strip() for part in value.replace(";", ",").split(",") if part.strip())


def read_duration(value: Any) -> timedelta:
    """Of text, or of a number, which is milliseconds.

    >>> read_duration("90 s") == read_duration(90_000) == timedelta(minutes=1.5)
    True
    """
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(_text(value))
    if match is not None:
        number, unit = int(match[1]), match[2].lower()
        if unit in _NANOSECONDS:
            return timedelta(microseconds=number // 1000)
        if not unit or unit in _FACTORS:
            return number * _FACTORS[unit or "ms"]
    raise ConfigurationError(
        f"{value!r} is no duration: write a number and d, h, min, s or ms, as '10 s'"
    )


def write_duration(value: timedelta) -> str:
    """In the largest unit that leaves no rest.

    >>> write_duration(timedelta(minutes=10)), write_duration(timedelta(milliseconds=1500))
    ('10 min', '1500 ms')
    """
    for name in ("d", "h", "min", "s", "ms"):
        whole, rest = divmod(value, _FACTORS[name])
        if whole and not rest:
            return f"{whole} {name}"
    return f"{value // _FACTORS['µs']} µs" if value else "0 ms"


def read_memory(value: Any) -> MemorySize:
    return value if isinstance(value, MemorySize) else MemorySize.parse(_text(value))


def read_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    match _text(value).strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ConfigurationError(f"{value!r} is neither true nor false")


def read_integer(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return int(_text(value))
    except ValueError:
        raise ConfigurationError(f"{value!r} is no integer") from None


def read_float(value: Any) -> float:
    try:
        return float(_text(value))
    except ValueError:
        raise ConfigurationError(f"{value!r} is no number") from None


def read_string(value: Any) -> str:
    return _text(value)


def read_list(value: Any) -> list[str]:
    """
    >>> read_list("a;'b;c'") == read_list("[a, 'b;c']") == ["a", "b;c"]
    True
    """
    if isinstance(value, (list, tuple)):
        return [_text(one) for one in value]
    text = _text(value).strip()
    if text.startswith("["):
        return [_text(one) for one in _flow(text, list)]
    return [_unquoted(part) for part in _parts(text, ";")]


def read_paths(value: Any) -> list[str]:
    """
    >>> read_paths("a.py, b.zip") == read_paths("[a.py, b.zip]") == ["a.py", "b.zip"]
    True
    """
    if isinstance(value, str) and not value.strip().startswith("["):
        return [_unquoted(part) for part in _parts(value, ",")]
    return read_list(value)


def read_map(value: Any) -> dict[str, str]:
    """
    >>> read_map("a:1,b:'x,y'") == read_map("{a: 1, b: 'x,y'}") == {"a": "1", "b": "x,y"}
    True
    """
    if isinstance(value, Mapping):
        return {_text(key): _text(one) for key, one in value.items()}
    text = _text(value).strip()
    if text.startswith("{"):
        return {_text(key): _text(one) for key, one in _flow(text, dict).items()}
    pairs = [_parts(_unquoted(part), ":", 1) for part in _parts(text, ",")]
    if any(len(pair) != 2 for pair in pairs):
        raise ConfigurationError(f"{value!r} is no map: write key:value,key:value")
    return {_unquoted(key): _unquoted(one) for key, one in pairs}


def enum_type(kind: type[Enum], *others: str) -> ValueType[Any]:
    """One of the names of `kind`, in any case, with - or _."""

    def read(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        name = _text(value).strip().upper().replace("-", "_")
        if name in kind.__members__:
            return kind[name]
        raise ConfigurationError(f"{value!r} is none of {', '.join(kind.__members__)}")

    return ValueType(kind.__name__, read, lambda member: str(member.name))


def choice(name: str, spellings: Mapping[str, str]) -> ValueType[str]:
    """One of a few words; `spellings`: what may be written, and what it means."""

    def read(value: Any) -> str:
        meant = spellings.get(_text(value).strip().lower())
        if meant is None:
            raise ConfigurationError(f"{value!r} is none of {', '.join(sorted(spellings))}")
        return meant

    return ValueType(name, read)


def write_boolean(value: bool) -> str:
    return "true" if value else "false"


def write_flow(value: Any) -> str:
    """Lists and maps: JSON, which is YAML as well."""
    return json.dumps(value, ensure_ascii=False)


BOOLEAN: Final = ValueType("Boolean", read_boolean, write_boolean)
INTEGER: Final = ValueType("Integer", read_integer)
FLOAT: Final = ValueType("Float", read_float)
STRING: Final = ValueType("String", read_string)
DURATION: Final = ValueType("Duration", read_duration, write_duration)
MEMORY: Final = ValueType("MemorySize", read_memory)
PATHS: Final = ValueType("List", read_paths, write_flow)
LIST: Final = ValueType("List", read_list, write_flow)
MAP: Final = ValueType("Map", read_map, write_flow)


def to_text(value: Any) -> str:
    """Any value that a configuration holds as the text that stands for it; bytes as base64."""
    match value:
        case str():
            return value
        case bool():
            return write_boolean(value)
        case timedelta():
            return write_duration(value)
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case list() | tuple():
            return write_flow([to_text(one) for one in value])
        case Mapping():
            return write_flow({to_text(key): to_text(one) for key, one in value.items()})
        case Enum():
            return value.name
    return str(value)


def _text(value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        raise ConfigurationError("it holds bytes: read it with get_bytearray")
    return to_text(value)


def _flow(text: str, kind: type[Any]) -> Any:
    """JSON is tried first: YAML has no place for some letters."""
    try:
        value = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except ValueError:
        value = _yaml(text)
    if not isinstance(value, kind):
        raise ConfigurationError(f"{text!r} is not a well-formed {kind.__name__} of YAML")
    return value


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.load(text, yaml.BaseLoader)
    except yaml.YAMLError:
        return None


def _parts(text: str, separator: str, most: int = -1) -> list[str]:
    """Split where no quote is open, at most `most` times; empty parts are dropped."""
    parts, quote = [""], ""
    for letter in text:
        if letter == separator and not quote and len(parts) != most + 1:
            parts.append("")
            continue
        if quote == letter:
            quote = ""
        elif letter in "'\"" and not quote and parts[-1].strip()[-1:] in ("", ":"):
            quote = letter
        parts[-1] += letter
    if quote:
        raise ConfigurationError(f"{text!r} has a quote that is not closed")
    return [part.strip() for part in parts if part.strip()]


def _unquoted(text: str) -> str:
    for quote in "'\"":
        if len(text) > 1 and text[0] == text[-1] == quote:
            return text[1:-1].replace(quote * 2, quote)
    return text
