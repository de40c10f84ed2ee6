"""Which checkpoints of an epoch that is over count, and what of the epochs is kept for those who
look late."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
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
    assert os.listdir(tmp_path / "job") == ["epoch-2"]
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


# --- what is left behind -------------------------------------------------------------------------


KEPT = 3


@pytest.fixture
def few_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CheckpointStorage, "kept_epochs", KEPT)


def take_turns(root: Path, count: int) -> Coordinator:
    """So many coordinators, one after the other, of which each completes a checkpoint and removes
    that of the one before; the last one."""
    for turn in range(count):
        one = Coordinator(root, f"turn {turn}")
        began = one.begins_with() or 0
        one.books.look()
        one.books.publish(manifest(began + 1), None)
        if began > 1:
            one.books.delete(CheckpointId(began))
    return one


def epochs_in(root: Path) -> list[str]:
    return sorted(name for name in os.listdir(root / "job") if name.startswith("epoch-"))


def test_many_coordinators_and_checkpoints_leave_few_files(tmp_path: Path, few_kept: None) -> None:
    """The first checkpoint stays, as one that somebody still needs, and counts."""
    most = 0
    for _ in range(10):
        last = take_turns(tmp_path, 4)
        most = max(most, len(os.listdir(tmp_path / "job")))
    assert last.tenure.epochs[0] == 40
    assert epochs_in(tmp_path) == sorted(
        ["epoch-1.end", *(f"epoch-{n}" for n in range(37, 41))]
        + [f"epoch-{n}.end" for n in range(37, 40)]
    )
    assert most <= 2 * KEPT + 6, "with those of two checkpoints, and what is shared"
    for n in (1, 40):
        last.storage.check_counts(last.storage.load(CheckpointId(n)))


def test_whoever_is_held_up_for_longer_is_fenced(tmp_path: Path, few_kept: None) -> None:
    """It finds neither its own epoch nor the one behind."""
    old = Coordinator(tmp_path, "old")
    assert old.begins_with() is None
    last = take_turns(tmp_path, KEPT + 3)
    assert {"epoch-1", "epoch-2"}.isdisjoint(epochs_in(tmp_path))
    with pytest.raises(FencedError, match="was fenced"):
        old.books.publish(manifest(99), None)
    assert not (tmp_path / "job" / "chk-99" / "manifest.json").exists(), "it is taken back"
    assert "epoch-1.end" not in epochs_in(tmp_path), "nor does it say again what counts"
    last.books.publish(manifest(50), None)


def test_what_was_published_in_time_is_not_taken_back(tmp_path: Path, few_kept: None) -> None:
    """Its publisher looks so late that all others have gone by."""
    old = Coordinator(tmp_path, "old")
    assert old.begins_with() is None
    old.storage.publish(manifest(1, 1))
    take_turns(tmp_path, KEPT + 3)
    assert "epoch-1" not in epochs_in(tmp_path)
    assert old.tenure.counts(CheckpointId(1))
    assert not old.tenure.counts(CheckpointId(2))


def test_what_comes_of_an_epoch_that_is_forgotten_counts_for_nobody(
    tmp_path: Path, few_kept: None
) -> None:
    """Its publisher dies before it looks."""
    old = Coordinator(tmp_path, "old")
    old.tenure.begin()
    last = take_turns(tmp_path, KEPT + 3)
    old.storage.publish(manifest(99, 1))
    for reader in (last.storage, open_storage(str(tmp_path), "job")):
        latest = reader.latest_valid()
        assert latest.manifest is not None
        assert latest.manifest.checkpoint_id == KEPT + 3
        assert [one.checkpoint_id for one in latest.rejected] == [99]
    assert Coordinator(tmp_path, "next").begins_with() == KEPT + 3


def test_a_number_is_not_given_twice(
    tmp_path: Path, few_kept: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even to one that was held up between its listing and the beginning of its epoch."""
    late = Coordinator(tmp_path, "late")
    listed = late.storage._epochs  # type: ignore[attr-defined]
    old = [[1], [1]]
    take_turns(tmp_path, KEPT + 3)
    monkeypatch.setattr(late.storage, "_epochs", lambda: old.pop() if old else listed())
    late.tenure.begin()
    assert late.tenure.epochs[0] == KEPT + 4
    assert not old
    late.books.publish(manifest(99), None)


def test_who_has_another_name_in_its_place_is_fenced(tmp_path: Path) -> None:
    old = Coordinator(tmp_path, "old")
    old.tenure.begin()
    (tmp_path / "job" / "epoch-1").unlink()
    Coordinator(tmp_path, "new").tenure.begin()
    with pytest.raises(FencedError):
        old.tenure.check()


def test_a_folder_that_somebody_has_removed_fences_nobody(tmp_path: Path) -> None:
    one = Coordinator(tmp_path, "one")
    one.tenure.begin()
    shutil.rmtree(tmp_path / "job")
    one.books.publish(manifest(1), None)
    one.storage.check_counts(replace(manifest(1), epoch=1))


def test_nothing_goes_while_a_manifest_cannot_be_read(tmp_path: Path, few_kept: None) -> None:
    """It may be of any epoch."""
    take_turns(tmp_path, 1)
    (tmp_path / "job" / "chk-1" / "manifest.json").write_text("torn")
    for turn in range(KEPT + 3):
        one = Coordinator(tmp_path, f"turn {turn}")
        assert one.begins_with() is None
        one.books.look()
    assert len(epochs_in(tmp_path)) == 2 * (KEPT + 4) - 1
