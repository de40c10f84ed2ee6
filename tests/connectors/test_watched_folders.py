"""New files of a watched folder are read once each, through restores; what cannot be is named."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from amounts import examples
from fsspec.implementations.local import LocalFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strom import Duration
from strom.connectors.files import (
    CsvReaderFormat,
    FileSource,
    ParquetColumnarRowInputFormat,
    StreamFormat,
    paths,
    watching,
)
from strom.connectors.files.seen import SeenFiles
from strom.core.errors import ConfigurationError, ConnectorError
from watched_kit import SCHEMA, SECOND, Watched, write


def test_each_new_file_is_read_once_in_order_of_modification(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    assert watched.read() == []
    write(tmp_path, "b.csv", 1, 2, at=100)
    write(tmp_path, "a.csv", 3, at=200)
    assert watched.read() == [1, 2, 3]
    assert watched.read() == []
    (tmp_path / "deeper").mkdir()
    write(tmp_path / "deeper", "a.csv", 4)
    assert watched.read() == [4]
    assert watched.restored().read() == []


def test_hidden_and_unfinished_names_are_not_read(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "x.csv").write_text("n\n1\n")
    for name in (".a.csv", "_SUCCESS", "a.csv.tmp", "b.csv.inprogress", "c._COPYING_", "d.csv~"):
        (tmp_path / name).write_text("half")
    assert watched.names() == []
    (tmp_path / "a.csv.tmp").write_text("n\n1\n")
    (tmp_path / "a.csv.tmp").rename(tmp_path / "a.csv")
    assert watched.read() == [1]


def test_globs_are_watched_and_may_match_nothing_yet(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "day-*" / "*.csv")
    assert watched.names() == []
    for day in ("day-1", "day-2"):
        (tmp_path / day).mkdir()
        write(tmp_path / day, f"{day}.csv", 1)
        write(tmp_path / day, "other.txt", 1)
    assert sorted(watched.names()) == ["day-1.csv", "day-2.csv"]


def test_folders_are_listed_once_in_an_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listings = []

    def counted(*arguments: Any) -> Any:
        listings.append(arguments)
        return paths.list_files(*arguments)

    monkeypatch.setattr(watching, "list_files", counted)
    watched = Watched(tmp_path)
    assert watched.found() == []
    assert len(listings) == 1
    for _ in range(9):
        watched.clock.advance_ms(100)
        watched.enumerator.next_splits(0)
    assert len(listings) == 1
    assert watched.found() == []
    assert len(listings) == 2


def test_a_slow_listing_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, slow = threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> Any:
        slow.set()
        assert go_on.wait(60)
        return paths.list_files(*arguments)

    write(tmp_path, "a.csv", 1)
    monkeypatch.setattr(watching, "list_files", slowly)
    watched = Watched(tmp_path)
    watched.clock.advance_ms(10_000)
    for _ in range(3):
        assert watched.enumerator.next_splits(0) == []
    assert slow.wait(60)
    assert len(watched.restored().enumerator._left) == 0
    go_on.set()
    assert watched.names() == ["a.csv"]


def test_of_many_files_only_some_wait_in_the_enumerator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in every checkpoint; the others are found without waiting for the interval."""
    monkeypatch.setattr(watching, "MOST_FILES", 3)
    for n in range(10):
        write(tmp_path, f"{9 - n}.csv", n, at=n)
    watched = Watched(tmp_path, max_age=timedelta(seconds=2))
    waiting = []
    rows: list[int] = []
    watched.clock.advance_ms(1000)
    for _ in range(100):
        rows += watched.read(100)
        if len(rows) == 10:
            break
        watched.reader.add_splits(watched.enumerator.next_splits(0))
        if (looking := watched.enumerator._looking) is not None:
            assert looking.done(60)
        waiting.append(len(watched.enumerator._left))
        watched = watched.restored() if len(rows) == 5 else watched
        watched.clock.advance_ms(1)
    assert rows == list(range(10))
    assert 2 <= max(waiting) <= 3


