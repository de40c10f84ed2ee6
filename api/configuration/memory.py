"""`MemorySize`: a number of bytes, as PyFlink's, and as Flink writes it ("64 mb")."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering
from typing import Any, Final

from ...core.checks import check_count
from ...core.errors import ConfigurationError

_UNITS: Final = {
    1: ("", "b", "bytes"),
    1 << 10: ("k", "kb", "kibibytes"),
    1 << 20: ("m", "mb", "mebibytes"),
    1 << 30: ("g", "gb", "gibibytes"),
    1 << 40: ("t", "tb", "tebibytes"),
}

_FACTORS: Final = {name: factor for factor, names in _UNITS.items() for name in names}

_TEXT: Final = re.compile(r"\s*(\d+)\s*([A-Za-z]*)\s*")


@total_ordering
@dataclass(frozen=True)
class MemorySize:
    """A number of bytes; units are powers of 1024.

    >>> MemorySize.parse("64 mb") == MemorySize.of_mebi_bytes(64)
    True
    >>> print(MemorySize(1 << 20), MemorySize(1500))
    1 mb 1500 bytes
    """

    bytes_size: int

    def __post_init__(self) -> None:
        check_count("memory size", self.bytes_size, 0)

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        check_count("mebi_bytes", mebi_bytes, 0)
        return MemorySize(mebi_bytes << 20)

    @staticmethod
    def parse(text: str) -> MemorySize:
        """Of text as in a configuration: a number, and a unit if it is not bytes."""
        match = _TEXT.fullmatch(text)
        factor = None if match is None else _FACTORS.get(match[2].lower())
        if match is None or factor is None:
            raise ConfigurationError(
                f"{text!r} is no memory size: write a number and b, kb, mb, gb or tb, as '64 mb'"
            )
        return MemorySize(int(match[1]) * factor)

    def get_bytes(self) -> int:
        return self.bytes_size

    def get_kibi_bytes(self) -> int:
        """Rounded down, as all that follow."""
        return self.bytes_size >> 10

    def get_mebi_bytes(self) -> int:
        return self.bytes_size >> 20

    def get_gibi_bytes(self) -> int:
        return self.bytes_size >> 30

    def get_tebi_bytes(self) -> int:
        return self.bytes_size >> 40

    def __lt__(self, other: Any) -> bool:
        if not isinstance(other, MemorySize):
            return NotImplemented
        return self.bytes_size < other.bytes_size

    def __str__(self) -> str:
        fitting = [f for f in _UNITS if f > 1 and self.bytes_size and self.bytes_size % f == 0]
        if not fitting:
            return f"{self.bytes_size} bytes"
        return f"{self.bytes_size // fitting[-1]} {_UNITS[fitting[-1]][1]}"
