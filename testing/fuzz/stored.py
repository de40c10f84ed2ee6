"""An operator's subtasks whose state goes through checkpoints as a job's does: layers over those
before, files of local databases, restores at any parallelism and into either backend.

    subtasks begin ──▶ batches ──▶ begin(n) ──▶ batches ──▶ written, complete  ──▶ ...
                                                        └─▶ or aborted
    restore: from a checkpoint of this moment        crash: from the last complete one; the caller
                                                     goes over what came since once more

Checkpoints that later ones have taken the place of are removed, with the shared files that no
other needs, before the next one is begun or read.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ...checkpoint.databases import inherited
from ...checkpoint.increments import Increment, Increments
from ...checkpoint.manifest import Manifest, OperatorShape, decode, encode
from ...checkpoint.shared_files import SharedFiles
from ...checkpoint.snapshot_io import Part, read_operator, write_subtask
from ...checkpoint.storage import open_storage
from ...core.batch import Batch
from ...core.config import JobConfig
from ...core.ids import NO_CHECKPOINT, CheckpointId, KeyGroupRange, OperatorId, TaskId, VertexId
from ...core.keys import KeySelector
from ...operators.base import Operator
from ...snapshots import open as open_snapshot
from ...state.key_groups import key_groups_of, range_for
from ..backends import IN_MEMORY, SPILLING, fast_dirs
from ..operator_harness import OperatorHarness, OperatorSnapshotTables
from .subtasks import GROUPS, Subtasks

OPERATOR = OperatorId("op")
RETAINED = 2
"""Complete checkpoints that are kept."""

CRASHES = 3
"""At most."""

GroupsOf: TypeAlias = Callable[[Batch, int], Any]

Step: TypeAlias = "Callable[[StoredSubtasks], None]"


class StoredSubtasks(Subtasks):
    """See the module. `rng` says where state lies, how many subtasks there are, and what becomes of
    each checkpoint; `close` removes all files."""

    def __init__(
        self,
        make: Callable[[], Any],
        groups_of: GroupsOf | None,
        batch_size: int,
        rng: random.Random,
        expires: bool = False,
    ) -> None:
        """`groups_of`: the key groups of the records of a port, None for records that go to every
        subtask; None: there is one subtask, whatever is restored. `expires`: whether files of
        RocksDB may have what whole checkpoints leave out."""
        self._rng = rng
        self._compares = not expires
        self._keyed = groups_of is not None
        self._groups_of = groups_of or (lambda records, port: None)
        self._folder = tempfile.TemporaryDirectory(
            prefix="strom-fuzz-", dir=next(iter(fast_dirs()), None)
        )
        self._storage = open_storage(str(Path(self._folder.name) / "job"), "job")
        self._shared = SharedFiles()
        self._n = 0
        self._manifest: Manifest | None = None
        """Of the newest complete checkpoint."""
        self._base = NO_CHECKPOINT
        """The same, if it is of these tasks."""
        self._begun: Begun | None = None
        """The checkpoint that is not written yet."""
        self._increments: list[Increments] = [Increments()]
        self._state = self._draw_state()
        super().__init__(make, None, batch_size)

    @property
    def complete(self) -> int:
        """The number of the newest complete checkpoint; 0 if there is none."""
        return 0 if self._manifest is None else int(self._manifest.checkpoint_id)

    def push(self, records: Batch, port: int = 0) -> None:
        groups = self._groups_of(records, port)
        for task, own in zip(self._tasks, self._ranges, strict=True):
            if groups is None:
                task.push(records, port=port)
                continue
            mine = (groups >= own.first) & (groups <= own.last)
            if mine.any():
                task.push(records.filter(mine), port=port)

    def go_through(self, steps: Sequence[Step | None]) -> None:
        """Take these steps, with checkpoints between them and crashes, after which those since the
        checkpoint are taken once more, as what came out of them is forgotten. None: a restore."""
        at, crashes = 0, CRASHES
        places: dict[int, tuple[int, int, int, int]] = {}
        """By checkpoint: the step that comes next, and how much had come out."""
        while at < len(steps):
            step = steps[at]
            at += 1
            before = self._n
            if step is None:
                self.restore()
            else:
                step(self)
                self.take()
                self.drawn()
                self.take()
            if self._n > before:
                places[self._n] = at, len(self.batches), len(self.late), self.dropped
            if crashes and self.complete and self._rng.random() < 0.2:
                crashes -= 1
                self.crash()
                at, batches, late, self.dropped = places[self.complete]
                del self.batches[batches:], self.late[late:]

    def begin(self) -> int:
        """The synchronous part of the next checkpoint; its number."""
        assert self._begun is None
        self._n += 1
        n, parts, increments = CheckpointId(self._n), list[Part](), list[Increment]()
        whole: list[Part] = []
        compare = self._rng.random() < 0.3 and self._compares
        for task, known in zip(self._tasks, self._increments, strict=True):
            increment = known.begin(n, self._base)
            task.operator.prepare_snapshot(self._n)
            states = task.keyed_state, task.operator_state
            since = increment.since(OPERATOR)
            parts.append((OPERATOR, states[0].snapshot(since), states[1].snapshot()))
            if compare:
                whole.append((OPERATOR, states[0].snapshot(), states[1].snapshot()))
            increments.append(increment)
        self._begun = Begun(n, parts, increments, whole)
        return self._n

    def end(self, complete: bool = True) -> None:
        """Write the checkpoint that was begun, if there is one; it completes, or is aborted."""
        begun, self._begun = self._begun, None
        if begun is None:
            return
        n, made = begun.n, []
        for subtask, (part, increment) in enumerate(
            zip(begun.parts, begun.increments, strict=True)
        ):
            of = self._storage, n, TaskId(VertexId("op"), subtask), [part]
            made.append(write_subtask(*of, layers=increment.layers, files=increment.files))
            self._increments[subtask].written(n, made[-1])
        shape = OperatorShape(OPERATOR, "op", len(made), GROUPS)
        manifest = decode(encode(Manifest("job", "job", n, 0, (shape,), tuple(made))), "manifest")
        if complete:
            self._shared.completed(n, manifest.shared)
            self._storage.publish(manifest)
            self._manifest, self._base = manifest, n
            self._retain()
            if begun.whole:
                self._compare(begun)
        else:
            names = self._shared.discarded(n, self._storage.list_shared())
            self._storage.delete(n)
            self._remove(names)

    def drawn(self) -> None:
        """Between two steps: a checkpoint is begun, or what was begun ends."""
        if self._begun is not None:
            if self._rng.random() < 0.6:
                self.end(complete=self._rng.random() < 0.75)
        elif self._rng.random() < 0.5:
            self.begin()
            if self._rng.random() < 0.5:
                self.end(complete=self._rng.random() < 0.75)

    def restore(self, ranges: Any = None) -> None:
        """A checkpoint that completes, and start anew from it."""
        self.end(complete=False)
        self.begin()
        self.end()
        self._take()
        self._start()

    def crash(self) -> None:
        """Start anew from the newest complete checkpoint, which there is. What came out is left."""
        self._begun = None
        for task in self._tasks:
            task.output.elements.clear()
        self._start()

    def take(self) -> None:
        """Have all that came out."""
        self._take()
        for task in self._tasks:
            task.output.elements.clear()
            task.output.side.clear()
            task.metrics.counts.clear()

    def close(self) -> None:
        for task in self._tasks:
            task.close()
        self._folder.cleanup()

    def _start(self) -> None:
        for task in self._tasks:
            task.close()
        self._restores += 1
        self._base = NO_CHECKPOINT
        self._state = self._draw_state()
        count = self._rng.choice([1, 1, 2, 3]) if self._keyed else 1
        self._increments = [Increments() for _ in range(count)]
        self._ranges = [range_for(at, count, GROUPS) for at in range(count)]
        self._tasks = []  # who fails while it restores leaves no task that is closed twice
        for at in range(count):
            self._tasks.append(self._restored(at, count))

    def _draw_state(self) -> Any:
        return self._rng.choice([IN_MEMORY, *SPILLING, *SPILLING])

    def _restored(self, subtask: int, parallelism: int) -> OperatorHarness:
        assert self._manifest is not None
        share = self._storage, self._manifest, OPERATOR, subtask, parallelism, GROUPS
        files = None
        if self._state.backend == "rocksdb" and self._rng.random() < 0.8:
            files = inherited(*share, same_program=self._rng.random() < 0.5)
        keyed, operator = read_operator(*share, inherits=files is not None)
        tables = OperatorSnapshotTables(tuple(keyed), tuple(operator))
        return self._harness(self._ranges[subtask], tables, files)

    def _task(
        self, groups: KeyGroupRange, restored: OperatorSnapshotTables | None
    ) -> OperatorHarness:
        return self._harness(groups, restored, None)

    def _harness(
        self, groups: KeyGroupRange, restored: OperatorSnapshotTables | None, files: Any
    ) -> OperatorHarness:
        operator: Operator = self._make()
        return OperatorHarness(
            operator,
            config=JobConfig(
                max_parallelism=GROUPS, batch_size=self._config.batch_size, state=self._state
            ),
            max_parallelism=GROUPS,
            key_groups=groups,
            restored=restored,
            inherited=files,
            attempt=self._restores,
        )

    def _retain(self) -> None:
        ids = self._storage.list()
        for n in ids[:-RETAINED]:
            self._storage.delete(n)
            self._remove(self._shared.discarded(n))

    def _remove(self, names: list[str]) -> None:
        self._storage.delete_shared(names)
        self._shared.removed(names)

    def _compare(self, begun: Begun) -> None:
        """What the checkpoint shows is what a whole one of the same moment does."""
        folder = Path(self._folder.name) / f"whole-{begun.n}"
        storage, made = open_storage(str(folder), "job"), []
        for subtask, part in enumerate(begun.whole):
            made.append(write_subtask(storage, begun.n, TaskId(VertexId("op"), subtask), [part]))
        shape = OperatorShape(OPERATOR, "op", len(made), GROUPS)
        storage.publish(Manifest("job", "job", begun.n, 0, (shape,), tuple(made)))
        one, other = [
            open_snapshot(str(next(Path(at).rglob(f"*-{begun.n}/manifest.json")).parent))
            for at in (Path(self._folder.name) / "job", folder)
        ]
        for snapshot in (one, other):
            verified = snapshot.verify()
            if not verified.ok:
                raise AssertionError(f"verify: {verified.problems}")
        difference = one.diff(other)
        if difference:
            raise AssertionError(f"an increment and a whole checkpoint differ: {difference}")


def by_column(key: KeySelector) -> GroupsOf:
    """Of records with one input, which are columns."""
    return lambda records, port: key_groups_of(key.key_columns(records), GROUPS)


@dataclass(frozen=True)
class Begun:
    """A checkpoint of which the synchronous part is done. `whole`: a whole one of that moment."""

    n: CheckpointId
    parts: list[Part]
    increments: list[Increment]
    whole: list[Part]
