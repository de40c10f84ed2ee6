"""`njit`: the kernel from the extension module if there is one, else compiled by numba."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from typing import overload as typing_overload

from .library import SWITCH, load
from .types import Signature, to_numba

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Compiled:
    """One kernel as numba compiled it, for `build`."""

    name: str
    signatures: tuple[Signature, ...]
    dispatcher: Any


COMPILED: list[Compiled] = []
"""All kernels so far; filled only while the extension is built."""


def exported_name(function: Callable[..., Any]) -> str:
    """A kernel's name in the extension module."""
    return f"{function.__module__.rsplit('.', 1)[-1]}__{function.__name__}"


@typing_overload
def njit(signature: Function) -> Function: ...
@typing_overload
def njit(
    signature: Signature | Sequence[Signature] | None = None, **options: Any
) -> Callable[[Function], Function]: ...
def njit(signature: Any = None, **options: Any) -> Any:
    """numba's decorator, with signatures in the types of this package.

    With signatures: a kernel that Python may call. It must not allocate arrays (numba's memory
    management is not in the extension), raise, or return anything but a scalar. Without: a helper
    of kernels, for them alone.
    """
    if callable(signature):
        return _helper(signature, {})
    if signature is None:
        return lambda function: _helper(function, options)
    found = [signature] if isinstance(signature, Signature) else list(signature)
    return lambda function: _kernel(function, found, options)


def intrinsic(function: Any) -> Any:
    """numba's `intrinsic`; in a process without numba nobody calls it."""
    if load() is not None:
        return function
    from numba.extending import intrinsic as numba_intrinsic

    return numba_intrinsic(function)


def overload(function: Any, **options: Any) -> Any:
    """numba's `overload`; in a process without numba nobody calls what it makes."""
    if load() is not None:
        return lambda implementation: implementation
    from numba.extending import overload as numba_overload

    return numba_overload(function, **options)


def array_maker() -> Any:
    """numba's `make_array`, for intrinsics. Only called while numba compiles."""
    from numba.np.arrayobj import make_array

    return make_array


def _helper(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    if load() is not None:
        return function
    import numba

    return numba.njit(**options)(function)


def _kernel(
    function: Callable[..., Any], signatures: Sequence[Signature], options: dict[str, Any]
) -> Any:
    library = load()
    if library is not None:
        return getattr(library, exported_name(function))
    import numba

    building = os.environ.get(SWITCH) == "build"
    if building:
        options = {**options, "cache": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    dispatcher = numba.njit([to_numba(one) for one in signatures], **options)(function)
    if building:
        COMPILED.append(Compiled(exported_name(function), tuple(signatures), dispatcher))
    return dispatcher
