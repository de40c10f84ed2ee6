"""One checkpoint as a folder by itself: written, moved, and found by what is in it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from strom.checkpoint.file_storage import FileStorage
from strom.checkpoint.folder_storage import (
    FolderStorage,
    folder_at,
    is_left_to,
    open_folder,
    savepoint_location,
)
from strom.checkpoint.handles import FileHandle, OperatorHandle, OperatorSnapshot, SubtaskSnapshot
from strom.checkpoint.manifest import Manifest, decode, encode
from strom.checkpoint.storage import CheckpointStorage, open_storage
from strom.core.errors import CheckpointError, ConfigurationError, CorruptCheckpointError
from strom.core.ids import TaskId

DATA = b"some state " * 100


def write(storage: CheckpointStorage, n: int, savepoint: bool = True) -> Manifest:
    handle = storage.write_file(n, "f.arrow", DATA + bytes([n]))
    snapshot = OperatorSnapshot("op", (), OperatorHandle(handle))
    subtasks = (SubtaskSnapshot(TaskId("v", 0), (snapshot,)),)
    manifest = Manifest("job", "Job", n, 1000 + n, (), subtasks, savepoint=savepoint)
    storage.publish(manifest)
    return manifest


def content(storage: CheckpointStorage, manifest: Manifest) -> list[bytes]:
    return [bytes(storage.read_file(manifest.checkpoint_id, h)) for h in manifest.files()]


def test_the_name_of_a_savepoint_tells_the_job_that_it_is_left_to() -> None:
    location = savepoint_location("memory://a/savepoint-x", "abc-defghi", "successor")
    assert re.fullmatch("memory://a/savepoint-x/savepoint-abcdef-[0-9a-f]{12}", location)
    assert location != savepoint_location("memory://a/savepoint-x", "abc-defghi", "successor")
    assert is_left_to("successor", location)
    assert is_left_to("successor", location + "/")
    assert not is_left_to("another", location)
    assert not is_left_to("successor", savepoint_location("memory://a", "abc-defghi"))


@pytest.mark.parametrize("place", ["local", "memory"])
def test_a_savepoint_is_complete_in_its_folder_wherever_that_goes(
    place: str, tmp_path: Path
) -> None:
    directory = str(tmp_path) if place == "local" else "memory://save/points/"
    location = savepoint_location(directory, "abc-defghi")
    name = location.rpartition("/")[2]
    assert name.startswith("savepoint-abcdef-"), name
    assert len(name) == len("savepoint-abcdef-") + 12
    storage = folder_at(location)
    assert storage.list() == ()
    manifest = write(storage, 7)
    assert storage.list() == (7,)
    if place == "local":
        moved = str(tmp_path / "elsewhere" / "chk-3")
        shutil.move(location, moved)
        assert [p.name for p in tmp_path.iterdir()] == ["elsewhere"]
    else:
        moved = "memory://other/renamed"
        MemoryFileSystem().mv(location, moved, recursive=True)
    opened, found = open_folder(moved + "/", validate=True)
    assert found == manifest
    assert found.savepoint
    assert content(opened, found) == [DATA + b"\x07"]
    opened.forget()
    opened.delete(7)
    with pytest.raises(ConfigurationError, match="no complete checkpoint or savepoint"):
        open_folder(moved)


def test_a_folder_is_published_once_and_torn_ones_are_not_there(tmp_path: Path) -> None:
    storage = folder_at(f"{tmp_path}/s")
    storage.write_file(1, "f.arrow", DATA)
    with pytest.raises(ConfigurationError, match=r"s/manifest\.json: the file is missing"):
        open_folder(f"{tmp_path}/s")
    write(storage, 1)
    with pytest.raises(CheckpointError, match="exists"):
        write(storage, 1)


def test_a_checkpoint_in_its_place_is_one_of_its_job(tmp_path: Path) -> None:
    """Its job's storage holds it; copied elsewhere it is a folder by itself, like a savepoint."""
    own = open_storage(str(tmp_path), "job")
    manifest = write(own, 4, savepoint=False)
    storage, found = open_folder(f"file://{tmp_path}/job/chk-4")
    assert found == manifest
    assert isinstance(storage, FileStorage)
    assert storage.job_id == "job"
    assert not isinstance(storage, FolderStorage)
    for copy in ("job/chk-5", "a folder/chk-4", "plain"):
        shutil.copytree(tmp_path / "job" / "chk-4", tmp_path / copy)
        storage, found = open_folder(f"{tmp_path}/{copy}")
        assert isinstance(storage, FolderStorage)
        assert content(storage, found) == [DATA + b"\x04"]


