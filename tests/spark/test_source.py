"""The Parquet source against a real Spark: same splits, right rows, nothing left in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from strom.api.connectors.base import Emit, EnumeratorContext, NeedSplit, ReaderContext
from strom.connectors.spark import SparkParquetSource
from strom.core.clock import SystemClock
from strom.core.errors import ConfigurationError, OperatorError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("gateway")]


class Driver:
    """One reader and its enumerator, driven as a task drives them."""

    def __init__(
        self,
        until: Callable[..., Any],
        source: SparkParquetSource,
        restored: Any = None,
        batch_size: int = 300,
    ) -> None:
        self._until = until
        self.enumerator = source.create_enumerator(EnumeratorContext("in", 1, "job"), restored)
        self.reader = source.create_reader(ReaderContext("in", 0, 1, batch_size, SystemClock()))

    def next(self) -> Emit | None:
        """The next batch, None at the end of the input."""
        return self._until(self._step, "a batch")[0]

    def all(self) -> list[Emit]:
        return list(iter(self.next, None))

    def _step(self) -> tuple[Emit | None] | None:
        match self.reader.poll():
            case Emit() as emit:
                return (emit,)
            case NeedSplit():
                given = self.enumerator.next_splits(0)
                if given is None:
                    return (None,)
                self.reader.add_splits(given)
        return None


def table(emits: list[Emit]) -> pa.Table:
    return pa.Table.from_batches([emit.batch.data for emit in emits])


def contents(emits: list[Emit]) -> dict[str, list[int]]:
    """Split id to the ids of its rows, in order."""
    result: dict[str, list[int]] = {}
    for emit in emits:
        result.setdefault(emit.split_id, []).extend(emit.batch.data.column("id").to_pylist())
    return result


def everything(folder: Path) -> pa.Table:
    return pa.concat_tables(pq.read_table(file) for file in sorted(folder.iterdir()))


def test_sorted_splits_are_the_same_in_every_attempt(until: Any, input_folder: Path) -> None:
    source = SparkParquetSource(str(input_folder), sort_by="at", rows_per_split=1000)
    first = contents(Driver(until, source).all())
    again = contents(Driver(until, source, batch_size=77).all())

    whole = everything(input_folder).append_column("n", pa.array(range(3000)))
    order = whole.sort_by([("at", "ascending"), ("n", "ascending")])["id"].to_pylist()
    assert first == {f"{i:08d}": order[i * 1000 : (i + 1) * 1000] for i in range(3)}
    assert again == first


def test_without_an_order_rows_come_file_by_file(until: Any, input_folder: Path) -> None:
    source = SparkParquetSource(str(input_folder), rows_per_split=700)
    emits = Driver(until, source).all()
    assert table(emits)["id"].to_pylist() == list(range(3000))
    assert [len(rows) for rows in contents(emits).values()] == [700, 700, 700, 700, 200]


def test_columns_filter_and_types(until: Any, input_folder: Path) -> None:
    source = SparkParquetSource(
        str(input_folder), ["id", "at", "plain", "word"], "word = 'w3' and id < 1500", "plain"
    )
    rows = table(Driver(until, source).all())
    assert rows.schema.equals(source.schema)
    assert rows.schema.field("at").type == pa.timestamp("us", "UTC")
    assert rows.schema.field("plain").type == pa.timestamp("us")
    whole = everything(input_folder)
    kept = [r for r in whole.to_pylist() if r["word"] == "w3" and r["id"] < 1500]
    kept.sort(key=lambda r: r["plain"])
    assert rows.select(["id", "plain"]).to_pylist() == [
        {"id": r["id"], "plain": r["plain"]} for r in kept
    ]
    assert rows["at"].cast(pa.int64()).to_pylist() == rows["plain"].cast(pa.int64()).to_pylist()


def test_a_reader_goes_on_exactly_after_its_position(until: Any, input_folder: Path) -> None:
    source = SparkParquetSource(str(input_folder), sort_by="at", rows_per_split=1000)
    whole = table(Driver(until, source).all())
    first = Driver(until, source)
    read = [first.next() for _ in range(5)]
    taken, left = first.reader.snapshot(), first.enumerator.snapshot()
    assert [(s.split_id, s.position) for s in taken] == [("00000001", 300)]

    second = Driver(until, source, restored=left)
    second.reader.add_splits(taken)
    assert table(read + second.all()).equals(whole)  # type: ignore[operator]


def test_nothing_stays_in_memory_after_reading(
    until: Any, tmp_path: Path, gateway: Any, objects_in_store: Callable[[], int]
) -> None:
    import ray

    ids = pa.array(range(120_000), pa.int64())
    pq.write_table(pa.table({"id": ids}), tmp_path / "long.parquet")
    until(lambda: objects_in_store() == 0, "the store is empty")
    driver = Driver(
        until, SparkParquetSource(str(tmp_path), rows_per_split=30_000), batch_size=5000
    )
    first = driver.next()
    # The block behind this one is fetched ahead; too large to travel beside the store.
    until(lambda: objects_in_store() > 0, "a block in the store")
    emits = [first, *driver.all()]
    until(lambda: objects_in_store() == 0, "the blocks are released")
    assert ray.get(gateway.statistics.remote())["persistent_rdds"] == 0
    assert table(emits)["id"].to_pylist() == ids.to_pylist()  # type: ignore[arg-type]


def test_errors_name_the_operator_and_what_to_do(until: Any, input_folder: Path) -> None:
    path = str(input_folder)
    with pytest.raises(ConfigurationError, match=r"operator 'in'.*'word' is null in 300 rows"):
        Driver(until, SparkParquetSource(path, sort_by="word")).all()
    with pytest.raises(ConfigurationError, match=r"no column \['nix'\]"):
        Driver(until, SparkParquetSource(path, sort_by="nix")).all()
    with pytest.raises(OperatorError, match=r"operator 'in', subtask 0: Spark: .*nonsense"):
        Driver(until, SparkParquetSource(path, filter="nonsense > 1")).all()


def test_an_input_that_changes_under_the_job_is_noticed(until: Any, input_folder: Path) -> None:
    source = SparkParquetSource(str(input_folder), rows_per_split=100_000)
    driver = Driver(until, source)
    until(lambda: driver.enumerator.snapshot().splits, "the plan")
    pq.write_table(everything(input_folder).slice(0, 400), input_folder / "part-0.parquet")
    with pytest.raises(OperatorError, match="planned with 3000 rows and now has 2900"):
        driver.all()
