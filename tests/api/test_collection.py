"""The in-memory source: every record once, at any parallelism, restored anywhere."""

from __future__ import annotations

import pickle
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.connectors.base import (
    Emit,
    EnumeratorContext,
    NeedSplit,
    ReaderContext,
    SourceReader,
)
from strom.api.connectors.collection import CollectionSource, collection_source
from strom.api.streams.data_stream import StreamExecutionEnvironment
from strom.api.types.type_info import Types
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.clock import VirtualClock
from strom.core.config import JobConfig
from strom.core.errors import ConfigurationError, TypeMismatchError


def reader(source: CollectionSource, subtask: int = 0, of: int = 1, size: int = 3) -> SourceReader:
    return source.create_reader(ReaderContext("read", subtask, of, size, VirtualClock()))


def enumerator(source: CollectionSource, parallelism: int, restored: Any = None) -> Any:
    return source.create_enumerator(EnumeratorContext("read", parallelism, "job"), restored)


def drain(splits: Any, readers: list[SourceReader], polls: int | None = None) -> list[Any]:
    """Poll the readers in turn, giving splits when asked, to the end or for so many polls."""
    found: list[Any] = []
    open_readers = dict(enumerate(readers))
    while open_readers and polls != 0:
        for subtask, one in list(open_readers.items()):
            polls = None if polls is None else polls - 1
            match one.poll():
                case Emit(batch):
                    found.extend(batch.rows())
                case NeedSplit():
                    given = splits.next_splits(subtask)
                    if given is None:
                        del open_readers[subtask]
                    else:
                        one.add_splits(given)
    return found


@given(
    count=st.integers(0, 60),
    before=st.integers(1, 4),
    after=st.integers(1, 4),
    polls=st.integers(0, 25),
    size=st.integers(1, 7),
)
@settings(max_examples=examples(80), deadline=None)
def test_each_record_once_over_a_restore_at_another_parallelism(
    count: int, before: int, after: int, polls: int, size: int
) -> None:
    source: CollectionSource = pickle.loads(pickle.dumps(collection_source(range(count))))
    first = enumerator(source, before)
    readers = [reader(source, i, before, size) for i in range(before)]
    found = drain(first, readers, polls)
    unassigned = pickle.loads(pickle.dumps(first.snapshot()))
    held = [split for one in readers for split in one.snapshot()]

    second = enumerator(source, after, unassigned)
    restored = [reader(source, i, after, size) for i in range(after)]
    for i, split in enumerate(held):
        restored[i % after].add_splits([split])
    found += drain(second, restored)
    assert sorted(found) == list(range(count))


def test_one_reader_keeps_the_order() -> None:
    source = collection_source(range(40_000))
    assert drain(enumerator(source, 1), [reader(source, size=10_000)]) == list(range(40_000))


def test_ranges_are_dealt_in_turn() -> None:
    splits = enumerator(collection_source(range(10)), 2)
    assert [(s.position, s.stop) for s in splits.next_splits(0)] == [(0, 5)]
    assert [(s.position, s.stop) for s in splits.next_splits(1)] == [(5, 10)]
    assert splits.next_splits(0) is None
    ids = [s.split_id for s in enumerator(collection_source(range(50_000)), 2).snapshot()]
    assert ids == ["range-00000000", "range-00000001", "range-00000002", "range-00000003"]


def test_a_reader_reads_its_lowest_range_first_and_marks_the_end() -> None:
    source = collection_source(range(9))
    splits = enumerator(source, 3).snapshot()
    one = reader(source)
    one.add_splits([splits[2], splits[0]])
    polled = one.poll()
    assert isinstance(polled, Emit)
    assert (polled.batch.rows(), polled.split_id, polled.finished) == (
        [0, 1, 2],
        splits[0].split_id,
        True,
    )
    assert one.snapshot() == [splits[2]]


def test_empty_collection() -> None:
    source = collection_source([])
    assert enumerator(source, 2).next_splits(0) is None
    assert drain(enumerator(source, 2), [reader(source)]) == []


TABLE = pa.table({"n": [1, 2, 3], "s": ["a", "b", "c"]})


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]),
        TABLE.to_batches()[0],
        pd.DataFrame({"n": [1, 2, 3], "s": ["a", "b", "c"]}, index=[7, 8, 9]),
        pl.DataFrame({"n": [1, 2, 3], "s": ["a", "b", "c"]}),
    ],
    ids=["table", "chunked", "batch", "pandas", "polars"],
)
def test_tables_become_columns(data: Any) -> None:
    source = collection_source(data)
    assert source.bounded
    assert source.schema is not None
    assert source.schema.names == ["n", "s"]
    one = reader(source, size=2)
    one.add_splits(enumerator(source, 1).next_splits(0))
    first, second = one.poll(), one.poll()
    assert isinstance(first, Emit)
    assert isinstance(second, Emit)
    assert isinstance(first.batch, ColumnBatch)
    assert first.batch.rows() + second.batch.rows() == [(1, "a"), (2, "b"), (3, "c")]
    assert (first.finished, second.finished) == (False, True)


def test_declared_values_become_columns() -> None:
    info = Types.ROW_NAMED(["n", "s"], [Types.INT(), Types.STRING()])
    source = collection_source([(1, "a"), (2, "b")], info)
    assert source.schema == pa.schema({"n": pa.int32(), "s": pa.string()})
    assert collection_source(TABLE, info).schema == source.schema
    assert collection_source([], info).schema == source.schema


def test_undeclared_values_stay_objects() -> None:
    source = collection_source(iter([{"a": 1}]), Types.PICKLED_BYTE_ARRAY())
    one = reader(source)
    one.add_splits(enumerator(source, 1).next_splits(0))
    polled = one.poll()
    assert isinstance(polled, Emit)
    assert isinstance(polled.batch, ObjectBatch)
    assert source.schema is None


def test_misfits_are_named_at_once() -> None:
    with pytest.raises(TypeMismatchError, match="field 'n': value 'x'"):
        collection_source([(1,), ("x",)], {"n": int})
    with pytest.raises(TypeMismatchError, match="n"):
        collection_source(TABLE, {"n": int, "missing": int})
    with pytest.raises(ConfigurationError, match="the table has no columns"):
        collection_source(pa.table({}))


# --- order -------------------------------------------------------------------------------------


def test_one_subtask_reads_a_collection_so_that_it_stays_in_order() -> None:
    env = StreamExecutionEnvironment.get_execution_environment(JobConfig(parallelism=4))
    numbers = env.from_collection(list(range(40_000)))
    assert numbers.execute_and_collect(limit=40_000) == list(range(40_000))


def test_a_program_may_have_several_subtasks_read_it() -> None:
    env = StreamExecutionEnvironment.get_execution_environment(JobConfig(parallelism=4))
    numbers = env.from_collection(list(range(40_000))).set_parallelism(3)
    numbers.print()
    assert [node.parallelism for node in env.get_stream_graph().nodes] == [3, 4]


def test_results_of_one_subtask_come_in_its_order() -> None:
    env = StreamExecutionEnvironment.get_execution_environment(JobConfig(parallelism=4))
    numbers = env.from_collection(list(range(100))).map(lambda n: n + 1).set_parallelism(1)
    with numbers.execute_and_collect() as results:
        assert list(results) == list(range(1, 101))
