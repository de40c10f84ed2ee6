"""Kernels over messages of librdkafka in the library's own memory: addresses in, columns out.

A message (`rd_kafka_message_t`, public and stable since 0.8) is 72 bytes:

    0 err int32   8 topic handle   16 partition int32   24 payload   32 its length
    40 key   48 its length   56 offset int64   64 private

Its timestamp and headers come from functions of the library, whose addresses are passed in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.errors import ConnectorError
from ...core.native import Array, int32, int64, intrinsic, njit, uint8, void

NULL = -1
"""Length of a key or value that is null."""

_ERR, _PARTITION, _PAYLOAD, _LENGTH, _KEY, _KEY_LENGTH, _OFFSET = 0, 16, 24, 32, 40, 48, 56

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

_IN, _IN32 = Array(int64, 1, readonly=True), Array(int32, 1, readonly=True)
_OUT, _OUT32 = int64[::1], int32[::1]
_OPTIONS = {"cache": True, "nogil": True}


@intrinsic
def load64(typing: Any, address: Any) -> Any:
    """The int64 at an address."""
    from llvmlite import ir
    from numba.core import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()), align=8)

    return types.int64(types.int64), generate


@intrinsic
def load32(typing: Any, address: Any) -> Any:
    """The int32 at an address, as int64."""
    from llvmlite import ir
    from numba.core import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = builder.load(builder.inttoptr(args[0], ir.IntType(32).as_pointer()), align=4)
        return builder.sext(found, ir.IntType(64))

    return types.int64(types.int64), generate


@intrinsic
def load8(typing: Any, address: Any) -> Any:
    """The byte at an address, as int64."""
    from llvmlite import ir
    from numba.core import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = builder.load(builder.inttoptr(args[0], ir.IntType(8).as_pointer()), align=1)
        return builder.zext(found, ir.IntType(64))

    return types.int64(types.int64), generate


@intrinsic
def copy_to(typing: Any, out: Any, at: Any, address: Any, length: Any) -> Any:
    """out[at : at + length] = the bytes at an address."""
    from llvmlite import ir
    from numba.core import cgutils, types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        target = builder.gep(array.data, [args[1]])
        origin = builder.inttoptr(args[2], ir.IntType(8).as_pointer())
        cgutils.raw_memcpy(builder, target, origin, args[3], 1)
        return context.get_dummy_value()

    return types.void(out, types.intp, types.int64, types.int64), generate


@intrinsic
def data_of(typing: Any, array: Any) -> Any:
    """Where an array's items are."""
    from llvmlite import ir
    from numba.core import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.ptrtoint(made.data, ir.IntType(64))

    return types.int64(array), generate


def _call(builder: Any, result: Any, arguments: Any) -> Any:
    """Call the C function at the first argument with the others, int64 each."""
    from llvmlite import ir

    word = ir.IntType(64)
    kind = ir.FunctionType(result, [word] * (len(arguments) - 1))
    function = builder.inttoptr(arguments[0], kind.as_pointer())
    return builder.call(function, list(arguments[1:]))


@intrinsic
def call_void(typing: Any, function: Any, first: Any) -> Any:
    """Call the C function void f(void *) at an address."""
    from llvmlite import ir
    from numba.core import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _call(builder, ir.VoidType(), args)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def call_two(typing: Any, function: Any, first: Any, second: Any) -> Any:
    """Call the C function int64 f(void *, void *) at an address."""
    from llvmlite import ir
    from numba.core import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _call(builder, ir.IntType(64), args)

    return types.int64(types.int64, types.int64, types.int64), generate


@intrinsic
def call_header(
    typing: Any, function: Any, headers: Any, index: Any, name: Any, value: Any, size: Any
) -> Any:
    """Call the C function int f(headers *, size_t, name **, value **, size_t *) at an address."""
    from llvmlite import ir
    from numba.core import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.sext(_call(builder, ir.IntType(32), args), ir.IntType(64))

    return types.int64(*[types.int64] * 6), generate


@intrinsic
def call_status(typing: Any, function: Any, first: Any, second: Any) -> Any:
    """Call the C function int f(void *, void *) at an address."""
    from llvmlite import ir
    from numba.core import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.sext(_call(builder, ir.IntType(32), args), ir.IntType(64))

    return types.int64(types.int64, types.int64, types.int64), generate


@njit(void(_IN, int64, int64, _OUT, _OUT, _OUT, _OUT, _OUT, _OUT), **_OPTIONS)
def _describe(
    messages: Any,
    count: int,
    timestamp_of: int,
    kind: Any,
    errors: Any,
    offsets: Any,
    timestamps: Any,
    keys: Any,
    values: Any,
) -> None:
    for i in range(count):
        message = messages[i]
        errors[i] = load32(message + _ERR)
        offsets[i] = load64(message + _OFFSET)
        timestamps[i] = call_two(timestamp_of, message, data_of(kind))
        key = load64(message + _KEY) != 0
        value = load64(message + _PAYLOAD) != 0
        keys[i] = load64(message + _KEY_LENGTH) if key else NULL
        values[i] = load64(message + _LENGTH) if value else NULL


def describe(
    messages: Int64s, count: int, timestamp_of: int
) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
    """Of the first `count` messages: error codes, offsets, timestamps (ms; -1: it has none), and
    the lengths of keys and values in bytes (NULL for null). `timestamp_of`: the address of
    `rd_kafka_message_timestamp`."""
    made = [np.empty(count, dtype=np.int64) for _ in range(5)]
    _describe(messages, count, timestamp_of, np.empty(1, dtype=np.int64), *made)
    errors, offsets, timestamps, keys, values = made
    return errors, offsets, timestamps, keys, values


