"""RocksDB's files mapped into memory, and not: the same is read, each reads what the other wrote,
and indexes take no memory beside the budget."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from strom.core.errors import ConfigurationError
from strom.core.ids import KeyGroupRange
from strom.core.state_config import StateConfig
from strom.state.rocks.database.files import is_needed
from strom.state.rocks.database.task_database import TaskDatabase
from strom.state.stored_files import FormerDatabase

GROUPS = KeyGroupRange(0, 3)
ROWS = 40_000


def config(mapped: bool, folder: Path) -> StateConfig:
    return StateConfig("rocksdb", memory=16 << 20, local_dirs=(str(folder),), mapped=mapped)


def place(prefix: bytes, number: int) -> bytes:
    group = (number % 4).to_bytes(2, "big")
    return prefix + group + b"\0i" + (number * 0x9E3779B97F4A7C15 % (1 << 63)).to_bytes(8, "big")


def row(number: int) -> bytes:
    return number.to_bytes(8, "little") * 2


@pytest.fixture(name="made", params=[True, False], ids=["mapped", "read"])
def _made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[bool, TaskDatabase]]:
    """A database whose rows are in a file."""
    database = TaskDatabase(config(request.param, tmp_path))
    prefix, _ = database.new_state("sums", "table", {"layout": "slots"})
    database.write([], sorted((place(prefix, number), row(number)) for number in range(ROWS)))
    raw(database).flush()
    yield request.param, database
    database.close()


def raw(database: TaskDatabase) -> Any:
    return database._db


def check(database: TaskDatabase) -> None:
    (state,) = database.states
    numbers = range(0, ROWS, 7)
    found = database.get_many([place(state.prefix, number) for number in numbers])
    assert found == [row(number) for number in numbers]
    assert database.get_many([place(state.prefix, ROWS + 1)]) == [None]
    assert sum(1 for _ in database.scan(state.prefix)) == ROWS


def test_indexes_take_no_memory_where_files_are_mapped(made: tuple[bool, TaskDatabase]) -> None:
    """Of 40,000 rows an index has 7 KB and more, a filter 50; where files are not mapped, both are
    in the block cache."""
    _, database = made
    check(database)
    assert raw(database).property_int_value("rocksdb.estimate-table-readers-mem") < 4_000


def test_either_goes_on_with_files_of_the_other(
    made: tuple[bool, TaskDatabase], tmp_path: Path
) -> None:
    mapped, database = made
    held = database.hold()
    files = held.files()

    def fetch(folder: Path) -> None:
        folder.mkdir(parents=True)
        for path in filter(is_needed, files.iterdir()):
            shutil.copy(path, folder / path.name)

    former = FormerDatabase(database.states, fetch, GROUPS)
    for copied in (False, True):
        other = TaskDatabase(config(not mapped, tmp_path))
        try:
            if copied:
                other.inherit_more(former, GROUPS)
            else:
                other.inherit(former, GROUPS)
            check(other)
            other.write([], [(place(other.states[0].prefix, 0), row(0))])
            raw(other).flush()
            check(other)
        finally:
            other.close()


def test_files_are_compressed_as_told_and_read_by_all(tmp_path: Path) -> None:
    """Flink's names are taken; what is told of one level is for all that follow. Each goes on with
    the files of the one before."""
    sizes, former = [], None
    for names in (("NO_COMPRESSION",), ("none", "ZSTD_COMPRESSION"), ("lz4",), ("snappy",)):
        told = StateConfig("rocksdb", 16 << 20, local_dirs=(str(tmp_path),), compression=names)
        database = TaskDatabase(told)
        if former is not None:
            database.inherit(former, GROUPS)
            check(database)
            raw(database).compact_range(None, None)
        else:
            prefix, _ = database.new_state("sums", "table", {"layout": "slots"})
            database.write([], sorted((place(prefix, n), row(n)) for n in range(ROWS)))
            raw(database).flush()
        check(database)
        sizes.append(raw(database).property_int_value("rocksdb.total-sst-files-size"))
        kept = tmp_path / f"kept-{len(sizes)}"
        kept.mkdir()
        for path in filter(is_needed, database.hold().files().iterdir()):
            shutil.copy(path, kept / path.name)
        former = FormerDatabase(database.states, partial(shutil.copytree, kept), GROUPS)
        database.close()
    assert max(sizes[1:]) < sizes[0] * 3 / 4


@pytest.mark.parametrize("names", [(), ("lz5",), ("lz4", "")])
def test_unknown_compression_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match=r"compress.* (needs|none, snappy, lz4, zstd)"):
        StateConfig("rocksdb", compression=names)
