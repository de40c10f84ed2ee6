"""Compiled kernels, with and without their compiler.

Kernels are written for numba. Importing numba, and LLVM behind it, costs each process about 100 MB
and half a second, although everything is compiled already. So `python -m strom.core.native.build`
(run by scripts/setup) compiles all kernels into one extension module; a process that finds it there
loads it instead of numba. Without it (no C compiler, or a kernel changed since), numba compiles, or
loads from its own cache, as ever: the same machine code either way.

    from strom.core.native import int64, njit, void      instead of      from numba import ...

See `types` for what may be written in a signature, `library` for where the extension lies.
"""

from .compiler import array_maker, intrinsic, njit, overload
from .types import Array, Kind, Signature, boolean, float64, int32, int64, uint8, uint64, void

__all__ = [
    "Array",
    "Kind",
    "Signature",
    "array_maker",
    "boolean",
    "float64",
    "int32",
    "int64",
    "intrinsic",
    "njit",
    "overload",
    "uint8",
    "uint64",
    "void",
]
