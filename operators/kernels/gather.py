"""Gathering rows of texts and bytes from wherever in memory each lies.

Value i is the `lengths[i]` bytes from address `starts[i]` on; who calls keeps that memory alive. A
row of -1 gives an empty value. The twin is a list comprehension, in tests/joins.
"""

from __future__ import annotations

from typing import Any

from ...core.native import array_maker, int64, intrinsic, njit, uint8, void
from .signatures import INTS, INTS_IN, OPTIONS

BYTES = uint8[::1]


@intrinsic
def _copy(typingctx: Any, address: Any, out: Any, at: Any, count: Any) -> Any:
    """`count` bytes from an address to out[at:]; unchecked."""
    from numba import types
    from numba.core import cgutils

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, array, start, number = args
        target = array_maker()(signature.args[1])(context, builder, array)
        byte = cgutils.voidptr_t
        source = builder.inttoptr(pointer, byte)
        goal = builder.gep(builder.bitcast(target.data, byte), [start])
        cgutils.raw_memcpy(builder, goal, source, number, 1)
        return context.get_dummy_value()

    return types.void(types.int64, out, types.int64, types.int64), generate


@njit([int64(INTS_IN, INTS_IN, INTS)], **OPTIONS)
def gather_ends(lengths: Any, rows: Any, out: Any) -> int:
    """`out` (rows + 1 entries) becomes the ends of the gathered values; returns the last one."""
    total = 0
    out[0] = 0
    for i in range(len(rows)):
        if rows[i] >= 0:
            total += lengths[rows[i]]
        out[i + 1] = total
    return total


@njit([void(INTS_IN, INTS_IN, INTS_IN, BYTES)], **OPTIONS)
def gather_bytes(starts: Any, rows: Any, ends: Any, out: Any) -> None:
    """The bytes of the gathered values, to where `gather_ends` has put them."""
    for i in range(len(rows)):
        length = ends[i + 1] - ends[i]
        if length > 0:
            _copy(starts[rows[i]], out, ends[i], length)
