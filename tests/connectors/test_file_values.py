"""Values that Arrow has no type for, in files."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from strom import JobFailedError, Row, StreamExecutionEnvironment, Types
from strom.connectors.files import FileSink, FileSource

PAIR = Types.TUPLE([Types.STRING(), Types.BIG_INT()])
PLAIN = Types.ROW_NAMED(["n", "price", "pair"], [Types.INT(), Types.BIG_DEC(), PAIR])
ALL = Types.ROW_NAMED(["n", "any"], [Types.INT(), Types.PICKLED_BYTE_ARRAY()])
ROWS = [
    Row("n", "price", "pair")(1, Decimal("1.50"), ("a", 10**40)),
    Row("n", "price", "pair")(2, None, None),
]


def write(path: Path, rows: list[Any], info: Any, form: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection(rows, info).sink_to(FileSink(str(path), format=form))
    env.execute()


def read(path: Path, form: str) -> list[Any]:
    env = StreamExecutionEnvironment.get_execution_environment()
    return list(env.from_source(FileSource(str(path), format=form)).execute_and_collect())


def test_parquet_keeps_them(tmp_path: Path) -> None:
    write(tmp_path, ROWS, PLAIN, "parquet")
    found = sorted(read(tmp_path, "parquet"), key=lambda row: row.n)
    assert repr(found) == repr(ROWS)


def test_json_lines_have_their_text(tmp_path: Path) -> None:
    write(tmp_path, ROWS[:1], PLAIN, "jsonl")
    [found] = read(tmp_path, "jsonl")
    assert found == Row("n", "price", "pair")(1, "1.50", Row(f0="a", f1=str(10**40)))


def test_csv_has_their_text(tmp_path: Path) -> None:
    info = Types.ROW_NAMED(["n", "price"], [Types.INT(), Types.BIG_DEC()])
    write(tmp_path, [(1, Decimal("1.50"))], info, "csv")
    [part] = [path for path in tmp_path.rglob("part-*") if path.is_file()]
    assert "1.50" in part.read_text()


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_objects_have_no_text(tmp_path: Path, form: str) -> None:
    with pytest.raises(JobFailedError, match="column 'any': Python objects have no form"):
        write(tmp_path, [(1, {1})], ALL, form)
