"""What a job has claimed is removed with all that only it needed, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from strom.checkpoint.file_storage import FileStorage
from strom.checkpoint.folder_storage import open_folder
from strom.checkpoint.handles import FileHandle, OperatorHandle, OperatorSnapshot, SubtaskSnapshot
from strom.checkpoint.manifest import Manifest
from strom.checkpoint.storage import CheckpointStorage, open_storage
from strom.core.errors import CheckpointError
from strom.core.ids import TaskId
from strom.engine.hosts.claimed import Claimed


def write(storage: CheckpointStorage, n: int, *older: FileHandle) -> FileHandle:
    """Checkpoint `n`, which needs a shared file of its own, and these."""
    made = storage.write_file(n, "f.arrow", b"state", shared=True)
    snapshots = tuple(
        OperatorSnapshot(f"op{i}", (), OperatorHandle(h)) for i, h in enumerate((*older, made))
    )
    storage.publish(
        Manifest("job", "Job", n, 1000 + n, (), (SubtaskSnapshot(TaskId("v", 0), snapshots),))
    )
    return made


def claimed(root: Path, n: int) -> Claimed:
    return Claimed(*open_folder(f"{root}/job/chk-{n}"))


def left(root: Path) -> list[str]:
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*.*"))


def test_shared_files_go_unless_another_checkpoint_needs_them(tmp_path: Path) -> None:
    job = open_storage(str(tmp_path), "job")
    first = write(job, 1)
    write(job, 2, first)
    write(job, 3)
    claimed(tmp_path, 2).remove()
    assert left(tmp_path) == [
        "job/chk-1/manifest.json",
        "job/chk-3/manifest.json",
        "job/shared/1-f.arrow",
        "job/shared/3-f.arrow",
    ]
    claimed(tmp_path, 1).remove()
    assert left(tmp_path) == ["job/chk-3/manifest.json", "job/shared/3-f.arrow"]
    claimed(tmp_path, 3).remove()
    assert list(tmp_path.iterdir()) == []


def test_what_an_unreadable_manifest_may_need_stays(tmp_path: Path) -> None:
    job = open_storage(str(tmp_path), "job")
    first = write(job, 1)
    write(job, 2)
    write(job, 3, first)
    job.delete(1)
    (tmp_path / "job" / "chk-2" / "manifest.json").write_bytes(b"torn")
    claimed(tmp_path, 3).remove()
    assert left(tmp_path) == [
        "job/chk-2/manifest.json",
        "job/shared/1-f.arrow",
        "job/shared/2-f.arrow",
    ]


def test_what_could_not_be_removed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = open_storage(str(tmp_path), "job")
    write(job, 1)
    write(job, 2)
    one = claimed(tmp_path, 1)

    def fail(self: FileStorage, names: Iterable[str]) -> None:
        raise CheckpointError("the disk is away")

    with monkeypatch.context() as patch:
        patch.setattr(FileStorage, "delete_shared", fail)
        with pytest.raises(CheckpointError, match="away"):
            one.remove()
    assert "job/shared/1-f.arrow" in left(tmp_path)
    one.remove()
    assert left(tmp_path) == ["job/chk-2/manifest.json", "job/shared/2-f.arrow"]
