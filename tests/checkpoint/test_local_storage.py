"""Copies of checkpoint files on the machine, as they are written beside the storage's; where a disk
is full, or the storage failing; and which of them stay."""

from __future__ import annotations

import builtins
import errno
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from copies_kit import LARGE, N, Place, content
from strom.checkpoint import local_files
from strom.checkpoint.cancellation import Cancellation, UnwantedError
from strom.checkpoint.handles import (
    FileHandle,
    OperatorHandle,
    OperatorSnapshot,
    SubtaskSnapshot,
)
from strom.checkpoint.local_files import CopyFolders
from strom.checkpoint.local_reads import CopiesFirst
from strom.checkpoint.local_storage import CopyingStorage
from strom.checkpoint.manifest import Manifest, OperatorShape
from strom.checkpoint.streaming import PIECE
from strom.checkpoint.transfers import INLINE
from strom.checkpoint.uploads import Uploads
from strom.core.errors import CheckpointError, CorruptCheckpointError
from strom.core.ids import CheckpointId, OperatorId, TaskId, VertexId


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("object_store", [False, True])
@pytest.mark.parametrize("data", [b"", b"small", LARGE], ids=["empty", "small", "large"])
@pytest.mark.parametrize("shared", [False, True])
def test_what_was_written_is_read_without_the_storage(
    tmp_path: Path, data: bytes, shared: bool, object_store: bool
) -> None:
    place = Place(tmp_path, object_store=object_store)
    handle = place.write("f.arrow", data, shared)
    assert content(place.remote.read_file(N, handle)) == data
    place.refuse_reads()
    reader = place.reader()
    assert content(reader.read_file(N, handle)) == data
    figures = reader.figures
    assert (figures.local_files, figures.local_bytes) == (1, len(data))
    assert (figures.remote_files, figures.remote_bytes) == (0, 0)
    where = "shared/3-f.arrow" if shared else "chk-3/f.arrow"
    assert place.folders.names() == {where}


def test_arrow_files_are_copied_as_they_are(place: Place) -> None:
    """Through Arrow's own writer, and in packs, of which parts are read."""
    tables = [pa.table({"n": list(range(i, i + 10))}) for i in range(3)]
    with Uploads(place.copying, N, INLINE, Cancellation(), "task-0") as uploads:
        pending = [uploads.table(f"t{i}.arrow", table) for i, table in enumerate(tables)]
        handles = [one.result() for one in pending]
    assert handles[1].offset
    assert len(place.folders.names()) == 1
    place.refuse_reads()
    for table, handle in zip(tables, handles, strict=True):
        assert pa.ipc.open_file(place.reader().read_file(N, handle)).read_all() == table


def test_a_write_that_is_tried_again_is_copied_once_and_whole(place: Place) -> None:
    for kind in ("timeout", "torn", "reset"):
        place.faults.__init__(nth=(2,), kinds=(kind,), calls=("write",))  # type: ignore[misc]
        handle = place.write(f"{kind}.arrow", LARGE)
        assert place.faults.failed == 1
        place.refuse_reads()
        assert content(place.reader().read_file(N, handle)) == LARGE
        place.faults.stop()


def test_no_copy_stays_of_what_could_not_be_written(place: Place) -> None:
    place.faults.__init__(nth=(2,), kinds=("denied",), calls=("write",))  # type: ignore[misc]
    with pytest.raises(CheckpointError):
        place.write("f.arrow", LARGE)
    assert place.folders.names() == set()


def test_no_copy_stays_of_a_checkpoint_that_is_given_up_meanwhile(place: Place) -> None:
    cancellation = Cancellation()

    def write(sink: Any) -> None:
        sink.write(LARGE[:PIECE])
        cancellation.cancel()
        sink.write(LARGE[PIECE:])

    with pytest.raises(UnwantedError):
        place.copying.write_stream(N, "f.arrow", write, False, cancellation)
    assert place.folders.names() == set()


def test_files_that_are_removed_from_the_storage_are_removed_here(place: Place) -> None:
    handle = place.write("f.arrow", b"data", shared=True)
    place.copying.remove_files(N, [handle])
    assert place.folders.names() == set()
    assert place.remote.list_shared() == ()


# --- a disk that is full -----------------------------------------------------------------------


class Full:
    """A file on a disk with room for so many bytes."""

    def __init__(self, inner: Any, room: int) -> None:
        self.inner = inner
        self.room = room

    def write(self, data: Any) -> None:
        self.room -= memoryview(data).nbytes
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.inner.write(data)

    def close(self) -> None:
        self.inner.close()


@pytest.mark.parametrize("room", [0, PIECE])
def test_a_full_disk_fails_nothing_and_is_said_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, room: int
) -> None:
    def opened(path: Any, mode: str = "r", *rest: Any) -> Any:
        file = builtins.open(path, mode, *rest)  # noqa: SIM115
        return Full(file, room) if mode == "xb" else file

    monkeypatch.setattr(local_files, "open", opened, raising=False)
    with caplog.at_level(logging.WARNING, logger="strom"):
        handles = [place.write(f"{i}.arrow", LARGE) for i in range(3)]
    assert [content(place.reader().read_file(N, h)) for h in handles] == [LARGE] * 3
    assert place.folders.names() == set()
    assert len(caplog.records) == 1
    assert "No space left on device" in caplog.text


