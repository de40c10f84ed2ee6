"""Storage: round trips, and everything that can be wrong with files and disks."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from strom.checkpoint.file_storage import PAUSES_S, FileStorage
from strom.checkpoint.handles import FileHandle, OperatorHandle, OperatorSnapshot, SubtaskSnapshot
from strom.checkpoint.manifest import Manifest, OperatorShape
from strom.checkpoint.storage import CheckpointStorage, MemoryStorage, open_storage
from strom.core.errors import CheckpointError, ConfigurationError, CorruptCheckpointError
from strom.core.ids import CheckpointId, TaskId
from strom.engine.hosts.driver import WIND_UP_S
from strom.testing.faulty_filesystem import Faults, FaultyFileSystem

DATA = b"some state " * 100


class OtherMemory(MemoryFileSystem):  # type: ignore[misc]
    """A filesystem without atomic put, of its own."""

    protocol = "test-memory"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]


def manifest(n: int, *handles: FileHandle) -> Manifest:
    operators = tuple(
        OperatorSnapshot(f"op{i}", (), OperatorHandle(h)) for i, h in enumerate(handles)
    )
    shapes = tuple(OperatorShape(f"op{i}", "op", 1, 128) for i in range(len(handles)))
    subtasks = (SubtaskSnapshot(TaskId("v", 0), operators),)
    return Manifest("job", "Job", n, 1000 + n, shapes, subtasks, {"src": b"\x80pickle"})


def write_checkpoint(storage: CheckpointStorage, n: int) -> Manifest:
    handles = [storage.write_file(n, f"f{i}.arrow", DATA + bytes([n, i])) for i in range(2)]
    storage.publish(manifest(n, *handles))
    return storage.load(n)


FAULTY = {"faulty objects": True, "faulty files": False}


@pytest.fixture(params=["local", "memory", "inline", *FAULTY])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStorage:
    if request.param == "local":
        return open_storage(str(tmp_path), "job")
    if request.param == "inline":
        return open_storage(None, "job")
    OtherMemory.store.clear()
    OtherMemory.pseudo_dirs[:] = [""]
    if request.param in FAULTY:
        # One call in ten fails.
        filesystem = FaultyFileSystem(OtherMemory(), Faults(1, 0.1), FAULTY[request.param])
        return FileStorage(filesystem, "/root", "job", pause=lambda seconds: None)
    return FileStorage(OtherMemory(), "/root", "job")


@pytest.fixture
def local(tmp_path: Path) -> FileStorage:
    found = open_storage(tmp_path.as_uri(), "job")
    assert isinstance(found, FileStorage)
    return found


def test_round_trip(storage: CheckpointStorage) -> None:
    assert storage.list() == ()
    assert storage.latest_valid().manifest is None
    one = write_checkpoint(storage, 1)
    two = write_checkpoint(storage, 12)
    assert storage.list() == (1, 12)
    latest = storage.latest_valid()
    assert latest.manifest == two
    assert latest.rejected == ()
    assert latest.highest_id == 12
    assert [bytes(storage.read_file(12, h)) for h in two.files()] == [
        DATA + bytes([12, i]) for i in range(2)
    ]
    assert storage.latest_valid(after=12).manifest is None
    # Deleting is repeatable; the one before is still there.
    storage.delete(12)
    storage.delete(12)
    assert storage.latest_valid().manifest == one


def test_older_ones_without_a_manifest_are_torn(local: FileStorage) -> None:
    local.write_file(CheckpointId(1), "late.arrow", b"data")
    write_checkpoint(local, 2)
    newest = write_checkpoint(local, 3)
    local.write_file(CheckpointId(4), "newer.arrow", b"data")
    latest = local.latest_valid()
    assert (latest.manifest, latest.torn) == (newest, (1,))
    assert local.latest_valid(after=CheckpointId(1)).torn == ()
    assert local.latest_valid(without=[CheckpointId(2)]).torn == (1, 2)


def test_what_is_behind_the_newest_that_counts_is_not_looked_at(storage: CheckpointStorage) -> None:
    one, two = write_checkpoint(storage, 1), write_checkpoint(storage, 2)
    assert storage.latest_valid(upto=2).manifest == two
    assert storage.latest_valid(upto=1).manifest == one
    assert storage.latest_valid(upto=0).manifest is None


def test_forgetting_removes_only_what_is_empty(storage: CheckpointStorage) -> None:
    storage.forget()  # there is nothing yet
    kept = write_checkpoint(storage, 1)
    storage.forget()
    assert storage.latest_valid().manifest == kept
    storage.delete(1)
    storage.forget()
    storage.forget()
    assert storage.list() == ()


def test_forgetting_removes_the_folder_of_the_job(local: FileStorage, tmp_path: Path) -> None:
    write_checkpoint(local, 1)
    local.delete(1)
    assert (tmp_path / "job").exists()
    local.forget()
    assert list(tmp_path.iterdir()) == []


def test_buffers_are_written_like_bytes(storage: CheckpointStorage) -> None:
    handle = storage.write_file(3, "x.arrow", pa.py_buffer(DATA))
    assert storage.read_file(3, handle).to_pybytes() == DATA


def test_a_published_checkpoint_is_never_overwritten(storage: CheckpointStorage) -> None:
    write_checkpoint(storage, 1)
    with pytest.raises(CheckpointError):
        storage.publish(manifest(1))
    assert len(list(storage.load(1).files())) == 2


def test_layout(local: FileStorage, tmp_path: Path) -> None:
    write_checkpoint(local, 3)
    found = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file())
    assert found == [f"job/chk-3/{name}" for name in ("f0.arrow", "f1.arrow", "manifest.json")]


def corrupt_flip(folder: Path) -> None:
    data = bytearray((folder / "f1.arrow").read_bytes())
    data[7] ^= 1
    (folder / "f1.arrow").write_bytes(data)


def truncate_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes()[:-20])


def alter_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"op0"', '"op9"'))


DAMAGES: list[tuple[Any, str]] = [
    (corrupt_flip, r"f1\.arrow: expected xxh64 [0-9a-f]{16}, found [0-9a-f]{16}"),
    (lambda f: os.truncate(f / "f0.arrow", 5), r"f0\.arrow: expected 1102 bytes, found 5"),
    (lambda f: (f / "f0.arrow").unlink(), r"f0\.arrow: the file is missing"),
    (lambda f: (f / "manifest.json").unlink(), r"manifest\.json: the file is missing"),
    (truncate_manifest, r"manifest\.json: not JSON .*torn or truncated"),
    (alter_manifest, r"manifest\.json: the manifest was altered"),
    (lambda f: (f / "manifest.json").write_bytes(b""), r"not JSON \(0 bytes"),
]


@pytest.mark.parametrize(("damage", "reason"), DAMAGES)
def test_damage_is_named_and_the_one_before_is_used(
    local: FileStorage, tmp_path: Path, damage: Any, reason: str
) -> None:
    one = write_checkpoint(local, 1)
    write_checkpoint(local, 2)
    damage(tmp_path / "job" / "chk-2")
    latest = local.latest_valid()
    assert latest.manifest == one
    assert [r.checkpoint_id for r in latest.rejected] == [2]
    assert latest.highest_id == 2
    assert (latest.never_usable == (2,)) == (reason == r"manifest\.json: the file is missing")
    with pytest.raises(CorruptCheckpointError, match=reason):
        local.verify(local.load(2))
    assert latest.rejected[0].reason


def test_a_manifest_in_the_wrong_folder_is_refused(local: FileStorage, tmp_path: Path) -> None:
    write_checkpoint(local, 1)
    os.rename(tmp_path / "job" / "chk-1", tmp_path / "job" / "chk-9")
    with pytest.raises(CorruptCheckpointError, match="holds checkpoint 1, expected 9"):
        local.load(9)


def test_torn_publish_leaves_a_checkpoint_that_nobody_sees(
    local: FileStorage, tmp_path: Path
) -> None:
    one = write_checkpoint(local, 1)
    local.write_file(2, "f.arrow", DATA)
    # The process died between writing the temporary manifest and renaming it.
    (tmp_path / "job" / "chk-2" / "manifest.json.abc.tmp").write_text('{"format": 1')
    latest = local.latest_valid()
    assert latest.manifest == one
    assert latest.highest_id == 2
    assert latest.never_usable == (2,)
    write_checkpoint(local, 3)
    assert local.latest_valid().never_usable == local.latest_valid().torn == (2,)
    local.delete(3)
    local.delete(2)
    assert local.list() == (1,)


class Racing:
    """A writer that is not done with checkpoint 1: each time its folder is about to be removed, it
    does the next thing, and once more while the remover waits."""

    def __init__(self, local: FileStorage, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        self.left = times
        self.waited: list[float] = []
        self._local = local
        self._rmdir = os.rmdir
        monkeypatch.setattr(os, "rmdir", self.rmdir)

    def pause(self, seconds: float) -> None:
        self.waited.append(seconds)

    def rmdir(self, path: Any, **options: Any) -> None:
        """What `shutil.rmtree` ends with."""
        if self.left and str(path).endswith("chk-1"):
            self.left -= 1
            self._local.write_file(1, f"late{self.left}.arrow", DATA)
        self._rmdir(path, **options)


def test_files_that_come_while_a_checkpoint_is_deleted_are_deleted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = open_storage(str(tmp_path), "job")
    assert isinstance(local, FileStorage)
    writer = Racing(local, monkeypatch, 3)
    local._pause = writer.pause
    local.write_file(1, "f.arrow", DATA)
    local.delete(1)
    assert list((tmp_path / "job").iterdir()) == []
    assert len(writer.waited) == 3
    assert 0 < sum(PAUSES_S) < WIND_UP_S


def test_a_file_that_is_renamed_while_its_checkpoint_is_deleted_is_no_end_of_it(
    local: FileStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    local._pause = waited.append
    for name in ("a", "b", "c"):
        local.write_file(1, name, DATA)
    unlink, folder = os.unlink, tmp_path / "job" / "chk-1"

    def renamed(path: Any, **options: Any) -> None:
        """The first file goes elsewhere between listing and removal."""
        if not waited and (folder / "b").exists():
            waited.append(0.0)
            os.replace(folder / os.path.basename(path), folder / "renamed")
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", renamed)
    local.delete(1)
    assert len(waited) > 1
    assert not folder.exists()


def test_a_folder_that_is_made_anew_while_it_is_removed_is_removed(
    local: FileStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a publication that had hung: it is not there when it is looked for, so that fsspec removes
    it as a file, and by then it is a folder."""
    folder, is_folder = tmp_path / "job" / "chk-1", local._fs.isdir
    waited: list[float] = []
    local._pause = waited.append

    def not_yet(path: str) -> bool:
        if waited or not str(path).endswith("chk-1"):
            return bool(is_folder(path))
        local.write_file(1, "f.arrow", DATA)
        return False

    monkeypatch.setattr(local._fs, "isdir", not_yet)
    local.delete(1)
    assert len(waited) == 1
    assert not folder.exists()


