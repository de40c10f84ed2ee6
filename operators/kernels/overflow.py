"""Whether adding two accumulator values leaves the range of int64. Floats never do.

Asked before adding: LLVM takes signed overflow for impossible and would drop a test made after it.
"""

from __future__ import annotations

from typing import Any

from ...core.native import overload

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def overflows(total: Any, value: Any) -> bool:
    """For kernels only: total + value does not fit (both int64 or both float64)."""
    raise AssertionError("compiled through the overload below")


def _integers(total: Any, value: Any) -> bool:
    if value >= 0:
        return total > INT64_MAX - value  # type: ignore[no-any-return]
    return total < INT64_MIN - value  # type: ignore[no-any-return]


def _floats(total: Any, value: Any) -> bool:
    return False


@overload(overflows, inline="always")  # type: ignore[untyped-decorator]
def _overflows(total: Any, value: Any) -> Any:
    from numba.types import Integer

    return _integers if isinstance(value, Integer) else _floats