def write_shared(storage: CheckpointStorage, n: int, *older: FileHandle) -> FileHandle:
    """Checkpoint `n`, of a shared file of its own and older ones."""
    made = storage.write_file(n, "f.arrow", DATA + bytes([n]), shared=True)
    snapshots = [
        OperatorSnapshot(f"op{i}", (), OperatorHandle(h)) for i, h in enumerate((*older, made))
    ]
    subtasks = (SubtaskSnapshot(TaskId("v", 0), tuple(snapshots)),)
    storage.publish(Manifest("job", "Job", n, 1000 + n, (), subtasks))
    return made


@pytest.mark.parametrize("name", ["job/renamed", "job/chk-9", "a folder/chk-4", "other/mine"])
def test_shared_files_are_looked_for_beside_a_folder_that_was_moved(
    name: str, tmp_path: Path
) -> None:
    own = open_storage(str(tmp_path), "job")
    write_shared(own, 4)
    place = tmp_path / name
    shutil.copytree(tmp_path / "job" / "chk-4", place)
    if place.parent.name != "job":
        with pytest.raises(CorruptCheckpointError, match=r"shared/4-f.*missing; .*'shared' of its"):
            open_folder(str(place), validate=True)
        shutil.copytree(tmp_path / "job" / "shared", place.parent / "shared")
    storage, found = open_folder(str(place), validate=True)
    assert content(storage, found) == [DATA + b"\x04"]


def test_the_folder_of_a_job_stands_for_its_newest_valid_checkpoint(tmp_path: Path) -> None:
    own = open_storage(str(tmp_path), "job")
    for n in (1, 2, 10):
        write(own, n, savepoint=False)
    own.write_file(11, "f.arrow", DATA)  # never published
    assert open_folder(str(tmp_path / "job"))[1].checkpoint_id == 10
    (tmp_path / "job" / "chk-10" / "f.arrow").write_bytes(b"torn")
    assert open_folder(str(tmp_path / "job"))[1].checkpoint_id == 10
    assert open_folder(str(tmp_path / "job"), validate=True)[1].checkpoint_id == 2
    for n in (1, 2):
        own.delete(n)
    with pytest.raises(ConfigurationError, match=r"(?s)none of its.*chk-11.*chk-10.*expected"):
        open_folder(str(tmp_path / "job"), validate=True)


def test_what_is_half_copied_is_named(tmp_path: Path) -> None:
    location = str(tmp_path / "s")
    write(folder_at(location), 3)
    (tmp_path / "s" / "f.arrow").unlink()
    with pytest.raises(CorruptCheckpointError, match=r"s/f\.arrow: the file is missing"):
        open_folder(location, validate=True)
    (tmp_path / "s" / "manifest.json").write_bytes(b'{"format": 2, "bo')
    with pytest.raises(CorruptCheckpointError, match="torn or truncated"):
        open_folder(location)


@pytest.mark.parametrize("location", ["", "/", "relative", "/nope", "/nope/chk-1", "nope://x"])
def test_where_nothing_is_the_setting_is_named(location: str) -> None:
    with pytest.raises(ConfigurationError, match="my_setting"):
        open_folder(location, "my_setting")


def test_manifests_that_do_not_say_are_of_checkpoints() -> None:
    """Those that were written before there were savepoints."""
    manifest = Manifest("job", "Job", 3, 5, (), ())
    document = json.loads(encode(replace(manifest, savepoint=True, stopped=True)))
    assert (document["body"]["savepoint"], document["body"]["stopped"]) == (True, True)
    from strom.checkpoint.manifest import _checksum

    del document["body"]["savepoint"], document["body"]["stopped"]
    document["checksum"] = _checksum(document["body"])
    assert decode(json.dumps(document).encode(), "here") == manifest
