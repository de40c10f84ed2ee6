"""Copies of checkpoint files as they are read: those that are what was written, and no others; and
links, from local databases and to them."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from copies_kit import LARGE, N, Place, content, flip
from strom.checkpoint.cancellation import Cancellation
from strom.checkpoint.databases import fetch_files
from strom.checkpoint.handles import (
    DatabaseHandle,
    FileHandle,
)
from strom.checkpoint.storage import checksum
from strom.checkpoint.transfers import INLINE
from strom.checkpoint.uploads import Uploads
from strom.core.errors import CheckpointError, CorruptCheckpointError


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (flip, "expected xxh64"),
        (lambda path: os.truncate(path, path.stat().st_size - 1), "bytes, found"),
        (lambda path: os.truncate(path, 0), "bytes, found"),
        (lambda path: (path.unlink(), path.mkdir()), "Is a directory"),
        (lambda path: path.unlink(), None),
    ],
    ids=["altered", "truncated", "empty", "unreadable", "removed"],
)
def test_a_copy_that_is_not_what_was_written_is_not_used(
    place: Place, caplog: pytest.LogCaptureFixture, damage: Any, said: str | None
) -> None:
    handles = [place.write(f"{i}.arrow", LARGE, shared=i > 0) for i in range(3)]
    for name in place.folders.names():
        damage(place.folder / name)
    reader = place.reader()
    with caplog.at_level(logging.WARNING, logger="strom"):
        assert [content(reader.read_file(N, h)) for h in handles] == [LARGE] * 3
    assert (reader.figures.local_files, reader.figures.remote_files) == (0, 3)
    assert len(caplog.records) == (said is not None), "said once, and a missing one not at all"
    assert said is None or said in caplog.text


def test_a_copy_that_is_longer_is_not_taken_for_the_whole(place: Place) -> None:
    """Only the bytes of the handle count: those of a pack are a part of it."""
    handle = place.write("f.arrow", b"data")
    with (place.folder / "chk-3/f.arrow").open("ab") as file:
        file.write(b"more")
    assert content(place.reader().read_file(N, handle)) == b"data"


def test_neither_copy_nor_file_is_an_error_of_the_storage(place: Place) -> None:
    handle = place.write("f.arrow", b"data")
    (place.folder / "chk-3/f.arrow").unlink()
    place.remote.remove_files(N, [handle])
    with pytest.raises(CorruptCheckpointError, match="the file is missing"):
        place.reader().read_file(N, handle)


def test_a_handle_does_not_lead_out_of_the_folder(place: Place, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"data")
    handle = FileHandle("../../secret", 4, checksum(b"data"))
    with pytest.raises(CorruptCheckpointError, match="leaves the checkpoint's folder"):
        place.reader().read_file(N, handle)


# --- links -------------------------------------------------------------------------------------


def upload(place: Place, source: Path) -> FileHandle:
    """As the files of a local database are."""
    with Uploads(place.copying, N, INLINE, Cancellation(), "task-0") as uploads:
        return uploads.file("000012.sst", source, True).result()


def test_files_that_never_change_are_linked(place: Place, tmp_path: Path) -> None:
    source = tmp_path / "000012.sst"
    source.write_bytes(LARGE)
    inode = source.stat().st_ino
    handle = upload(place, source)
    source.unlink()
    copy = place.folder / "shared/3-000012.sst"
    assert copy.stat().st_ino == inode
    place.refuse_reads()
    assert content(place.reader().read_file(N, handle)) == LARGE


def test_across_disks_they_are_copied(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: Any, target: Any) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    source = tmp_path / "000012.sst"
    source.write_bytes(LARGE)
    handle = upload(place, source)
    assert (place.folder / "shared/3-000012.sst").stat().st_ino != source.stat().st_ino
    place.refuse_reads()
    assert content(place.reader().read_file(N, handle)) == LARGE


def test_a_link_goes_if_its_file_cannot_be_written(place: Place, tmp_path: Path) -> None:
    source = tmp_path / "000012.sst"
    source.write_bytes(LARGE)
    place.faults.__init__(nth=(1,), kinds=("denied",), calls=("write",))  # type: ignore[misc]
    with pytest.raises(CheckpointError):
        upload(place, source)
    assert place.folders.names() == set()


def database(handle: FileHandle, *small: FileHandle) -> DatabaseHandle:
    names = [("000012.sst", handle), *((f"MANIFEST-{i}", one) for i, one in enumerate(small))]
    return DatabaseHandle(tuple(names), ())


def test_a_database_is_opened_with_links_of_what_never_changes(
    place: Place, tmp_path: Path
) -> None:
    """What it goes on writing to is copied."""
    table, log = place.write("000012.sst", LARGE, shared=True), place.write("MANIFEST-0", b"log")
    place.refuse_reads()
    reader = place.reader()
    fetch_files(reader, N, database(table, log), tmp_path / "db")
    inodes = [(place.folder / name).stat().st_ino for name in ("shared/3-000012.sst",)]
    assert [(tmp_path / "db" / "000012.sst").stat().st_ino] == inodes
    assert (tmp_path / "db" / "MANIFEST-0").stat().st_nlink == 1
    assert (tmp_path / "db" / "MANIFEST-0").read_bytes() == b"log"
    assert (reader.figures.local_files, reader.figures.remote_files) == (2, 0)
    assert reader.figures.local_bytes == len(LARGE) + 3


@pytest.mark.parametrize("why", ["another disk", "damaged", "removed"])
def test_a_database_gets_what_cannot_be_linked(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    table = place.write("000012.sst", LARGE, shared=True)

    def link(source: Any, target: Any) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    if why == "another disk":
        monkeypatch.setattr(os, "link", link)
        place.refuse_reads()
    elif why == "damaged":
        flip(place.folder / "shared/3-000012.sst")
    else:
        (place.folder / "shared/3-000012.sst").unlink()
    reader = place.reader()
    fetch_files(reader, N, database(table), tmp_path / "db")
    assert (tmp_path / "db" / "000012.sst").read_bytes() == LARGE
    assert (tmp_path / "db" / "000012.sst").stat().st_nlink == 1
    figures = reader.figures
    assert (figures.local_files, figures.remote_files) == (
        (1, 0) if why == "another disk" else (0, 1)
    )
