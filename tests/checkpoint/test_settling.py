"""Which checkpoints of an epoch that is over count, and what of the epochs is kept for those who
look late."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from strom.checkpoint.epochs import Tenant
from strom.checkpoint.manifest import Manifest
from strom.checkpoint.settling import settle_before
from strom.checkpoint.storage import CheckpointStorage, MemoryStorage, open_storage
from strom.core.errors import CorruptCheckpointError, FencedError
from strom.core.ids import CheckpointId
from strom.engine.hosts.checkpoint_books import CheckpointBooks
from strom.engine.hosts.tenure import Tenure
from strom.testing.simulation.storage import FilesInMemory


def manifest(n: int, epoch: int = 0) -> Manifest:
    return Manifest("job", "shop", CheckpointId(n), 0, (), (), epoch=epoch)


def tenant(token: str) -> Tenant:
    return Tenant("job", "shop", token, None, 0, 0, "process 1 on here")


class Coordinator:
    """One of the job's, as another process has its storage."""

    def __init__(self, root: Path, token: str) -> None:
        self.storage = open_storage(str(root), "job")
        self.tenure = Tenure(self.storage, "shop", token, 0)
        self.books = CheckpointBooks(self.storage, self.tenure)

    def begins_with(self) -> CheckpointId | None:
        self.tenure.begin()
        found = self.storage.latest_valid().manifest
        return None if found is None else found.checkpoint_id


@pytest.mark.parametrize("kind", ["memory", "simulated", "files"])
def test_it_is_said_once(kind: str, tmp_path: Path) -> None:
    storage: CheckpointStorage = {
        "memory": lambda: MemoryStorage("job"),
        "simulated": lambda: FilesInMemory("job"),
        "files": lambda: open_storage(str(tmp_path), "job"),
    }[kind]()
    for token in ("a", "b"):
        storage.begin_epoch(tenant(token))
    assert storage.settled(1) is None
    assert storage.settle(1, CheckpointId(3)) == 3
    assert storage.settle(1, CheckpointId(4)) == 3
    assert storage.settled(1) == 3
    storage.publish(manifest(3, 1))
    storage.publish(manifest(4, 1))
    storage.publish(manifest(5))
    for counting in (manifest(3, 1), manifest(4, 2), manifest(5)):
        storage.check_counts(counting)
    with pytest.raises(CorruptCheckpointError, match="checkpoint 4 of job job does not count"):
        storage.check_counts(manifest(4, 1))
    latest = storage.latest_valid()
    assert (latest.manifest and latest.manifest.checkpoint_id, latest.torn) == (5, (4,))
    storage.delete(CheckpointId(5))
    latest = storage.latest_valid()
    assert latest.manifest is not None
    assert latest.manifest.checkpoint_id == 3
    assert [r.checkpoint_id for r in latest.rejected] == [4]


def test_what_is_there_counts_and_what_comes_does_not(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), "job")
    for token in ("a", "b", "c"):
        storage.begin_epoch(tenant(token))
    for n, epoch in ((1, 1), (2, 1), (3, 2)):
        storage.publish(manifest(n, epoch))
    (tmp_path / "job" / "chk-3" / "manifest.json").write_text("torn")
    settle_before(storage, 3)
    assert [storage.settled(epoch) for epoch in (1, 2, 3)] == [2, 0, None]
    settle_before(open_storage(str(tmp_path), "job"), 3)
    assert [storage.settled(epoch) for epoch in (1, 2, 3)] == [2, 0, None]


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b'{"last": null}'])
def test_what_nobody_can_read_settles_nothing(garbage: bytes, tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), "job")
    storage.begin_epoch(tenant("a"))
    (tmp_path / "job" / "epoch-1.end").write_bytes(garbage)
    assert storage.settled(1) is None
    assert storage.settle(1, CheckpointId(7)) == 7
    storage.check_counts(manifest(8, 1))


@pytest.mark.parametrize("first", ["publisher", "successor"])
def test_whoever_is_first_decides_what_a_publication_is_worth(first: str, tmp_path: Path) -> None:
    old, new = Coordinator(tmp_path, "old"), Coordinator(tmp_path, "new")
    assert old.begins_with() is None
    old.books.publish(manifest(1), None)
    if first == "successor":
        assert new.begins_with() == 1, "before there is anything newer"
        with pytest.raises(FencedError):
            old.books.publish(manifest(2), None)
        assert not (tmp_path / "job" / "chk-2" / "manifest.json").exists(), "it is taken back"
    else:
        new.storage.begin_epoch(tenant("new"))  # and is held up before it looks
        with pytest.raises(FencedError):
            old.books.publish(manifest(2), None)
        assert (tmp_path / "job" / "chk-2" / "manifest.json").exists()
        third = Coordinator(tmp_path, "third")
        assert third.begins_with() == 2
    assert open_storage(str(tmp_path), "job").settled(1) == (1 if first == "successor" else 2)


def test_a_publication_that_was_just_read_stays(tmp_path: Path) -> None:
    old, new = Coordinator(tmp_path, "old"), Coordinator(tmp_path, "new")
    old.tenure.begin()
    read: list[CheckpointId | None] = []
    publish = old.storage.publish

    def publish_and_sleep(one: Manifest) -> None:
        publish(one)
        read.append(new.begins_with())

    old.storage.publish = publish_and_sleep  # type: ignore[method-assign]
    with pytest.raises(FencedError):
        old.books.publish(manifest(1), None)
    assert read == [1]
    found = new.storage.latest_valid().manifest
    assert found == manifest(1, 1), "the successor can go back to it"


def test_a_held_up_coordinator_is_fenced_when_all_else_is_removed(tmp_path: Path) -> None:
    old, new = Coordinator(tmp_path, "old"), Coordinator(tmp_path, "new")
    old.tenure.begin()
    old.books.publish(manifest(1), None)
    assert new.begins_with() == 1
    new.books.look()
    new.books.publish(manifest(2), None)
    for n in (1, 2):
        new.books.delete(CheckpointId(n))
    new.books.forget()
    assert sorted(os.listdir(tmp_path / "job")) == ["epoch-1.end", "epoch-2"]
    with pytest.raises(FencedError):
        old.books.publish(manifest(3), None)
    assert new.storage.latest_valid().manifest is None, "and what it published is taken back"
    again = Coordinator(tmp_path, "again")
    assert again.begins_with() is None
    assert again.tenure.epochs[0] == 3


def test_of_a_job_with_one_coordinator_nothing_is_left(tmp_path: Path) -> None:
    only = Coordinator(tmp_path, "only")
    only.tenure.begin()
    only.books.publish(manifest(1), None)
    only.books.delete(CheckpointId(1))
    only.books.forget()
    assert os.listdir(tmp_path) == []


def test_the_epoch_of_a_manifest_is_stored(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), "job")
    for one in (manifest(1), manifest(2, 7)):
        storage.publish(one)
        assert storage.load(one.checkpoint_id) == one