@njit(void(_IN, _IN, int64, _IN32, uint8[::1]), **_OPTIONS)
def _gather(messages: Any, lengths: Any, field: int, ends: Any, out: Any) -> None:
    for i in range(lengths.size):
        if lengths[i] > 0:
            copy_to(out, ends[i], load64(messages[i] + field), lengths[i])


def gather(messages: Int64s, lengths: Int64s, keys: bool) -> tuple[Int32s, Bytes]:
    """Keys or values, one after the other: ends of each (one more than messages) and the bytes. The
    first `len(lengths)` messages, without errors; nulls have no bytes. ConnectorError for 2 GiB or
    more in all."""
    sizes = np.maximum(lengths, 0)
    total = addressable(int(sizes.sum()), "keys" if keys else "values")
    ends = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(sizes, out=ends[1:])
    out = np.empty(total, dtype=np.uint8)
    _gather(messages, lengths, _KEY if keys else _PAYLOAD, ends, out)
    return ends, out


def addressable(size: int, what: str) -> int:
    """`size` in bytes, if a column's ends of 32 bits can tell it; else ConnectorError."""
    if size >= 1 << 31:
        raise ConnectorError(
            f"the {what} of one batch of Kafka records have {size} bytes, and a column holds less "
            "than 2 GiB: lower the job's batch_size, or the property queued.max.messages.kbytes"
        )
    return size


@njit(void(_IN, int64, int64), **_OPTIONS)
def _destroy(messages: Any, count: int, destroy: int) -> None:
    for i in range(count):
        call_void(destroy, messages[i])


def destroy(messages: Int64s, count: int, function: int) -> None:
    """Give messages back to the library; `function`: the address of `rd_kafka_message_destroy`."""
    _destroy(messages, count, function)


@njit(void(_IN, int64, int64, _OUT, _OUT32, _OUT), **_OPTIONS)
def _measure_headers(
    messages: Any, headers_of: int, header_at: int, out: Any, ends: Any, sizes: Any
) -> None:
    found, names, values = 0, 0, 0
    place = data_of(out)
    ends[0] = 0
    for i in range(ends.size - 1):
        out[0] = 0
        if call_status(headers_of, messages[i], place) == 0 and out[0] != 0:
            headers = out[0]
            index = 0
            while call_header(header_at, headers, index, place + 8, place + 16, place + 24) == 0:
                at = out[1]
                while load8(at) != 0:
                    at += 1
                names += at - out[1]
                values += out[3] if out[2] != 0 else 0
                index += 1
            found += index
        ends[i + 1] = found
    sizes[0], sizes[1], sizes[2] = found, names, values


@njit(
    void(_IN, int64, int64, _OUT, _IN32, _OUT32, uint8[::1], _OUT32, uint8[::1], uint8[::1]),
    **_OPTIONS,
)
def _gather_headers(
    messages: Any,
    headers_of: int,
    header_at: int,
    out: Any,
    ends: Any,
    name_ends: Any,
    names: Any,
    value_ends: Any,
    values: Any,
    present: Any,
) -> None:
    place = data_of(out)
    name_ends[0], value_ends[0] = 0, 0
    for i in range(ends.size - 1):
        if ends[i + 1] == ends[i]:
            continue
        out[0] = 0
        call_status(headers_of, messages[i], place)
        headers = out[0]
        for index in range(ends[i + 1] - ends[i]):
            call_header(header_at, headers, index, place + 8, place + 16, place + 24)
            row = ends[i] + index
            at = out[1]
            while load8(at) != 0:
                at += 1
            length = at - out[1]
            copy_to(names, name_ends[row], out[1], length)
            name_ends[row + 1] = name_ends[row] + length
            size = out[3] if out[2] != 0 else 0
            if size > 0:
                copy_to(values, value_ends[row], out[2], size)
            value_ends[row + 1] = value_ends[row] + size
            present[row] = 1 if out[2] != 0 else 0


def gather_headers(
    messages: Int64s, count: int, headers_of: int, header_at: int
) -> tuple[Int32s, Int32s, Bytes, Int32s, Bytes, Bytes]:
    """Headers of the first `count` messages: where each message's begin (one more than messages),
    ends and bytes of their names, ends and bytes of their values, and which values are not null.
    `headers_of`, `header_at`: the addresses of `rd_kafka_message_headers` and
    `rd_kafka_header_get_all`. ConnectorError for 2 GiB or more of either."""
    out, sizes = np.zeros(4, dtype=np.int64), np.zeros(3, dtype=np.int64)
    ends = np.empty(count + 1, dtype=np.int32)
    _measure_headers(messages, headers_of, header_at, out, ends, sizes)
    found, names, values = (addressable(int(size), "headers") for size in sizes)
    name_ends, value_ends = np.empty(found + 1, np.int32), np.empty(found + 1, np.int32)
    name_bytes, value_bytes = np.empty(names, np.uint8), np.empty(values, np.uint8)
    present = np.empty(found, np.uint8)
    _gather_headers(
        messages,
        headers_of,
        header_at,
        out,
        ends,
        name_ends,
        name_bytes,
        value_ends,
        value_bytes,
        present,
    )
    return ends, name_ends, name_bytes, value_ends, value_bytes, present