def test_a_folder_that_never_empties_is_an_error(
    local: FileStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Racing(local, monkeypatch, 100)
    local._pause = writer.pause
    local.write_file(1, "f.arrow", DATA)
    with pytest.raises(CheckpointError, match=r"cannot delete .*chk-1: .*still being written"):
        local.delete(1)
    assert tuple(writer.waited) == PAUSES_S


def test_disk_full_at_data_file_leaves_nothing(
    local: FileStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"cannot write .*f\.arrow: .*No space left"):
        local.write_file(1, "f.arrow", DATA)
    assert list((tmp_path / "job" / "chk-1").iterdir()) == []


@pytest.mark.parametrize("fails_at", [1, 2, 3, 4])
def test_disk_full_at_publish_leaves_nothing_visible(
    local: FileStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    # fsync 1: the folder with the data; 2: the manifest; 3, 4: the folders with the manifest.
    handle = local.write_file(1, "f.arrow", DATA)
    calls = 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"cannot publish .*No space left"):
        local.publish(manifest(1, handle))
    assert sorted(p.name for p in (tmp_path / "job" / "chk-1").iterdir()) == ["f.arrow"]
    assert local.latest_valid().manifest is None


class FailingMemory(OtherMemory):
    """Fails every move or put with the given error; counts what is left behind."""

    protocol = "test-failing"
    store: ClassVar[dict[str, Any]] = {}
    error: Exception = OSError(errno.ENOSPC, "No space left on device")

    def mv(self, *args: Any, **kwargs: Any) -> None:
        raise self.error

    def pipe_file(self, *args: Any, **kwargs: Any) -> None:
        raise self.error


class FailingObjectStore(FailingMemory):
    protocol = "s3"
    error = RuntimeError("SlowDown")


@pytest.mark.parametrize("filesystem", [FailingMemory, FailingObjectStore])
def test_failing_filesystem(filesystem: type[FailingMemory]) -> None:
    failing = filesystem(skip_instance_cache=True)
    failing.store.clear()
    storage = FileStorage(failing, "/root", "job")
    with pytest.raises(CheckpointError, match=r"f\.arrow.*(No space|SlowDown)"):
        storage.write_file(1, "f.arrow", DATA)
    with pytest.raises(CheckpointError, match="cannot publish"):
        storage.publish(manifest(1))
    assert not list(failing.store)


def test_an_unreadable_storage_is_not_taken_for_an_empty_one(
    local: FileStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(local, 1)
    write_checkpoint(local, 2)

    def denied(*args: Any, **kwargs: Any) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(type(local._fs), "cat_file", denied)
    with pytest.raises(CheckpointError, match=r"cannot read .*chk-2/manifest\.json.*Permission"):
        local.latest_valid()


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../chk-1/f", "a/../../f", "", ".", "a//b", "a\\b", "manifest.json"]
)
def test_paths_of_a_manifest_stay_in_their_folder(storage: CheckpointStorage, path: str) -> None:
    handle = storage.write_file(1, "f.arrow", DATA)
    evil = replace(handle, path=path)
    with pytest.raises(CorruptCheckpointError, match="path"):
        storage.read_file(1, evil)
    with pytest.raises(CorruptCheckpointError, match="path"):
        storage.publish(manifest(1, evil))
    with pytest.raises(CheckpointError):
        storage.write_file(1, path, DATA)


@pytest.mark.parametrize("job_id", ["", "..", "a/b", ".hidden", "x" * 129, "a b", "a\n"])
def test_job_ids_are_folder_names(job_id: str) -> None:
    with pytest.raises(ConfigurationError, match="job id"):
        open_storage(None, job_id)


def test_unknown_protocols_are_named() -> None:
    with pytest.raises(ConfigurationError, match="nosuch://x"):
        open_storage("nosuch://x", "job")


def test_inline_handles_without_bytes_are_refused() -> None:
    storage = MemoryStorage("job")
    handle = replace(storage.write_file(1, "f", DATA), inline=None)
    with pytest.raises(CorruptCheckpointError, match="holds no bytes"):
        storage.read_file(1, handle)


def test_names_in_the_job_folder_that_are_no_checkpoints_are_ignored(
    local: FileStorage, tmp_path: Path
) -> None:
    write_checkpoint(local, 4)
    for name in ("chk-", "chk-x", "chk-01", "chk-0", "other"):
        (tmp_path / "job" / name).mkdir()
    assert local.list() == (4,)
