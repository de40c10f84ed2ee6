"""Types of kernel arguments, under numba's names but without numba.

int64, uint64, int32, uint8, float64, boolean     scalars (int32, uint8: only in arrays)
int64[::1]                                        a contiguous array that is written
Array(int64, 1, "C", readonly=True)               one that is only read; any array will do
void(int64[::1], boolean)                         a signature
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Kind:
    """A scalar (`ndim` 0) or a contiguous array of them."""

    name: str
    ndim: int = 0
    readonly: bool = False

    def __call__(self, *arguments: Kind) -> Signature:
        return Signature(self, arguments)

    def __getitem__(self, index: slice) -> Kind:
        if index != slice(None, None, 1):
            raise TypeError(f"kernels take contiguous arrays: write {self.name}[::1]")
        return Kind(self.name, 1)


@dataclass(frozen=True)
class Signature:
    """What a kernel returns (a scalar or void) and takes."""

    result: Kind
    arguments: tuple[Kind, ...]


def Array(dtype: Kind, ndim: int, layout: Literal["C"] = "C", readonly: bool = False) -> Kind:
    """A contiguous array of `dtype`."""
    return Kind(dtype.name, ndim, readonly)


void = Kind("void")
boolean = Kind("boolean")
float64 = Kind("float64")
int32 = Kind("int32")
int64 = Kind("int64")
uint8 = Kind("uint8")
uint64 = Kind("uint64")


def to_numba(kind: Kind | Signature) -> Any:
    """The same in numba's own types. Imports numba."""
    from numba import types

    if isinstance(kind, Signature):
        return to_numba(kind.result)(*map(to_numba, kind.arguments))
    scalar = getattr(types, kind.name)
    return types.Array(scalar, kind.ndim, "C", readonly=kind.readonly) if kind.ndim else scalar