def test_a_folder_that_is_gone_fails_nothing(place: Place) -> None:
    place.folder.rmdir()
    handle = place.write("f.arrow", b"data")
    assert content(place.reader().read_file(N, handle)) == b"data"
    assert not place.folder.exists()


# --- what stays --------------------------------------------------------------------------------


def snapshot(*handles: FileHandle) -> SubtaskSnapshot:
    operators = (
        OperatorSnapshot(OperatorId(f"o{i}"), (), OperatorHandle(handle))
        for i, handle in enumerate(handles)
    )
    return SubtaskSnapshot(TaskId(VertexId("v"), 0), tuple(operators))


def manifest(n: int, *handles: FileHandle) -> Manifest:
    shapes = tuple(OperatorShape(OperatorId(f"o{i}"), "o", 1, 128) for i in range(len(handles)))
    return Manifest("job", "job", CheckpointId(n), 0, shapes, (snapshot(*handles),))


def test_completion_removes_what_is_not_needed_any_more(place: Place) -> None:
    base = place.write("base.arrow", b"base", shared=True)
    own = place.write("own.arrow", b"own")
    place.copying.written(N, snapshot(base, own))
    place.copying.completed(N)
    assert place.folders.names() == {"shared/3-base.arrow", "chk-3/own.arrow"}
    four = CheckpointId(4)
    delta = place.copying.write_stream(four, "d.arrow", lambda sink: sink.write(b"d"), True)
    place.copying.written(four, snapshot(base, delta))
    place.copying.completed(four)
    assert place.folders.names() == {"shared/3-base.arrow", "shared/4-d.arrow"}
    assert sorted(path.name for path in place.folder.iterdir()) == ["shared"]


def test_the_next_attempt_keeps_what_it_starts_from_and_nothing_else(place: Place) -> None:
    mine, other = place.write("mine.arrow", b"mine"), place.write("other.arrow", b"other")
    place.write("of-a-failed-one.arrow", b"left")
    (place.folder / "shared").mkdir()
    (place.folder / "shared" / "abc.tmp").write_bytes(b"torn")
    nowhere = FileHandle("of-another-machine.arrow", 1, "0" * 16)
    again = CopyingStorage(place.remote, place.folders, "task t")
    again.began(manifest(3, mine, other, nowhere))
    assert place.folders.names() == {"chk-3/mine.arrow", "chk-3/other.arrow"}
    again.began(None)
    assert place.folders.names() == set()


def test_what_is_written_after_the_end_of_the_task_is_not_copied(place: Place) -> None:
    place.copying.close()
    place.write("late.arrow", b"late")
    assert place.folders.names() == set()


def test_tasks_share_out_several_folders_and_read_all(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    place = Place(tmp_path)
    handles = []
    for subtask in range(2):
        folders = CopyFolders([one, two], subtask)
        copying = CopyingStorage(place.remote, folders, "task t")
        handles.append(copying.write_stream(N, f"{subtask}.arrow", lambda sink: sink.write(b"x")))
    assert [path.name for path in one.rglob("*.arrow")] == ["0.arrow"]
    assert [path.name for path in two.rglob("*.arrow")] == ["1.arrow"]
    place.refuse_reads()
    for subtask in range(2):
        reader = CopiesFirst(place.remote, CopyFolders([one, two], subtask), "task t")
        assert [content(reader.read_file(N, handle)) for handle in handles] == [b"x", b"x"]


# --- what the coordinator looks at -------------------------------------------------------------


@pytest.mark.parametrize("object_store", [False, True])
def test_files_that_are_there_and_long_enough_need_not_be_read(
    tmp_path: Path, object_store: bool
) -> None:
    place = Place(tmp_path, object_store=object_store)
    own, shared = place.write("own.arrow", b"own"), place.write("s.arrow", b"shared", shared=True)
    found = manifest(3, own, shared)
    place.remote.publish(found)
    place.refuse_reads()
    place.remote.check_present(found)
    place.faults.stop()
    assert place.remote.latest_valid(trusted=N).manifest == found
    for handle, where in ((own, "chk-3/own.arrow"), (shared, "shared/3-s.arrow")):
        path = f"{place.remote._home}/{where}"
        data = place.filesystem.cat_file(path)
        place.filesystem.pipe_file(path, data[:-1])
        with pytest.raises(CorruptCheckpointError, match=f"expected {handle.size} bytes, found"):
            place.remote.check_present(found)
        place.filesystem.rm_file(path)
        with pytest.raises(CorruptCheckpointError, match=f"{where}: the file is missing"):
            place.remote.check_present(found)
        latest = place.remote.latest_valid(trusted=N)
        assert latest.manifest is None
        assert [one.checkpoint_id for one in latest.rejected] == [N]
        place.filesystem.pipe_file(path, data)
    path = f"{place.remote._home}/chk-3/own.arrow"
    place.filesystem.pipe_file(path, b"OWN")
    assert place.remote.latest_valid(trusted=N).manifest == found, "it is not read"
    assert place.remote.latest_valid(trusted=CheckpointId(2)).manifest is None
