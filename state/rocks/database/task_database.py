"""The local RocksDB of one operator in one task: a cache of its state, opened when first needed.

Nothing in it outlives the task: there is no log, and a task that starts again restores from its
checkpoint into a new one, empty or with the files of the checkpoint. Its folder is removed with the
task; folders of processes that were killed are removed by the next one that opens a database beside
them.
"""

from __future__ import annotations

import logging
import shutil
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from ....core.errors import StateError
from ....core.ids import KeyGroupRange
from ....core.state_config import StateConfig
from ...stored_files import FormerDatabase, StoredState
from .arenas import share_arenas
from .budget import StateBudget, budget_of
from .files import DatabaseFiles
from .folders import new_folder, parent_of, remove, remove_left_over
from .held_files import HeldFiles
from .layouts import Layout, Pair, group_of, together
from .options import options_of, set_later
from .taken_over import goes_on, of_former

log = logging.getLogger("strom")


class TaskDatabase:
    """Not thread-safe, but for what `view` gives."""

    def __init__(self, config: StateConfig) -> None:
        self.config = config
        self.budget: StateBudget = budget_of(config)
        self._dirs = config.local_dirs
        self._remove: Callable[[], object] | None = None
        self._end: Callable[[], object] | None = None
        """Closes the database; also when this is collected, for one that is not closed takes a
        second to go, in which no other thread runs."""
        self._db: Any = None
        self._write_options: Any = None
        self._folder: Path | None = None
        self._last = 0
        """The highest prefix in use."""
        self._states: dict[bytes, StoredState] = {}
        """All whose entries may be here, by prefix."""
        self._waiting: dict[str, StoredState] = {}
        """Those of `_states` that came with files and were not asked for, by name."""
        self._held: list[HeldFiles] = []
        """Checkpoints of which the files are not linked: nothing is written before they are."""
        self._links = 0
        self.same_program = True
        """Whether the program is the one that wrote the files that this began with."""
        self.by_files = False
        """Whether the snapshot that is being taken has the files: states freeze what is in memory
        alone."""
        self._closed = False

    def new_state(
        self, name: str, kind: str, layout: dict[str, str], changed: bool = False
    ) -> tuple[bytes, bool]:
        """What all keys of a state begin with (2 bytes), and whether entries of it are here, which
        came with files and go on as they are (`taken_over`). `changed`: the program says that
        values have changed since."""
        found = self._waiting.get(name)
        if found is not None and found.kind == kind:
            known = goes_on(found.layout, layout, self.same_program, changed)
            if known is not None:
                del self._waiting[name]
                self.relabel(found.prefix, known)
                return found.prefix, True
        self._last += 1
        if self._last > 0xFFFF:
            raise StateError("an operator can keep 65535 states in RocksDB, and has more")
        prefix = self._last.to_bytes(2, "big")
        self._states[prefix] = StoredState(name, kind, prefix, layout)
        return prefix, False

    def relabel(self, prefix: bytes, layout: Layout) -> StoredState:
        """What is written under a prefix is in this layout from here on; all there is read so."""
        state = self._states[prefix] = replace(self._states[prefix], layout=dict(layout))
        return state

    def layout(self, prefix: bytes) -> dict[str, str]:
        """Of what is written under a prefix."""
        return self._states[prefix].layout

    @property
    def open(self) -> bool:
        """Whether anything was ever written."""
        return self._db is not None

    @property
    def states(self) -> tuple[StoredState, ...]:
        """All that may have entries here."""
        return tuple(self._states.values())

    @property
    def waiting(self) -> dict[str, StoredState]:
        """States that came with files and were not asked for, by name."""
        return self._waiting

    def inherit(self, former: FormerDatabase, groups: KeyGroupRange) -> frozenset[bytes]:
        """Begin with the files of a former database, of which only what it has of some key groups
        is there from here on; the places among these that do not count. Once, before anything else.
        StateError if RocksDB cannot open them."""
        assert self._db is None
        assert not self._states
        self._make_folder()
        assert self._folder is not None
        former.fetch(self._folder / "db")
        self._states = {state.prefix: state for state in former.states}
        self._waiting = {state.name: state for state in former.states}
        self._last = max((int.from_bytes(p, "big") for p in self._states), default=0)
        self._open(new=False)
        if former.groups.first in groups and former.groups.last in groups:
            return former.hidden
        self._keep(groups)
        return frozenset([place for place in former.hidden if group_of(place) in groups])

    def _keep(self, groups: KeyGroupRange) -> None:
        """Delete all that is not of these key groups: a mark or two for each state, under which
        RocksDB leaves it out when it next writes its files anew."""
        with self._writing():
            for prefix in self._states:
                first, behind = [n.to_bytes(2, "big") for n in (groups.first, groups.last + 1)]
                if groups.first:
                    self._db.delete_range(prefix, prefix + first, self._write_options)
                self._db.delete_range(prefix + behind, prefix + _BEHIND, self._write_options)

    def inherit_more(self, former: FormerDatabase, groups: KeyGroupRange) -> None:
        """Take over the entries of some key groups that another former database had, but for those
        that do not count. Behind `inherit`, before anything is asked for; once for each of distinct
        key groups, which have each state in layouts that are read `together`.
        CorruptCheckpointError for what RocksDB cannot read."""
        self._opened()
        assert self._folder is not None
        folder = self._folder / "former"
        former.fetch(folder)
        files = DatabaseFiles(folder, "the files of a former task's local database")
        try:
            for state in former.states:
                mine = self._waiting.get(state.name)
                if mine is None:
                    prefix, _ = self.new_state(state.name, state.kind, state.layout)
                    mine = self._waiting[state.name] = self._states[prefix]
                layout = together([mine.layout, state.layout]) or mine.layout
                mine = self._waiting[state.name] = self.relabel(mine.prefix, layout)
                pairs, hidden = files.pairs(state.prefix, groups), former.hidden
                if hidden:
                    pairs = (pair for pair in pairs if pair[0] not in hidden)
                if mine.prefix != state.prefix:
                    pairs = _under(mine.prefix, pairs)
                self._ingest(pairs)
        finally:
            files.close()
            shutil.rmtree(folder, ignore_errors=True)

    def disown(self) -> None:
        """Another program wrote what came with files."""
        self.same_program = False
        for name, state in self._waiting.items():
            self._waiting[name] = self.relabel(state.prefix, of_former(state.layout))

    def _ingest(self, pairs: Iterator[tuple[bytes, bytes]]) -> None:
        """Entries in order of their places, of which none is here: as a file of their own, which is
        twice as fast as to write them."""
        from rocksdict import SstFileWriter

        first = next(pairs, None)
        if first is None:
            return
        assert self._folder is not None
        path = str(self._folder / "former.sst")
        writer = SstFileWriter(options=options_of(self.budget, apart=True))
        with self._writing():
            writer.open(path)
        for place, data in chain([first], pairs):
            try:
                writer[place] = data
            except Exception:
                with self._writing():
                    raise
        with self._writing():
            writer.finish()
            self._db.ingest_external_file([path])
        Path(path).unlink(missing_ok=True)

    def forget(self, name: str) -> None:
        """A state that came with files was read, and lives elsewhere from here on."""
        state = self._waiting.pop(name)
        del self._states[state.prefix]
        begin, end = state.prefix, (int.from_bytes(state.prefix, "big") + 1).to_bytes(3, "big")[1:]
        if begin < end:
            self._before_write()
            db = self._opened()
            with self._writing():
                db.delete_range(begin, end, self._write_options)

    def hold(self) -> HeldFiles:
        """The files as they are now, to be linked later, on any thread; nothing is written before
        that: a state that cannot wait links them itself, which takes as long as writing what is in
        the write buffer."""
        self._links += 1
        assert self._folder is not None
        held = HeldFiles(self._opened(), self._folder / f"links-{self._links}")
        self._held.append(held)
        return held

    def waits(self, used: int, limit: int) -> bool:
        """Whether a state that takes `used` bytes of `limit` leaves its entries in memory yet,
        for the files of a checkpoint are still to be linked."""
        self._held = [held for held in self._held if not held.linked]
        return bool(self._held) and used <= 1.5 * limit

    def get(self, key: bytes) -> bytes | None:
        """What is stored under the key."""
        if self._db is None:
            return None
        found: bytes | None = self._db.get(key)
        return found

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """The same of many."""
        if self._db is None:
            return [None] * len(keys)
        found: list[bytes | None] = self._db.get(keys)
        return found

    def write(self, deletes: list[bytes], puts: list[tuple[bytes, bytes]]) -> None:
        """All at once; deletes come first."""
        if not deletes and not puts:
            return
        from rocksdict import WriteBatch

        self._before_write()
        db = self._opened()
        batch = WriteBatch(raw_mode=True)
        for key in deletes:
            batch.delete(key)
        for key, value in puts:
            batch.put(key, value)
        with self._writing():
            db.write(batch, self._write_options)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All keys that begin so, in their order, as they are now."""
        return iter(()) if self._db is None else DatabaseView(self._db.iter()).scan(prefix)

    def view(self) -> DatabaseView | None:
        """All as it is now, for any thread: microseconds. None if nothing was ever written."""
        return None if self._db is None else DatabaseView(self._db.iter())

    def close(self) -> None:
        """Remove all of it. Never raises: RocksDB writes what it has in memory when it is closed,
        and where it cannot, for the disk is full, nothing is lost that was to stay."""
        self._closed = True
        for held in self._held:
            held.give_up()
        self._held = []
        self._db = None
        if self._end is not None:
            self._end()
        if self._remove is not None:
            self._remove()

    def _before_write(self) -> None:
        """What checkpoints hold is linked first."""
        if self._held:
            for held in self._held:
                held.link()
            self._held = []

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """What RocksDB refuses to write is a StateError that says where, and what to do."""
        try:
            yield
        except Exception as error:
            raise StateError(
                f"the local RocksDB in {self._folder} cannot be written ({error}): see to space "
                "and permissions there, or set state.backend.rocksdb.localdir to another folder"
            ) from error

    def _opened(self) -> Any:
        if self._db is None:
            self._make_folder()
            self._open(new=True)
        return self._db

    def _make_folder(self) -> None:
        if self._closed:
            raise StateError("the task's RocksDB is closed: its state is used after the task")
        parent = parent_of(self._dirs)
        remove_left_over(parent)
        self._folder, lock = new_folder(parent)
        self._remove = weakref.finalize(self, remove, self._folder, lock)

    def _open(self, new: bool) -> None:
        from rocksdict import Rdict, WriteOptions

        share_arenas()
        assert self._folder is not None
        options = options_of(self.budget)
        options.set_error_if_exists(new)
        options.create_if_missing(new)
        try:
            self._db = Rdict(str(self._folder / "db"), options)
            set_later(self._db, self.budget)
        except Exception as error:
            if new:
                raise StateError(
                    f"no local RocksDB can be made in {self._folder} ({error}): see to space and "
                    "permissions there, or set state.backend.rocksdb.localdir to another folder"
                ) from error
            why = (
                "see to space and permissions there, or set state.backend.rocksdb.localdir to "
                "another folder"
                if str(error).startswith("IO error")
                else "they were written by a version of RocksDB that this one does not read, or "
                "are not as they were written"
            )
            raise StateError(
                f"RocksDB cannot open the files of a checkpoint in {self._folder} ({error}): {why}"
            ) from error
        self._end = weakref.finalize(self, _close, self._db)
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True


def _under(prefix: bytes, pairs: Iterator[Pair]) -> Iterator[Pair]:
    """The same entries of another state."""
    return ((prefix + place[len(prefix) :], data) for place, data in pairs)


_BEHIND = b"\xff\xff"
"""Behind all key groups, which are fewer."""


class DatabaseView:
    """A point in time of a database, to be read once.

    It is an iterator, which RocksDB lets see the database as it was when it was made. Iterators of
    rocksdict's own snapshots see later writes (0.3.29), and upper bounds are freed too early."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def first(self, at: bytes) -> bytes | None:
        """The first key that is not before `at`; None if there is none."""
        self._iterator.seek(at)
        if not self._iterator.valid():
            self._iterator.status()
            return None
        key: bytes = self._iterator.key()
        return key

    def last(self, at: bytes) -> bytes | None:
        """The last key that is not behind `at`; None if there is none."""
        self._iterator.seek_for_prev(at)
        if not self._iterator.valid():
            self._iterator.status()
            return None
        key: bytes = self._iterator.key()
        return key

    def scan(self, prefix: bytes, at: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """All keys that begin so, in their order; those that are not before `at`."""
        iterator = self._iterator
        iterator.seek(prefix if at is None else at)
        while iterator.valid():
            key = iterator.key()
            if not key.startswith(prefix):
                return
            yield key, iterator.value()
            iterator.next()
        iterator.status()


def _close(db: Any) -> None:
    try:
        db.close()
    except Exception as error:
        log.info("a local RocksDB was closed without its last writes: %s", error)
