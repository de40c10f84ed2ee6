"""The column path agrees with the row path, and routing with its sequential definition."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from groups_kit import subtask_for
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.errors import TypeMismatchError
from strom.state.hash_columns import hash_columns
from strom.state.hash_kernels import hash_slices, hash_tuples, hash_words
from strom.state.hashing import stable_hash
from strom.state.key_groups import key_groups_of, route, route_keys
from xxhash import xxh64_intdigest

I64 = st.integers(-(2**63), 2**63 - 1)
YEARS = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
COLUMNS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "uint16": (pa.uint16(), st.integers(0, 65535)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), I64),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float16": (pa.float16(), st.floats(width=16).map(np.float16)),
    "float32": (pa.float32(), st.floats(width=32)),
    "float64": (pa.float64(), st.floats()),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(max_size=50)),
    "large_string": (pa.large_string(), st.text(max_size=8)),
    "string_view": (pa.string_view(), st.text(max_size=30)),
    "binary": (pa.binary(), st.binary(max_size=70)),
    "binary_view": (pa.binary_view(), st.binary(max_size=30)),
    "fixed": (pa.binary(5), st.binary(min_size=5, max_size=5)),
    "dictionary": (pa.dictionary(pa.int16(), pa.string()), st.sampled_from(["a", "bb", "", "é"])),
    "date32": (pa.date32(), st.dates()),
    "date64": (pa.date64(), st.dates()),
    "time32": (pa.time32("ms"), st.times().map(lambda t: t.replace(microsecond=7000))),
    "time64": (pa.time64("us"), st.times()),
    "time64ns": (pa.time64("ns"), st.integers(0, 86_399_999_999_999)),
    "timestamp_s": (pa.timestamp("s"), st.integers(-(10**10), 10**11)),
    "timestamp_ms_tz": (pa.timestamp("ms", "Europe/Zurich"), st.integers(-(10**13), 10**14)),
    "timestamp_us": (pa.timestamp("us"), st.datetimes()),
    "timestamp_ns": (pa.timestamp("ns"), st.integers(-(2**62), 2**62)),
    "timestamp_ns_tz": (pa.timestamp("ns", "UTC"), st.integers(-(2**62), 2**62)),
    "duration_ms": (pa.duration("ms"), st.integers(-(10**15), 10**15)),
    "duration_ns": (pa.duration("ns"), st.integers(-(2**62), 2**62)),
    "decimal": (
        pa.decimal128(20, 4),
        st.integers(-(10**18), 10**18).map(lambda i: Decimal(i).scaleb(-4)),
    ),
    "uuid": (pa.uuid(), st.uuids().map(lambda u: u.bytes)),
    "list": (pa.list_(pa.int64()), st.lists(I64, max_size=6)),
    "null": (pa.null(), st.none()),
}


def batch_of(*columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns), names=[f"c{i}" for i in range(len(columns))])


def rows_of(batch: pa.RecordBatch) -> list[Any]:
    lists = [column.to_pylist() for column in batch.columns]
    return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))


@st.composite
def arrays(draw: st.DrawFn, name: str, rows: int) -> pa.Array:
    """A slice of a column of `rows` values, some null."""
    kind, values = COLUMNS[name]
    before = draw(st.integers(0, 3))
    count = before + rows + draw(st.integers(0, 2))
    cells = draw(st.lists(st.none() | values, min_size=count, max_size=count))
    storage = pa.array(cells, type=pa.binary(16) if kind == pa.uuid() else kind)
    if kind == pa.uuid():
        storage = pa.ExtensionArray.from_storage(kind, storage)
    return storage.slice(before, rows)


@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_single_column_is_the_scalar_hash(name: str, data: st.DataObject) -> None:
    batch = batch_of(data.draw(arrays(name, data.draw(st.integers(0, 6)))))
    assert hash_columns(batch).tolist() == list(map(stable_hash, rows_of(batch)))


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_several_columns_are_the_tuple_hash(data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 4))
    names = data.draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=2, max_size=9))
    batch = batch_of(*[data.draw(arrays(name, rows)) for name in names])
    assert hash_columns(batch).tolist() == list(map(stable_hash, rows_of(batch)))


def test_uuid_objects_hash_as_their_bytes() -> None:
    key = uuid.UUID(int=2**100 + 5)
    column = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([key.bytes], pa.binary(16)))
    assert hash_columns(batch_of(column)).tolist() == [stable_hash(key)]


def test_no_columns_and_unstable_columns_are_refused() -> None:
    with pytest.raises(TypeMismatchError, match="at least one column"):
        hash_columns(pa.RecordBatch.from_arrays([], names=[]))
    with pytest.raises(TypeMismatchError, match="dict"):
        hash_columns(batch_of(pa.array([{"a": 1}])))
    far = pa.array([2**60], pa.timestamp("s"))
    with pytest.raises(TypeMismatchError, match="int64 microseconds"):
        hash_columns(batch_of(far))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.binary(max_size=100), max_size=8), st.integers(0, 2**64 - 1))
def test_kernels_are_xxh64(slices: list[bytes], seed: int) -> None:
    offsets = np.cumsum([0, *map(len, slices)]).astype(np.int64)
    out = np.empty(len(slices), dtype=np.uint64)
    hash_slices(np.frombuffer(b"".join(slices), np.uint8), offsets, np.uint64(seed), out)
    assert out.tolist() == [xxh64_intdigest(data, seed) for data in slices]
    words = out.copy()
    hash_words(words, np.uint64(seed), out)
    assert out.tolist() == [xxh64_intdigest(word.tobytes(), seed) for word in words]
    if len(words):
        row = np.empty(1, dtype=np.uint64)
        hash_tuples(words.reshape(-1, 1), np.uint64(seed), row)
        assert row.tolist() == [xxh64_intdigest(words.tobytes(), seed)]


def sequential_route(keys: list[Any], parallelism: int, groups: int) -> tuple[list[int], list[int]]:
    """The definition: rows of subtask 0 in order, then those of subtask 1, ..."""
    runs: list[list[int]] = [[] for _ in range(parallelism)]
    for row, key in enumerate(keys):
        runs[subtask_for(stable_hash(key) % groups, parallelism, groups)].append(row)
    offsets = np.cumsum([0, *map(len, runs)]).tolist()
    return [row for run in runs for row in run], offsets


@pytest.mark.parametrize("name", ["int64", "string", "float64", "int32", "list"])
@settings(max_examples=examples(25), deadline=None)
@given(data=st.data(), groups=st.integers(1, 300))
def test_route_is_the_sequential_route(name: str, data: st.DataObject, groups: int) -> None:
    parallelism = data.draw(st.integers(1, groups))
    batch = batch_of(data.draw(arrays(name, data.draw(st.integers(0, 20)))))
    expected = sequential_route(rows_of(batch), parallelism, groups)
    order, offsets = route(batch, parallelism, groups)
    assert (order.dtype, offsets.dtype) == (np.int64, np.int64)
    assert (order.tolist(), offsets.tolist()) == expected
    order, offsets = route_keys(rows_of(batch), parallelism, groups)
    assert (order.tolist(), offsets.tolist()) == expected


def test_route_of_dense_int64_keys() -> None:
    keys = np.arange(5000, dtype=np.int64)
    order, offsets = route(batch_of(pa.array(keys)), 3, 128)
    assert (order.tolist(), offsets.tolist()) == sequential_route(keys.tolist(), 3, 128)
    groups = key_groups_of(batch_of(pa.array(keys)), 128)
    assert groups.dtype == np.int32
    assert np.bincount(groups, minlength=128).min() > 10


def test_cached_routes_do_not_mix_equal_keys_of_different_types() -> None:
    for keys in ([1] * 3, [True] * 3, [1.0] * 3, [(1, 1)], [(True, 1)], [(1.0, 1)], [1, True]):
        order, offsets = route_keys(keys, 128, 128)
        assert (order.tolist(), offsets.tolist()) == sequential_route(keys, 128, 128)
