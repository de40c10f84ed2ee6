"""xxh64 over columns and the counting sort of the keyed exchange, compiled.

Imported on the first columnar use only. Every kernel has one explicit signature and is compiled
once per machine (core/native). Inputs are
declared read-only, which also admits writable arrays; Arrow's buffers are read-only.

The sequential definition of every kernel is in tests/state/test_hash_columns.py; xxh64 itself is
specified at https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.native import Array, array_maker, int32, int64, intrinsic, njit, uint8, uint64, void

P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)

U64 = uint64
I64 = int64


def frozen(dtype: Any, ndim: int = 1) -> Any:
    """A contiguous input array that the kernel only reads."""
    return Array(dtype, ndim, "C", readonly=True)


def fresh(dtype: Any) -> Any:
    """A contiguous array that the kernel writes."""
    return Array(dtype, 1)


@njit(inline="always")
def _rotl(x: Any, r: Any) -> Any:
    return (x << r) | (x >> (np.uint64(64) - r))


@njit(inline="always")
def _round(acc: Any, word: Any) -> Any:
    return _rotl(acc + word * P2, np.uint64(31)) * P1


@njit(inline="always")
def _avalanche(h: Any) -> Any:
    h ^= h >> np.uint64(33)
    h *= P2
    h ^= h >> np.uint64(29)
    h *= P3
    return h ^ (h >> np.uint64(32))


@njit(inline="always")
def _mix8(h: Any, word: Any) -> Any:
    return _rotl(h ^ _round(np.uint64(0), word), np.uint64(27)) * P1 + P4


@njit(inline="always")
def hash_word(word: Any, seed: Any) -> Any:
    """xxh64 of the 8 bytes of `word`, little-endian."""
    return _avalanche(_mix8(seed + P5 + np.uint64(8), word))


@njit(inline="always")
def _converge(a: Any, b: Any, c: Any, d: Any) -> Any:
    h = _rotl(a, np.uint64(1)) + _rotl(b, np.uint64(7))
    h += _rotl(c, np.uint64(12)) + _rotl(d, np.uint64(18))
    h = (h ^ _round(np.uint64(0), a)) * P1 + P4
    h = (h ^ _round(np.uint64(0), b)) * P1 + P4
    h = (h ^ _round(np.uint64(0), c)) * P1 + P4
    return (h ^ _round(np.uint64(0), d)) * P1 + P4


def _loader(kind: Any) -> Any:
    """A compiled function (data: uint8 array, at) that reads `kind` unaligned, little-endian."""

    def load(typing: Any, data: Any, at: Any) -> Any:
        from numba import types

        read = getattr(types, kind)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = array_maker()(signature.args[0])(context, builder, args[0])
            pointer = builder.gep(array.data, [args[1]])
            word = context.get_value_type(read)
            value = builder.load(builder.bitcast(pointer, word.as_pointer()))
            value.align = 1
            return context.cast(builder, value, read, types.uint64)

        return types.uint64(data, types.int64), codegen

    return intrinsic(load)


load8: Any = _loader("uint64")
_load4: Any = _loader("uint32")


@njit
def hash_range(data: Any, start: Any, stop: Any, seed: Any) -> Any:
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


@njit(void(frozen(U64), U64, fresh(U64)), cache=True)
def hash_words(words: Any, seed: Any, out: Any) -> Any:
    """out[i] = xxh64 of the 8 bytes of words[i]."""
    for i in range(words.shape[0]):
        out[i] = hash_word(words[i], seed)


@njit(void(frozen(uint8), frozen(I64), U64, fresh(U64)), cache=True)
def hash_slices(data: Any, offsets: Any, seed: Any, out: Any) -> Any:
    """out[i] = xxh64 of data[offsets[i]:offsets[i + 1]]."""
    for i in range(out.shape[0]):
        out[i] = hash_range(data, offsets[i], offsets[i + 1], seed)


@njit(void(frozen(U64, 2), U64, fresh(U64)), cache=True)
def hash_tuples(columns: Any, seed: Any, out: Any) -> Any:
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
def _group(h: Any, count: Any) -> Any:
    if count & (count - np.uint64(1)) == np.uint64(0):
        return np.int64(h & (count - np.uint64(1)))
    return np.int64(h % count)


_ROUTE = (frozen(int32), fresh(int32), fresh(I64), fresh(I64))


@njit
def _scatter(targets: Any, offsets: Any, order: Any) -> Any:
    """Stable counting sort; offsets[t + 1] holds the count of t on entry, its end on return."""
    for t in range(1, offsets.shape[0]):
        offsets[t] += offsets[t - 1]
    for i in range(targets.shape[0]):
        target = targets[i]
        order[offsets[target]] = i
        offsets[target] += 1
    for t in range(offsets.shape[0] - 1, 0, -1):
        offsets[t] = offsets[t - 1]
    offsets[0] = 0


@njit(void(frozen(I64), U64, *_ROUTE), cache=True)
def _route_int64(values: Any, seed: Any, table: Any, targets: Any, offsets: Any, order: Any) -> Any:
    groups = np.uint64(table.shape[0])
    for i in range(values.shape[0]):
        target = table[_group(hash_word(np.uint64(values[i]), seed), groups)]
        targets[i] = target
        offsets[target + 1] += 1
    _scatter(targets, offsets, order)


@njit(void(frozen(U64), *_ROUTE), cache=True)
def _route_hashes(hashes: Any, table: Any, targets: Any, offsets: Any, order: Any) -> Any:
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
