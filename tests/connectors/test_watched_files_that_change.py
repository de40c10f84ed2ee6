"""Files of a watched folder that change, vanish or are broken are errors that name them."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from strom.connectors.files import (
    paths,
    watching,
)
from strom.core.errors import ConnectorError
from watched_kit import Watched, write


def rewrite(path: Path) -> None:
    """As many bytes, at another time."""
    path.write_text("n\n7\n")
    os.utime(path, (5, 5))


def grow(path: Path) -> None:
    with path.open("a") as file:
        file.write("2\n")


@pytest.mark.parametrize("change", [rewrite, grow])
def test_a_file_that_changes_before_it_is_read_is_an_error(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path = write(tmp_path, "a.csv", 1)
    watched = Watched(tmp_path)
    watched.reader.add_splits(watched.found())
    change(path)
    with pytest.raises(ConnectorError, match=r"a\.csv' changed after it was found"):
        watched.read(1)


@pytest.mark.parametrize("change", [rewrite, grow])
def test_a_file_that_changes_while_it_is_read_is_an_error(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path = write(tmp_path, "a.csv", *range(1))
    watched = Watched(tmp_path)
    watched.reader.add_splits(watched.found())
    assert watched.read(1) == [0]
    change(path)
    with pytest.raises(ConnectorError, match=r"a\.csv' changed after it was found"):
        watched.read(1)
    with pytest.raises(ConnectorError, match=r"a\.csv' changed after it was found"):
        watched.restored().read(1)


@pytest.mark.parametrize("change", [rewrite, grow])
@pytest.mark.parametrize("restored", [False, True])
def test_a_file_that_changes_after_it_was_read_is_an_error(
    tmp_path: Path, change: Callable[[Path], None], restored: bool
) -> None:
    """Its new rows would be missing without a word."""
    path = write(tmp_path, "a.csv", 1)
    watched = Watched(tmp_path)
    assert watched.read() == [1]
    watched = watched.restored() if restored else watched
    change(path)
    with pytest.raises(ConnectorError, match=r"a\.csv' changed after it was found.*rename"):
        watched.found()
    path.unlink()
    write(tmp_path, "b.csv", 2)
    assert watched.read() == [2]


def test_a_file_that_vanishes_before_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 1)
    watched = Watched(tmp_path)
    watched.reader.add_splits(watched.found())
    path.unlink()
    with pytest.raises(ConnectorError, match=r"a\.csv': there is no such file"):
        watched.read(1)


def test_a_file_that_changes_while_it_is_looked_at_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a Parquet file, which is completed while its footer is looked for."""
    whole = tmp_path / ".whole"
    pq.write_table(pa.table({"n": [1]}), whole)
    path = tmp_path / "a.parquet"
    path.write_bytes(whole.read_bytes()[:-9])
    listed = paths.list_files

    def list_files(*arguments: Any) -> Any:
        found = listed(*arguments)
        path.write_bytes(whole.read_bytes())
        return found

    monkeypatch.setattr(watching, "list_files", list_files)
    watched = Watched(tmp_path, format="parquet")
    assert watched.found() == []
    monkeypatch.undo()
    assert watched.read() == [1]


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ConnectorError, match=r"a\.parquet'.*not complete, readable Parquet"):
        Watched(tmp_path, format="parquet").found()


def test_files_settle_if_asked_for(tmp_path: Path) -> None:
    watched = Watched(tmp_path, settle=timedelta(seconds=2))
    path = write(tmp_path, "a.csv", 1)
    assert watched.names() == []
    assert watched.names() == []
    grow(path)
    for _ in range(2):
        assert watched.names() == []
    assert watched.read() == [1, 2]
