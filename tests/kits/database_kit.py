"""An operator's subtasks whose state is in RocksDB, through checkpoints of its files and restores
from them, at any parallelism and by any program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backends import TINY
from strom.checkpoint.databases import inherited
from strom.checkpoint.increments import Increments
from strom.checkpoint.manifest import Manifest, OperatorShape, decode, encode
from strom.checkpoint.snapshot_io import read_operator, write_subtask
from strom.checkpoint.storage import open_storage
from strom.core.clock import Clock
from strom.core.ids import EVEN, NO_CHECKPOINT, CheckpointId, Deal, OperatorId, TaskId, VertexId
from strom.core.state_config import StateConfig
from strom.state.backend import StateTable
from strom.state.key_groups import key_group, range_for
from strom.state.keyed_state import KeyedStates
from strom.state.memory import MemoryKeyedStateBackend

OPERATOR = OperatorId("op")
MOST = 8
"""Max parallelism."""


class Subtasks:
    """Of one operator. `backends`: of each its keyed state; None before `start`."""

    def __init__(
        self, folder: Path, config: StateConfig = TINY, clock: Clock | None = None
    ) -> None:
        self.storage = open_storage(str(folder), "job")
        self.config = config
        self.clock = clock
        self.manifest: Manifest | None = None
        """Of the newest checkpoint."""
        self.backends: list[Any] = []
        self._states: list[KeyedStates] = []
        self._increments: list[Increments] = []
        self._n = 0
        self._deal: Deal = EVEN
        self._base = NO_CHECKPOINT

    def start(self, parallelism: int = 1, same_program: bool = True, deal: Deal = EVEN) -> None:
        """From the newest checkpoint, if there is one."""
        self.close()
        self._deal = deal
        self._increments = [Increments() for _ in range(parallelism)]
        self._base = NO_CHECKPOINT
        for subtask in range(parallelism):
            states = KeyedStates(self.config)
            self._states.append(states)
            groups = range_for(subtask, parallelism, MOST, deal)
            backend = states.make(groups, MOST, self.clock)
            self.backends.append(backend)
            if self.manifest is not None:
                share = (self.storage, self.manifest, OPERATOR, subtask, parallelism, MOST)
                files = inherited(*share, same_program=same_program, deal=deal)
                if files is not None:
                    backend.inherit(files)
                inherits = files is not None
                backend.restore(read_operator(*share, inherits=inherits, deal=deal)[0])

    def of(self, key: Any) -> Any:
        """The keyed state that has a key, which is its current one."""
        group = key_group(key, MOST)
        (found,) = [one for one in self.backends if group in one.key_groups]
        found.set_current_key(key)
        return found

    def flush(self) -> None:
        """Between two batches."""
        for backend in self.backends:
            backend.time.begin(1)

    def checkpoint(self) -> Manifest:
        """Which continues the one before, if it is of this start."""
        self._n += 1
        n, made = CheckpointId(self._n), []
        for subtask, (backend, increments) in enumerate(
            zip(self.backends, self._increments, strict=True)
        ):
            increment = increments.begin(n, self._base)
            part = [(OPERATOR, backend.snapshot(increment.since(OPERATOR)), None)]
            task = TaskId(VertexId("op"), subtask)
            layers, files = increment.layers, increment.files
            made.append(write_subtask(self.storage, n, task, part, layers=layers, files=files))
            increments.written(n, made[-1])
        shape = OperatorShape(OPERATOR, "op", len(made), MOST, deal=self._deal)
        manifest = Manifest("job", "job", n, 0, (shape,), tuple(made))
        self.manifest = decode(encode(manifest), "manifest")
        self.storage.publish(self.manifest)
        self._base = n
        return self.manifest

    def tables(self, subtask: int = 0, parallelism: int = 1) -> list[StateTable]:
        """What the newest checkpoint holds, for a subtask with other state."""
        assert self.manifest is not None
        share = (self.storage, self.manifest, OPERATOR, subtask, parallelism, MOST)
        return read_operator(*share)[0]

    def in_memory(self, parallelism: int) -> list[MemoryKeyedStateBackend]:
        """Subtasks in memory that begin with the newest checkpoint."""
        made = []
        for subtask in range(parallelism):
            one = MemoryKeyedStateBackend(range_for(subtask, parallelism, MOST), MOST, self.clock)
            one.restore(self.tables(subtask, parallelism))
            made.append(one)
        return made

    def close(self) -> None:
        for states in self._states:
            states.close()
        self._states, self.backends = [], []
