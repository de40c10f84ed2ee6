"""What a FileSource cannot read, put aside by `on_error`: each line by its file and number, once,
and all others as ever."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from drawn_ways import assert_equivalent
from hypothesis import given, settings
from hypothesis import strategies as st
from strom import ConfigurationError, JobFailedError, StreamExecutionEnvironment, dead_letters
from strom.connectors.files import CsvSchema, FileSource
from strom.connectors.files.lenient import numbered, quoted
from strom.core.errors import ConnectorError
from strom.testing.equivalence import Ways

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
TAG = "aside"


class Read:
    """All that a source gives, at some batch size, restored in between."""

    def __init__(self, run: Any, source: FileSource, batch_size: int = 3) -> None:
        lenient = source.malformed_to(TAG)
        assert lenient is not None
        self.rows: list[Any] = []
        self.unread: list[tuple[str, int, str]] = []
        self.errors: list[str] = []
        read = run(lenient, 1, batch_size)
        steps = 0
        while not read.done[0]:
            polled = read.step(0)
            if hasattr(polled, "batch"):
                self.rows += [tuple(row) for row in polled.batch.rows()]
                for tag, batch in polled.side:
                    assert tag == TAG
                    for row in batch.rows():
                        self.unread.append((Path(row.path).name, row.position, row.text))
                        self.errors.append(row.error)
            steps += 1
            if steps % 5 == 0:
                read = read.restored(read.snapshot(), 1)


def test_lines_of_json(tmp_path: Path, run: Any) -> None:
    path = tmp_path / "a.jsonl"
    lines = ['{"n": 1, "s": "x"}', '{"n": ', "", "null", '{"n": "three"}', '{"n": 4}', "[5]"]
    lines += ['{"n": 6} {"n": 7}', '{"n": 8, "s": "\xff"}', '{"n": 9}', '{"n": 10']
    path.write_bytes("\n".join(lines).encode("latin-1"))
    source = FileSource(path, "jsonl", schema=SCHEMA)
    for batch_size in (1, 100):
        read = Read(run, source, batch_size)
        assert read.rows == [(1, "x"), (4, None), (9, None)]
        bad = [(n + 1, lines[n]) for n in (1, 3, 4, 6, 7)] + [(9, '{"n": 8, "s": "\\xff"}')]
        assert read.unread == [("a.jsonl", *one) for one in [*bad, (11, '{"n": 10')]]
        assert all(read.errors)
    with pytest.raises(ConnectorError, match=rf"cannot read '{path}': .* Line 2 of '{path}': ..n"):
        run(source).finish()


def test_lines_of_csv(tmp_path: Path, run: Any) -> None:
    """Also within quotes, and behind one that is never closed."""
    path = tmp_path / "a.csv"
    path.write_text('n,s\n1,"a\nb"\ntwo,c\n3\n4,d\n\n5,"e\n6,f\n7,g,h\n8,i\n')
    source = FileSource(path, "csv", schema=SCHEMA)
    read = Read(run, source)
    assert read.rows == [(1, "a\nb"), (4, "d"), (6, "f"), (8, "i")]
    assert read.unread == [
        ("a.csv", 4, "two,c"),
        ("a.csv", 5, "3"),
        ("a.csv", 8, '5,"e'),
        ("a.csv", 10, "7,g,h"),
    ]
    with pytest.raises(ConnectorError, match=rf"Line 4 of '{path}': two,c"):
        run(source).finish()
    path.write_text("m,s\n1,x\n")
    with pytest.raises(ConnectorError, match=r"a\.csv"):
        Read(run, FileSource(path, "csv", columns=["n"], schema=SCHEMA))


def test_csv_as_it_is_described(tmp_path: Path, run: Any) -> None:
    described = (
        CsvSchema.builder()
        .add_number_column("n")
        .add_string_column("s")
        .set_column_separator("|")
        .set_quote_char("'")
        .set_escape_char("\\")
        .set_use_header()
        .build()
    )
    path = tmp_path / "a.csv"
    path.write_bytes(b"N|S\r\n1|'a\\'b'\r\nx|y\r\n2|'c\r\nd'\r\n3|\r\n")
    read = Read(run, FileSource(path, "csv", csv_schema=described))
    assert [int(n) for n, _ in read.rows] == [1, 2, 3]
    assert read.unread == [("a.csv", 3, "x|y")]


def test_records_of_avro(tmp_path: Path, run: Any) -> None:
    """What is torn takes the rest of its block along."""
    path = tmp_path / "a.avro"
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}],
    }
    rows = [{"n": n, "s": f"text {n}"} for n in range(40)]
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), rows, sync_interval=1)
    data = path.read_bytes()
    torn = data.replace(b"text 7", b"\xffext 7").replace(b"text 9", b"te\xfft 9")
    path.write_bytes(torn)
    read = Read(run, FileSource(path, "avro"))
    assert [n for n, _ in read.rows] == [n for n in range(40) if n not in (7, 9)]
    assert [(at, text) for _, at, text in read.unread] == [
        (n + 1, "(it and what is behind it in its block: 1 records)") for n in (7, 9)
    ]
    path.write_bytes(data[:-30])
    read = Read(run, FileSource(path, "avro"))
    assert [n for n, _ in read.rows] == list(range(len(read.rows)))
    told = [(at, text) for _, at, text in read.unread]
    assert told == [(len(read.rows) + 1, "(the rest of the file)")]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([b"a", b'"', b"\n", b"\r\n", b",", b"\r", b'""', b"\\"]), max_size=30),
    st.integers(1, 7),
)
def test_cutting_loses_no_byte_at_any_block_size(pieces: list[bytes], block: int) -> None:
    data = b"".join(pieces)
    for returns in (True, False):
        lines = list(numbered(pa.BufferReader(data), block, returns))
        assert b"".join(line for _, line in lines) == data
        assert [n for n, _ in lines] == list(range(1, len(lines) + 1))
        whole = list(numbered(pa.BufferReader(data), 1 << 20, returns))
        assert lines == whole
    records = list(quoted(b'"', b"\\", True)(lines))
    assert b"".join(line for one in records for line in one.lines) == data


def test_jobs_count_and_limit_them_exactly_once(tmp_path: Path) -> None:
    rng = random.Random(4)
    expected: list[Any] = []
    for name in ("a", "b", "c"):
        lines = [f"{n}" if rng.random() < 0.9 else f"bad {n}" for n in range(150)]
        (tmp_path / f"{name}.csv").write_text("n\n" + "\n".join(lines) + "\n")
        expected += [("rows", int(one)) for one in lines if one.isdigit()]
        expected += [("letters", (name, one)) for one in lines if not one.isdigit()]
    schema = pa.schema([("n", pa.int64())])

    def build(env: Any) -> Any:
        rows = env.from_source(FileSource(tmp_path, "csv", schema=schema)).uid("read")
        rows = rows.on_error(dead_letters(limit=100))
        letters = rows.get_dead_letters()
        told = letters.map(lambda one: (Path(one.record.path).stem, one.record.text))
        return {"rows": rows.map(lambda row: row.n), "letters": told}

    assert_equivalent(build, expected, Ways(seeds=range(2), local=False))
    env = StreamExecutionEnvironment.get_execution_environment()
    source = FileSource(tmp_path, "csv", schema=schema)
    stream = env.from_source(source, source_name="reading").on_error(dead_letters(limit=3))
    stream.print()
    with pytest.raises(JobFailedError, match=r"operator 'reading'.*limit=3.*in read for .*bad "):
        env.execute("too many")


def test_what_does_not_tell_is_refused_where_the_program_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    env = StreamExecutionEnvironment.get_execution_environment()
    for source in (
        FileSource(tmp_path, "csv"),
        FileSource(tmp_path, "text"),
        FileSource(tmp_path, "parquet", schema=SCHEMA),
    ):
        with pytest.raises(ConfigurationError, match="with a declared schema; else read the lines"):
            env.from_source(source).on_error(dead_letters())
