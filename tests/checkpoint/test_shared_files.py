"""Shared files: none that a checkpoint needs ever goes, and none stays that nobody needs; names."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from strom.checkpoint.handles import FileHandle
from strom.checkpoint.names import check_handle_path, shared_by, shared_name, was_written_by
from strom.checkpoint.shared_files import SharedFiles
from strom.checkpoint.storage import MemoryStorage, open_storage
from strom.core.errors import CheckpointError, CorruptCheckpointError


class World:
    """A storage, tasks that write and build on what is complete, and coordinators that come and
    go. A task that has not heard of an abort may still write."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.files: set[str] = set()
        self.manifests: dict[int, frozenset[str]] = {}
        self.torn: set[int] = set()
        """Checkpoints whose manifests cannot be read."""
        self.failed: set[int] = set()
        """Failed since the last completion: discarded once more behind the next."""
        self.shared = SharedFiles()
        self.n = 0
        self.retained = self.rng.choice([1, 2, 4])
        self.base: frozenset[str] = frozenset()
        """What the tasks may build on."""
        self.fails = self.rng.choice([0.0, 0.3])

    def remove(self, names: list[str]) -> None:
        """The storage may fail to."""
        if self.rng.random() >= self.fails:
            self.files -= set(names)
            self.shared.removed(names)

    def discard(self, n: int) -> None:
        self.manifests.pop(n, None)
        self.torn.discard(n)
        present = () if self.shared.knows(n) else tuple(self.files)
        self.remove(self.shared.discarded(n, present))

    def attempt(self) -> None:
        """A checkpoint, from its trigger to its end."""
        self.n += 1
        mine = {f"{self.n}-file-{i}" for i in range(self.rng.randrange(4))}
        kept = frozenset(name for name in self.base if self.rng.random() < 0.7)
        self.files |= mine
        names = kept | mine
        if self.rng.random() < 0.4:
            self.failed.add(self.n)
            self.discard(self.n)
            if self.rng.random() < 0.5:
                self.files.add(f"{self.n}-late")
            return
        self.shared.completed(self.n, names)
        self.manifests[self.n] = self.base = frozenset(names)
        while len(self.manifests) > self.retained:
            self.discard(min(self.manifests))
        for n in sorted(self.failed):
            self.discard(n)
        self.failed.clear()

    def restart(self) -> None:
        """Another coordinator; the tasks know nothing. Failed ones without a manifest are gone from
        the storage, or their folders are found and discarded later."""
        self.shared, self.base = SharedFiles(), frozenset()
        if self.manifests and self.rng.random() < 0.3:
            self.torn.add(self.rng.choice(sorted(self.manifests)))
        readable = {n: names for n, names in self.manifests.items() if n not in self.torn}
        self.remove(self.shared.found(readable, self.torn, self.files))

    def check(self) -> None:
        self.shared.validate()
        for n, names in self.manifests.items():
            assert names <= self.files, n

    def end(self) -> None:
        """Nothing fails any more, and no manifest is torn."""
        self.fails = 0.0
        for n in sorted(self.torn):
            self.discard(n)
        needed = set().union(*self.manifests.values())
        self.remove(self.shared.found(self.manifests, (), self.files))
        assert self.files == needed


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_seeds(first: int) -> None:
    for seed in range(first, first + 100):
        world = World(seed)
        for _ in range(40):
            world.rng.choice([world.attempt] * 8 + [world.restart])()
            world.check()
        if world.fails == 0.0 and not world.torn and not world.failed:
            needed = set().union(*world.manifests.values())
            late = {name for name in world.files - needed if name.endswith("-late")}
            assert world.files == needed | late
        world.end()


def test_what_no_complete_checkpoint_holds_cannot_be_built_on() -> None:
    shared = SharedFiles()
    shared.completed(1, ["1-a"])
    with pytest.raises(CheckpointError, match="checkpoint 3 builds on '2-b'"):
        shared.completed(3, ["1-a", "2-b", "3-c"])
    assert not shared.knows(3)
    shared.completed(3, ["1-a", "3-c"])
    assert shared.discarded(1) == []
    assert shared.discarded(3) == ["1-a", "3-c"]


def test_an_unreadable_manifest_keeps_what_it_might_need() -> None:
    shared = SharedFiles()
    present = ["1-a", "2-b", "4-d"]
    assert shared.found({1: ["1-a"]}, [2], present) == ["4-d"]
    shared.removed(["4-d"])
    assert shared.discarded(1) == []
    assert shared.discarded(2, ["1-a", "2-b"]) == ["1-a", "2-b"]


def test_names() -> None:
    assert shared_name(12, "op-0-1.arrow") == "12-op-0-1.arrow"
    assert shared_by("12-op-0-1.arrow") == 12
    assert was_written_by("12-a.arrow.1f.tmp") == 12
    assert check_handle_path("12-a.arrow", "m", shared=True) == "12-a.arrow"


BAD = ["", "a", "../1-a", "1-a/../../x", "/1-a", "0-a", "01-a", "x-1", "1-", "1-a/b", "1-a.tmp"]


@pytest.mark.parametrize("path", [*BAD, "1-a\n"])
def test_bad_names_of_shared_files_are_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(CorruptCheckpointError):
        check_handle_path(path, "m", shared=True)
    storage = open_storage(str(tmp_path), "job")
    with pytest.raises(CorruptCheckpointError):
        storage.read_file(1, FileHandle(path, 1, "0" * 16, shared=True))


def test_files_of_a_storage(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), "job")
    assert storage.shares
    assert storage.list_shared() == ()
    handle = storage.write_file(3, "a.arrow", b"abc", shared=True)
    assert handle == FileHandle("3-a.arrow", 3, handle.checksum, shared=True)
    assert (tmp_path / "job" / "shared" / "3-a.arrow").read_bytes() == b"abc"
    (tmp_path / "job" / "shared" / "3-b.arrow.1f.tmp").write_bytes(b"a")
    (tmp_path / "job" / "shared" / "README").write_bytes(b"not ours")
    assert storage.read_file(9, handle).to_pybytes() == b"abc"
    assert storage.list_shared() == ("3-a.arrow", "3-b.arrow.1f.tmp")
    storage.delete(3)
    assert storage.read_file(9, handle).to_pybytes() == b"abc"
    storage.delete_shared([*storage.list_shared(), "7-never-there"])
    assert storage.list_shared() == ()
    with pytest.raises(CorruptCheckpointError):
        storage.delete_shared(["../job"])
    memory = MemoryStorage("job")
    assert not memory.shares
    assert not memory.write_file(1, "a", b"", shared=True).shared
