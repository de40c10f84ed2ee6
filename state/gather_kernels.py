"""Gathering rows of texts and bytes from wherever in memory each lies.

Values lie in blocks of 1 << bits rows: those of block b from address `starts[b]` on, one behind the
other. `offsets` has, for each block in turn, where its values begin in it and where the last ends.
Who calls keeps the blocks alive. A row of -1 gives an empty value. The twin is a list
comprehension, in tests/state.
"""

from __future__ import annotations

from typing import Any

from ..core.native import array_maker, intrinsic, njit, uint8, void
from .hash_kernels import I64, fresh, frozen

INTS, INTS_IN, BYTES = fresh(I64), frozen(I64), fresh(uint8)

OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}

AHEAD = 12
"""How many values ahead memory is asked for: it comes while these are copied."""


@intrinsic
def copy(typingctx: Any, address: Any, out: Any, at: Any, count: Any) -> Any:
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


@intrinsic
def fetch(typingctx: Any, address: Any) -> Any:
    """Begin to bring the cache line of an address into cache; nothing is read."""
    from llvmlite import ir
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        flag = ir.IntType(32)
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        read, keep, data = flag(0), flag(3), flag(1)
        builder.call(prefetch, [builder.inttoptr(args[0], byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@njit([I64(INTS_IN, I64, INTS_IN, INTS)], **OPTIONS)
def gather_ends(offsets: Any, bits: int, rows: Any, out: Any) -> int:
    """`out` (rows + 1 entries) becomes the ends of the gathered values; returns the last one."""
    total = 0
    out[0] = 0
    for i in range(len(rows)):
        row = rows[i]
        if row >= 0:
            at = row + (row >> bits)
            total += offsets[at + 1] - offsets[at]
        out[i + 1] = total
    return total


@njit([void(INTS_IN, INTS_IN, I64, INTS_IN, INTS_IN, BYTES)], **OPTIONS)
def gather_bytes(starts: Any, offsets: Any, bits: int, rows: Any, ends: Any, out: Any) -> None:
    """The bytes of the gathered values, to where `gather_ends` has put them."""
    for i in range(len(rows)):
        ahead = rows[i + AHEAD] if i + AHEAD < len(rows) else -1
        if ahead >= 0:
            fetch(starts[ahead >> bits] + offsets[ahead + (ahead >> bits)])
        length = ends[i + 1] - ends[i]
        if length > 0:
            block = rows[i] >> bits
            copy(starts[block] + offsets[rows[i] + block], out, ends[i], length)
