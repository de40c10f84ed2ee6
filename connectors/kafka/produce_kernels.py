"""Kernels that hand records to librdkafka: addresses of keys and values in, one call a record.

`rd_kafka_produceva` takes an array of typed arguments (`rd_kafka_vu_t`, public since 1.6), each of
72 bytes: its type (int32 at 0) and a union at 8. Of 64-bit words there are nine an argument:

    topic handle   2 | handle             partition  3 | number
    value          4 | address, length    key        5 | address, length
    flags          7 | 2: copy            timestamp  8 | ms, 0: now
    header         9 | name, address, length
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.native import Array, int64, intrinsic, njit
from .message_kernels import data_of

Int64s = npt.NDArray[np.int64]

_WORDS = 9
_TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _TIMESTAMP, _HEADER = 2, 3, 4, 5, 7, 8, 9
_COPY = 2

_FIXED = (_TOPIC, _PARTITION, _VALUE, _KEY, _TIMESTAMP, _FLAGS)
"""Arguments of each record, in this order; its headers follow."""

_IN, _OUT = Array(int64, 1, readonly=True), int64[::1]
_OPTIONS = {"cache": True, "nogil": True}


@intrinsic
def call_three(typing: Any, function: Any, first: Any, second: Any, third: Any) -> Any:
    """Call the C function int64 f(void *, void *, int64) at an address."""
    from llvmlite import ir
    from numba.core import types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        kind = ir.FunctionType(word, [word] * 3)
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), list(args[1:]))

    return types.int64(types.int64, types.int64, types.int64, types.int64), generate


@njit(
    int64(int64, int64, _IN, _IN, _IN, _IN, _IN, _IN, int64, _OUT, _OUT),
    **_OPTIONS,
)
def _produce(
    produceva: int,
    client: int,
    topics: Any,
    partitions: Any,
    timestamps: Any,
    addresses: Any,
    lengths: Any,
    headers: Any,
    start: int,
    words: Any,
    failed: Any,
) -> Any:
    count = topics.size
    where = data_of(words)
    for i in range(start, count):
        words[1] = topics[i]
        words[10] = partitions[i]
        words[19] = addresses[i]
        words[20] = lengths[i]
        words[28] = addresses[count + i]
        words[29] = lengths[count + i]
        words[37] = timestamps[i]
        used = 6
        for j in range(headers.size):
            at = (2 + j) * count + i
            if addresses[at] != 0:
                word = used * 9
                words[word] = 9
                words[word + 1] = headers[j]
                words[word + 2] = addresses[at]
                words[word + 3] = lengths[at]
                used += 1
        failure = call_three(produceva, client, where, used)
        if failure != 0:
            failed[0] = failure
            return i
    return count


def produce(
    function: int,
    client: int,
    topics: Int64s,
    partitions: Int64s,
    timestamps: Int64s,
    addresses: Int64s,
    lengths: Int64s,
    headers: Int64s,
    start: int,
) -> tuple[int, int]:
    """Hand over the records from `start` on: the first that was not taken (their number if all
    were), and the error object that was the answer, else 0.

    function: the address of `rd_kafka_produceva`. topics: a handle a record. addresses, lengths:
        of all values, then of all keys, then of each header; address 0 is null, of a header that
        the record has none. headers: addresses of their names, which end with a null byte.
    """
    words = np.zeros((len(_FIXED) + len(headers)) * _WORDS, dtype=np.int64)
    words[: len(_FIXED) * _WORDS : _WORDS] = _FIXED
    words[_FIXED.index(_FLAGS) * _WORDS + 1] = _COPY
    failed = np.zeros(1, dtype=np.int64)
    done = _produce(
        function,
        client,
        topics,
        partitions,
        timestamps,
        addresses,
        lengths,
        headers,
        start,
        words,
        failed,
    )
    return int(done), int(failed[0])