def test_an_error_of_a_listing_is_told_to_whoever_asks(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    watched = Watched(tmp_path / "in")
    assert watched.found() == []
    (tmp_path / "in").rmdir()
    with pytest.raises(ConnectorError, match=r"cannot watch '.*in': there is no such"):
        watched.found()
    (tmp_path / "in").mkdir()
    assert watched.found() == []


@pytest.mark.parametrize("pattern", ["", "*.csv", "**/*.csv"])
def test_a_folder_that_cannot_be_listed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    """Its files would be missing without a word."""
    write(tmp_path, "a.csv", 1)
    (tmp_path / "closed").mkdir()
    refused = tmp_path if pattern == "*.csv" else tmp_path / "closed"
    listed = LocalFileSystem.ls

    def ls(self: Any, path: str, *arguments: Any, **options: Any) -> Any:
        if Path(path) == refused:
            raise PermissionError(13, "Permission denied", path)
        return listed(self, path, *arguments, **options)

    monkeypatch.setattr(LocalFileSystem, "ls", ls)
    with pytest.raises(ConnectorError, match=r"cannot list '.*Permission denied"):
        Watched(tmp_path / pattern).found()
    source = FileSource(tmp_path / pattern, "csv", schema=SCHEMA)
    with pytest.raises(ConnectorError, match=r"cannot list '.*Permission denied"):
        source.create_enumerator(None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("monitor_interval", [None, SECOND])
def test_a_file_that_goes_away_while_its_folder_is_listed_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, monitor_interval: timedelta | None
) -> None:
    write(tmp_path, "a.csv", 1)
    listed = LocalFileSystem.ls
    going = [str(tmp_path / name) for name in ("gone.csv", ".gone too.csv")]

    def ls(self: Any, path: str, *arguments: Any, **options: Any) -> Any:
        if going:
            raise FileNotFoundError(2, "No such file or directory", going.pop())
        return listed(self, path, *arguments, **options)

    monkeypatch.setattr(LocalFileSystem, "ls", ls)
    if monitor_interval is None:
        source = FileSource(tmp_path, "csv", schema=SCHEMA)
        assert len(source.create_enumerator(None, None).snapshot()) == 1  # type: ignore[arg-type]
    else:
        assert Watched(tmp_path).names() == ["a.csv"]


def test_hidden_folders_need_not_be_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a.csv", 1)
    (tmp_path / ".Trash").mkdir()
    listed = LocalFileSystem.ls

    def ls(self: Any, path: str, *arguments: Any, **options: Any) -> Any:
        if ".Trash" in path:
            raise PermissionError(13, "Permission denied", path)
        return listed(self, path, *arguments, **options)

    monkeypatch.setattr(LocalFileSystem, "ls", ls)
    assert Watched(tmp_path).names() == ["a.csv"]


ACTIONS = st.lists(st.sampled_from(["write", "look", "poll", "restore"]), max_size=25)


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(script=ACTIONS, max_age=st.sampled_from([None, timedelta(days=1)]))
def test_any_history_reads_each_file_once(
    tmp_path_factory: Any, script: list[str], max_age: timedelta | None
) -> None:
    """Also when what was emitted after the last snapshot is emitted again, it is the same."""
    folder = tmp_path_factory.mktemp("in")
    watched = Watched(folder, max_age=max_age)
    rows: list[int] = []
    written = 0
    durable = (watched.snapshot(), 0)
    for action in script:
        if action == "write":
            write(folder, f"{written % 3}-{written}.csv", *range(4 * written, 4 * written + 4))
            written += 1
        elif action == "look":
            watched.reader.add_splits(watched.found())
        elif action == "poll":
            rows += watched.read(1)
            if written % 2:
                durable = (watched.snapshot(), len(rows))
        else:
            watched = Watched(folder, durable[0], max_age=max_age)
            del rows[durable[1] :]
    rows += watched.read()
    assert sorted(rows) == list(range(4 * written))


def test_what_was_removed_is_forgotten(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    sizes = []
    for n in range(20):
        path = write(tmp_path, f"{n}.csv", n)
        assert watched.read() == [n]
        path.unlink()
        sizes.append(len(watched.snapshot()))
    assert max(sizes[5:]) == min(sizes[5:])
    for _ in range(3):
        assert watched.read() == []
    assert len(watched.enumerator._seen) == 0
    write(tmp_path, "0.csv", 100)
    assert watched.read() == [100]


def test_a_file_that_one_listing_misses_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a.csv", 1)
    watched = Watched(tmp_path)
    assert watched.read() == [1]
    monkeypatch.setattr(watching, "list_files", lambda *arguments: {})
    for _ in range(2):
        assert watched.found() == []
    monkeypatch.undo()
    for _ in range(3):
        assert watched.restored().found() == []
        assert watched.found() == []


HOUR = 3600


def test_old_files_of_a_growing_folder_are_behind_a_horizon(tmp_path: Path) -> None:
    """All of them are read first, and files removed from behind it are no matter."""
    watched = Watched(tmp_path, max_age=timedelta(hours=10))
    files = [write(tmp_path, f"{n}.csv", n, at=n * HOUR) for n in range(100)]
    assert watched.read() == list(range(100))
    assert len(watched.enumerator._seen) == 11
    for n in range(100, 200):
        files.append(write(tmp_path, f"{n}.csv", n, at=n * HOUR))
        files[n - 100].unlink()
        assert watched.read() == [n]
        watched = watched.restored() if n % 3 == 0 else watched
        assert len(watched.enumerator._seen) <= 11
    assert len(watched.snapshot()) < 2_000


@pytest.mark.parametrize("restored", [False, True])
def test_a_file_that_appears_behind_the_horizon_is_an_error(tmp_path: Path, restored: bool) -> None:
    watched = Watched(tmp_path, max_age=timedelta(hours=10))
    for n in range(20):
        write(tmp_path, f"{n}.csv", n, at=n * HOUR)
    assert watched.read() == list(range(20))
    write(tmp_path, "late but seen to be new.csv", 100, at=12 * HOUR)
    assert watched.read() == [100]
    watched = watched.restored() if restored else watched
    late = write(tmp_path, "late.csv", 101, at=3 * HOUR)
    expected = "1 of 10 files .* while the job was down" if restored else "late.csv' appeared"
    with pytest.raises(ConnectorError, match=expected):
        watched.found()
    os.utime(late)
    assert watched.read() == [101]


def test_a_changed_file_is_not_taken_for_an_unknown_one(tmp_path: Path) -> None:
    seen = SeenFiles(None)
    listing = {"a": paths.Stamp(1, 1)}
    difference = seen.compare(listing)
    assert difference.new == ["a"]
    seen.take("a", listing["a"])
    seen.settle(difference)
    for other in (paths.Stamp(2, 1), paths.Stamp(1, 2)):
        for memory in (seen, SeenFiles(None, seen.snapshot())):
            with pytest.raises(ConnectorError, match="changed"):
                memory.compare({"a": other})


def test_any_filesystem_can_be_watched() -> None:
    memory = fsspec.filesystem("memory")
    folder: Any = "memory://strom-watched"
    try:
        watched = Watched(folder)
        assert watched.found() == []
        memory.pipe("/strom-watched/a.csv", b"n\n1\n")
        assert watched.read() == [1]
        memory.pipe("/strom-watched/b/b.csv", b"n\n2\n")
        watched = watched.restored()
        assert watched.read() == [2]
        memory.pipe("/strom-watched/a.csv", b"n\n1\n3\n")
        with pytest.raises(ConnectorError, match=r"memory:///strom-watched/a\.csv' changed"):
            watched.found()
    finally:
        if memory.exists("/strom-watched"):
            memory.rm("/strom-watched", recursive=True)


def test_a_stale_listing_is_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a network mount that still shows how the file looked under its hidden name."""
    write(tmp_path, "a.csv", 1, 2)
    stale = {str(tmp_path / "a.csv"): paths.Stamp(3, 1)}
    watched = Watched(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(watching, "list_files", lambda *arguments: stale)
        assert watched.found() == []
    assert watched.read() == [1, 2]


def test_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.csv", 1)

    def refused(*arguments: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(watching, "stamp_of", refused)
    with pytest.raises(ConnectorError, match=r"cannot read '.*a\.csv': .*denied.*coordinator"):
        Watched(tmp_path).found()


def test_pipes_are_no_files(tmp_path: Path, run: Any) -> None:
    """To open one would wait for ever."""
    write(tmp_path, "a.csv", 1)
    os.mkfifo(tmp_path / "b.csv")
    assert Watched(tmp_path).names() == ["a.csv"]
    assert Watched(tmp_path / "*.csv").names() == ["a.csv"]
    assert run(FileSource(tmp_path, "csv")).finish().rows() == [(1,)]


def test_links_look_as_what_they_lead_to(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = write(tmp_path, "a.csv", 1, at=100)
    (tmp_path / "in" / "link.csv").symlink_to(path)
    assert Watched(tmp_path / "in").read() == [1]


def test_partition_folders_and_filters_of_watched_folders(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("day", pa.int64())])
    watched = Watched(tmp_path, schema=schema, columns=["day", "n"], filter=pc.field("day") > 1)
    for day in (1, 2, 3):
        (tmp_path / f"day={day}").mkdir()
        write(tmp_path / f"day={day}", "a.csv", day * 10)
    watched.reader.add_splits(found := watched.found())
    assert len(found) == 2
    assert [tuple(row) for row in watched.reader.poll().batch.rows()] == [(2, 20)]  # type: ignore[union-attr]
    assert watched.found() == []


def test_without_a_schema_the_first_file_tells_it(tmp_path: Path) -> None:
    source = FileSource(tmp_path, "csv", monitor_interval=SECOND)
    with pytest.raises(ConnectorError, match="declare the schema") as caught:
        _ = source.schema
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    write(tmp_path, "a.csv", 1)
    assert source.schema.names == ["n"]
    write(tmp_path, "b.csv.tmp", 1)
    assert Watched(tmp_path, schema=None).read() == [1]


def test_a_checkpoint_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", 1)
    once = FileSource(tmp_path, "csv")
    watching_ = FileSource(tmp_path, "csv", monitor_interval=SECOND)
    state: Any = once.create_enumerator(None, None).snapshot()  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="did not watch its folders"):
        watching_.create_enumerator(None, state)  # type: ignore[arg-type]
    state = watching_.create_enumerator(None, None).snapshot()  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="that watched its folders"):
        once.create_enumerator(None, state)  # type: ignore[arg-type]


def test_wrong_settings(tmp_path: Path) -> None:
    for options in ({"settle": SECOND}, {"max_age": SECOND}):
        with pytest.raises(ConfigurationError, match="monitor_interval"):
            FileSource(tmp_path, **options)  # type: ignore[arg-type]
    for wrong in (0, timedelta(0), "1s", True):
        with pytest.raises(ConfigurationError, match="monitor_interval"):
            FileSource(tmp_path, monitor_interval=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="settle"):
        FileSource(tmp_path, monitor_interval=1, settle=-1)


def test_pyflinks_builder(tmp_path: Path, run: Any) -> None:
    (tmp_path / "a.txt").write_bytes("erste Zeile\r\nzweite\n\nkein Ende: ü".encode())
    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), tmp_path)
    source = lines.process_static_file_set().build()
    assert source.bounded
    assert source.schema is None
    for size in (1, 2, 100):
        rows = run(source, batch_size=size).finish().rows()
        assert rows == ["erste Zeile", "zweite", "", "kein Ende: ü"]
    watching_ = lines.monitor_continuously(Duration.of_seconds(1)).build()
    assert not watching_.bounded
    csv = CsvReaderFormat.for_schema(SCHEMA)
    write(tmp_path, "b.csv", 1, 2)
    built = FileSource.for_record_stream_format(csv, tmp_path / "b.csv").build()
    assert run(built).finish().rows() == [(1,), (2,)]
    pq.write_table(pa.table({"n": [3], "m": [4]}), tmp_path / "c.parquet")
    bulk = ParquetColumnarRowInputFormat(SCHEMA)
    built = FileSource.for_bulk_file_format(bulk, tmp_path / "c.parquet").build()
    assert run(built).finish().rows() == [(3,)]


def test_lines_of_another_charset(tmp_path: Path, run: Any) -> None:
    (tmp_path / "a.txt").write_bytes("Größe\n".encode("latin-1"))
    latin = StreamFormat.text_line_format("ISO-8859-1")
    assert run(FileSource.for_record_stream_format(latin, tmp_path).build()).finish().rows() == [
        "Größe"
    ]
    with pytest.raises(ConnectorError, match=r"a\.txt'.*must be text in utf-8"):
        run(FileSource(tmp_path, "text")).finish()


def test_wrong_builders(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"StreamFormat\.text_line_format"):
        FileSource.for_record_stream_format("text", tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="charset 'klingon'"):
        FileSource(tmp_path, "text", charset="klingon")
    with pytest.raises(ConfigurationError, match="'text' has no columns"):
        FileSource(tmp_path, "text", columns=["line"])
    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), tmp_path)
    with pytest.raises(ConfigurationError, match="discovery interval"):
        lines.monitor_continuously(None)  # type: ignore[arg-type]
