"""`numpy_of` gives what pyarrow's own conversion gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strom.core.arrays import numpy_of

KINDS = [
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float",
    "double",
    "bool",
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    pa.timestamp("ms", "UTC"),
    pa.date32(),
    pa.string(),
    pa.dictionary(pa.int32(), pa.string()),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("nulls", [False, True])
def test_it_is_pyarrows(kind: pa.DataType | str, nulls: bool) -> None:
    values: list[object] = [None if nulls and i % 3 == 0 else i % 2 for i in range(21)]
    array = pa.array(values, pa.int64())
    if kind == pa.date32():
        array = array.cast(pa.int32())
    if pa.types.is_dictionary(kind) if isinstance(kind, pa.DataType) else False:
        array = array.cast(pa.string()).dictionary_encode()
    else:
        array = array.cast(kind)
    for part in (array, array[3:], array[5:17], array[9:9], array[20:]):
        found, expected = numpy_of(part), part.to_numpy(zero_copy_only=False)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 40), st.integers(0, 40))
def test_any_slice_of_bits(values: list[bool], start: int, length: int) -> None:
    part = pa.array(values, pa.bool_()).slice(min(start, len(values)), length)
    assert numpy_of(part).tolist() == part.to_pylist()


def test_chunks_are_joined() -> None:
    chunked = pa.chunked_array([[1, 2], [3]], pa.int64())
    assert numpy_of(chunked).tolist() == [1, 2, 3]
    assert numpy_of(pa.chunked_array([], pa.int64())).tolist() == []
    assert numpy_of(chunked.slice(0, 2)).tolist() == [1, 2]
