"""The Parquet source against a real Spark: same splits, right rows, nothing left in memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from split_driver import Driver, table
from strom.api.connectors.base import Emit
from strom.api.connectors.reads import ColumnReads
from strom.connectors.spark import SparkParquetSource
from strom.connectors.spark.parquet_source import EnumeratorState
from strom.connectors.spark.ranges import ParquetSplit
from strom.core.errors import ConfigurationError, OperatorError

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("gateway"),
]


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


def test_columns_that_nobody_reads_are_left_out(until: Any, input_folder: Path) -> None:
    source = SparkParquetSource(
        str(input_folder), filter="word = 'w3'", sort_by="at", rows_per_split=50
    )
    read = ColumnReads(frozenset(["id", "plain", "none"]))
    assert source.reading(read) is None  # nobody has looked yet which columns there are
    whole = Driver(until, source)
    assert source.schema.names == everything(input_folder).schema.names
    less = source.reading(read)
    assert less is not None
    assert less.schema.names == [name for name in source.schema.names if name in read.names]
    rows = table(Driver(until, less).all())
    assert rows.schema.equals(less.schema)
    assert rows.equals(table(whole.all()).select(less.schema.names))
    assert source.reading(ColumnReads(frozenset(["none"]))) is None
    assert less.reading(read) is None


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
    # Delta keeps the state of tables it has read for a while.
    kept = ray.get(gateway.statistics.remote())["persistent_rdds"]
    driver = Driver(
        until, SparkParquetSource(str(tmp_path), rows_per_split=30_000), batch_size=5000
    )
    first = driver.next()
    # The block behind this one is fetched ahead; too large to travel beside the store.
    until(lambda: objects_in_store() > 0, "a block in the store")
    emits = [first, *driver.all()]
    until(lambda: objects_in_store() == 0, "the blocks are released")
    assert ray.get(gateway.statistics.remote())["persistent_rdds"] <= kept
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


def partitioned(folder: Path) -> Path:
    """Rows 0 to 299 in folders by their hundreds and by a word."""
    rows = pa.table(
        {
            "id": list(range(300)),
            "hundred": [n // 100 for n in range(300)],
            "word": [f"w {n % 2}" for n in range(300)],
        }
    )
    pq.write_to_dataset(rows, str(folder), partition_cols=["hundred", "word"])
    return folder


def test_partition_folders_are_columns_and_are_pruned(until: Any, tmp_path: Path) -> None:
    source = SparkParquetSource(str(partitioned(tmp_path / "in")), filter="hundred = 2")
    driver = Driver(until, source)
    splits = until(lambda: driver.enumerator.snapshot().splits, "the plan")
    assert all("hundred=2" in file for split in splits for file in split.files)
    rows = table(driver.all())
    assert rows.schema.equals(source.schema)
    assert sorted(rows["id"].to_pylist()) == list(range(200, 300))
    assert set(rows["hundred"].to_pylist()) == {2}
    assert set(rows["word"].to_pylist()) == {"w 0", "w 1"}


def test_a_watched_folder_gives_each_file_once(until: Any, tmp_path: Path) -> None:
    folder = tmp_path / "watched %41"
    folder.mkdir()

    def put(number: int, rows: range) -> None:
        pq.write_table(pa.table({"id": list(rows)}), folder / f".{number}")
        (folder / f".{number}").rename(folder / f"{number}.parquet")

    source = SparkParquetSource(
        str(folder), watch=timedelta(milliseconds=100), schema=pa.schema({"id": pa.int64()})
    )
    assert not source.bounded
    driver = Driver(until, source, batch_size=10)
    for _ in range(5):
        assert driver._step() is None
    put(0, range(10))
    pq.write_table(pa.table({"id": [-1]}), folder / "_half")
    assert table([driver.next()])["id"].to_pylist() == list(range(10))  # type: ignore[list-item]
    put(1, range(10, 20))
    put(2, range(20, 25))
    found = [driver.next()]
    saved, taken = driver.enumerator.snapshot(), driver.reader.snapshot()
    lost = driver.next()
    assert lost is not None
    again = Driver(until, source, restored=saved)
    again.reader.add_splits(taken)
    put(3, range(25, 30))
    ids = table(found)["id"].to_pylist()  # type: ignore[arg-type]
    while len(ids) < 20:
        ids += table([again.next()])["id"].to_pylist()  # type: ignore[list-item]
    assert sorted(ids) == list(range(10, 30))


def test_files_with_other_columns_are_an_error_or_filled(until: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2], "x": ["a", "b"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"id": [3], "y": [1.5]}), tmp_path / "2.parquet")
    with pytest.raises(ConfigurationError, match=r"has other columns than .*\['x'\] missing"):
        Driver(until, SparkParquetSource(str(tmp_path))).all()
    filled = SparkParquetSource(str(tmp_path), fill=True, sort_by="id")
    rows = table(Driver(until, filled).all())
    assert rows.to_pylist() == [
        {"id": 1, "x": "a", "y": None},
        {"id": 2, "x": "b", "y": None},
        {"id": 3, "x": None, "y": 1.5},
    ]
    chosen = SparkParquetSource(str(tmp_path), columns=["id"])
    assert sorted(table(Driver(until, chosen).all())["id"].to_pylist()) == [1, 2, 3]


@pytest.fixture
def many_groups(tmp_path: Path) -> Path:
    """Numbers 0 to 5999 in three files of row groups of 250, 400 and 1000 rows; an empty file."""
    folder = tmp_path / "many groups"
    folder.mkdir()
    for number, (start, rows, group) in enumerate(
        [(0, 1500, 250), (1500, 2500, 400), (4000, 0, 1), (4000, 2000, 1000)]
    ):
        ids = pa.array(range(start, start + rows), pa.int64())
        data = pa.table({"id": ids, "part": pc.divide(ids, 100)})
        pq.write_table(data, folder / f"{number}.parquet", row_group_size=group)
    return folder


@pytest.mark.parametrize("rows", [None, 400, 950, 5000])
def test_row_groups_and_files_are_cut_and_joined_in_order(
    until: Any, many_groups: Path, rows: int | None
) -> None:
    driver = Driver(until, SparkParquetSource(str(many_groups), ["id"], rows_per_split=rows), None)
    emits = driver.all()
    assert table(emits)["id"].to_pylist() == list(range(6000))
    sizes = [len(ids) for ids in contents(emits).values()]
    most = rows or 6000
    assert sizes == [most] * (6000 // most) + [6000 % most] * bool(6000 % most)


def test_a_filtered_input_keeps_its_order_and_empty_stretches_are_left_out(
    until: Any, many_groups: Path
) -> None:
    kept = [n for n in range(6000) if n // 100 in (1, 14, 30, 59)]
    for rows, count in ((None, 1), (300, 4), (2000, 3)):
        source = SparkParquetSource(
            str(many_groups), ["id"], "part in (1, 14, 30, 59)", rows_per_split=rows
        )
        driver = Driver(until, source, batch_size=70)
        emits = [driver.next()]
        taken, left = driver.reader.snapshot(), driver.enumerator.snapshot()
        assert taken[0].position == 70
        assert len(taken + left.splits) == count
        again = Driver(until, source, restored=left)
        again.reader.add_splits(taken)
        assert table(emits + again.all())["id"].to_pylist() == kept


def test_a_filter_that_joins_another_table_is_read_in_order(until: Any, many_groups: Path) -> None:
    source = SparkParquetSource(
        str(many_groups), ["id"], "id % 7 in (select id from range(3))", rows_per_split=1100
    )
    kept = [n for n in range(6000) if n % 7 < 3]
    assert table(Driver(until, source).all())["id"].to_pylist() == kept


def test_a_split_opens_only_its_row_groups(until: Any, many_groups: Path) -> None:
    source = SparkParquetSource(str(many_groups / "1.parquet"), ["id"], rows_per_split=800)
    driver = Driver(until, source)
    state = until(lambda: driver.enumerator.snapshot().splits and driver.enumerator.snapshot(), "")
    groups = pq.ParquetFile(many_groups / "1.parquet").metadata
    with open(many_groups / "1.parquet", "r+b") as file:
        for spoilt in (0, 1, 6):
            column = groups.row_group(spoilt).column(0)
            file.seek(column.dictionary_page_offset or column.data_page_offset)
            file.write(b"\xff" * column.total_compressed_size)
    assert [s.rows for s in state.splits] == [800, 800, 800, 100]
    sound = EnumeratorState(state.splits[1:3])
    ids = table(Driver(until, source, restored=sound).all())["id"].to_pylist()
    assert ids == list(range(2300, 3900))
    with pytest.raises(OperatorError):
        Driver(until, source, restored=EnumeratorState(state.splits[:1])).all()


def test_splits_fit_memory_where_a_long_text_repeats(until: Any, tmp_path: Path) -> None:
    ids = pa.array(range(24_000), pa.int64())
    text = pa.array(["x" * 2000]).take(pa.array([0] * len(ids)))
    pq.write_table(pa.table({"id": ids, "text": text}), tmp_path / "a.parquet", row_group_size=4000)
    assert (tmp_path / "a.parquet").stat().st_size < 1 << 20
    driver = Driver(until, SparkParquetSource(str(tmp_path)))
    splits = until(lambda: driver.enumerator.snapshot().splits, "the plan")
    assert [split.rows for split in splits] == [16_000, 8_000]
    few = Driver(until, SparkParquetSource(str(tmp_path), ["id"]))
    assert [s.rows for s in until(lambda: few.enumerator.snapshot().splits, "")] == [24_000]
    assert table(driver.all())["id"].to_pylist() == ids.to_pylist()


def test_splits_of_checkpoints_that_know_no_row_groups_are_read(
    until: Any, many_groups: Path
) -> None:
    file = f"file:{many_groups / '1.parquet'}".replace(" ", "%20")
    split = ParquetSplit(0, (file,), (file, 350), (file, 900), 550, position=50)
    source = SparkParquetSource(str(many_groups), ["id"], rows_per_split=550)
    driver = Driver(until, source, restored=EnumeratorState((split,)))
    assert table(driver.all())["id"].to_pylist() == list(range(1900, 2400))


def test_a_file_that_is_written_anew_in_other_row_groups_gives_the_same_rows(
    until: Any, many_groups: Path
) -> None:
    file = many_groups / "1.parquet"
    source = SparkParquetSource(str(file), ["id"], rows_per_split=400)
    driver = Driver(until, source)
    until(lambda: driver.enumerator.snapshot().splits, "the plan")
    pq.write_table(pq.read_table(file), file, row_group_size=400, compression="none")
    assert table(driver.all())["id"].to_pylist() == list(range(1500, 4000))
