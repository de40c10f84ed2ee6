"""xxh64 over columns and the counting sort of the keyed exchange, compiled.

Imported on the first columnar use only: numba takes about 0.4 s to import. Every kernel has one
explicit signature and is cached on disk, so nothing compiles twice on a machine. Inputs are
declared read-only, which also admits writable arrays; Arrow's buffers are read-only.

The sequential definition of every kernel is in tests/state/test_hash_columns.py; xxh64 itself is
specified at https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)

U64 = types.uint64
I64 = types.int64


def frozen(dtype: Any, ndim: int = 1) -> Any:
    """A contiguous input array that the kernel only reads."""
    return types.Array(dtype, ndim, "C", readonly=True)


def fresh(dtype: Any) -> Any:
    """A contiguous array that the kernel writes."""
    return types.Array(dtype, 1, "C")


@njit(inline="always")
def _rotl(x, r):  # type: ignore[no-untyped-def]
    return (x << r) | (x >> (np.uint64(64) - r))


@njit(inline="always")
def _round(acc, word):  # type: ignore[no-untyped-def]
    return _rotl(acc + word * P2, np.uint64(31)) * P1


@njit(inline="always")
def _avalanche(h):  # type: ignore[no-untyped-def]
    h ^= h >> np.uint64(33)
    h *= P2
    h ^= h >> np.uint64(29)
    h *= P3
    return h ^ (h >> np.uint64(32))


@njit(inline="always")
def _mix8(h, word):  # type: ignore[no-untyped-def]
    return _rotl(h ^ _round(np.uint64(0), word), np.uint64(27)) * P1 + P4


@njit(inline="always")
def hash_word(word, seed):  # type: ignore[no-untyped-def]
    """xxh64 of the 8 bytes of `word`, little-endian."""
    return _avalanche(_mix8(seed + P5 + np.uint64(8), word))


@njit(inline="always")
def _converge(a, b, c, d):  # type: ignore[no-untyped-def]
    h = _rotl(a, np.uint64(1)) + _rotl(b, np.uint64(7))
    h += _rotl(c, np.uint64(12)) + _rotl(d, np.uint64(18))
    h = (h ^ _round(np.uint64(0), a)) * P1 + P4
    h = (h ^ _round(np.uint64(0), b)) * P1 + P4
    h = (h ^ _round(np.uint64(0), c)) * P1 + P4
    return (h ^ _round(np.uint64(0), d)) * P1 + P4


def _loader(kind):  # type: ignore[no-untyped-def]
    """A compiled function (data: uint8 array, at) that reads `kind` unaligned, little-endian."""

    def load(typing, data, at):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            array = make_array(signature.args[0])(context, builder, args[0])
            pointer = builder.gep(array.data, [args[1]])
            word = context.get_value_type(kind)
            value = builder.load(builder.bitcast(pointer, word.as_pointer()))
            value.align = 1
            return context.cast(builder, value, kind, U64)

        return U64(data, I64), codegen

    return intrinsic(load)


load8: Any = _loader(types.uint64)  # type: ignore[no-untyped-call]
_load4: Any = _loader(types.uint32)  # type: ignore[no-untyped-call]


@njit
def hash_range(data, start, stop, seed):  # type: ignore[no-untyped-def]
    """xxh64 of `data[start:stop]`."""
    length = np.uint64(stop - start)
    at = start
    if stop - start >= 32:
        a, b, c, d = seed + P1 + P2, seed + P2, seed, seed - P1
        while at + 32 <= stop:
            a = _round(a, load8(data, at))
            b = _round(b, load8(data, at + 8))
            c = _round(c, load8(data, at + 16))
            d = _round(d, load8(data, at + 24))
            at += 32
        h = _converge(a, b, c, d) + length
    else:
        h = seed + P5 + length
    while at + 8 <= stop:
        h = _mix8(h, load8(data, at))
        at += 8
    if at + 4 <= stop:
        h = _rotl(h ^ (_load4(data, at) * P1), np.uint64(23)) * P2 + P3
        at += 4
    while at < stop:
        h = _rotl(h ^ (np.uint64(data[at]) * P5), np.uint64(11)) * P1
        at += 1
    return _avalanche(h)


@njit(types.void(frozen(U64), U64, fresh(U64)), cache=True)
def hash_words(words, seed, out):  # type: ignore[no-untyped-def]
    """out[i] = xxh64 of the 8 bytes of words[i]."""
    for i in range(words.shape[0]):
        out[i] = hash_word(words[i], seed)


@njit(types.void(frozen(types.uint8), frozen(I64), U64, fresh(U64)), cache=True)
def hash_slices(data, offsets, seed, out):  # type: ignore[no-untyped-def]
    """out[i] = xxh64 of data[offsets[i]:offsets[i + 1]]."""
    for i in range(out.shape[0]):
        out[i] = hash_range(data, offsets[i], offsets[i + 1], seed)


@njit(types.void(frozen(U64, 2), U64, fresh(U64)), cache=True)
def hash_tuples(columns, seed, out):  # type: ignore[no-untyped-def]
    """out[i] = xxh64 of columns[0, i], columns[1, i], ... of 8 bytes each, little-endian."""
    width = columns.shape[0]
    for i in range(out.shape[0]):
        at = 0
        if width >= 4:
            a, b, c, d = seed + P1 + P2, seed + P2, seed, seed - P1
            while at + 4 <= width:
                a = _round(a, columns[at, i])
                b = _round(b, columns[at + 1, i])
                c = _round(c, columns[at + 2, i])
                d = _round(d, columns[at + 3, i])
                at += 4
            h = _converge(a, b, c, d) + np.uint64(8 * width)
        else:
            h = seed + P5 + np.uint64(8 * width)
        while at < width:
            h = _mix8(h, columns[at, i])
            at += 1
        out[i] = _avalanche(h)


@njit(inline="always")
def _group(h, count):  # type: ignore[no-untyped-def]
    if count & (count - np.uint64(1)) == np.uint64(0):
        return np.int64(h & (count - np.uint64(1)))
    return np.int64(h % count)


_ROUTE = (frozen(types.int32), fresh(types.int32), fresh(I64), fresh(I64))


@njit
def _scatter(targets, offsets, order):  # type: ignore[no-untyped-def]
    """Stable counting sort; offsets[t + 1] holds the count of t on entry, its end on return."""
    for t in range(1, offsets.shape[0]):
        offsets[t] += offsets[t - 1]
    at = offsets[:-1].copy()
    for i in range(targets.shape[0]):
        target = targets[i]
        order[at[target]] = i
        at[target] += 1


@njit(types.void(frozen(I64), U64, *_ROUTE), cache=True)
def _route_int64(values, seed, table, targets, offsets, order):  # type: ignore[no-untyped-def]
    groups = np.uint64(table.shape[0])
    for i in range(values.shape[0]):
        target = table[_group(hash_word(np.uint64(values[i]), seed), groups)]
        targets[i] = target
        offsets[target + 1] += 1
    _scatter(targets, offsets, order)


@njit(types.void(frozen(U64), *_ROUTE), cache=True)
def _route_hashes(hashes, table, targets, offsets, order):  # type: ignore[no-untyped-def]
    groups = np.uint64(table.shape[0])
    for i in range(hashes.shape[0]):
        target = table[_group(hashes[i], groups)]
        targets[i] = target
        offsets[target + 1] += 1
    _scatter(targets, offsets, order)


Routed = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


def _buffers(
    rows: int, parallelism: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    targets = np.empty(rows, dtype=np.int32)
    return targets, np.zeros(parallelism + 1, dtype=np.int64), np.empty(rows, dtype=np.int64)


def route_int64(
    values: npt.NDArray[np.int64], table: npt.NDArray[np.int32], parallelism: int, seed: int
) -> Routed:
    """Order and offsets (see key_groups.route) of int64 keys; `table`: group -> subtask."""
    targets, offsets, order = _buffers(len(values), parallelism)
    _route_int64(values, np.uint64(seed), table, targets, offsets, order)
    return order, offsets


def route_hashes(
    hashes: npt.NDArray[np.uint64], table: npt.NDArray[np.int32], parallelism: int
) -> Routed:
    """Order and offsets (see key_groups.route) of keys given by their hashes."""
    targets, offsets, order = _buffers(len(hashes), parallelism)
    _route_hashes(hashes, table, targets, offsets, order)
    return order, offsets
