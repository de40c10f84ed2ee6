"""An operator's timers in all its subtasks through batches, checkpoints that fail or are complete,
and restores, against a dict."""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from backends import TINY
from strom.checkpoint.databases import inherited
from strom.checkpoint.increments import Increments
from strom.checkpoint.manifest import Manifest, OperatorShape
from strom.checkpoint.snapshot_io import read_operator, write_subtask
from strom.checkpoint.storage import open_storage
from strom.core.errors import StateError
from strom.core.ids import NO_CHECKPOINT, CheckpointId, OperatorId, TaskId, VertexId
from strom.core.key_kinds import held_key
from strom.core.state_config import StateConfig
from strom.snapshots.stored import StoredStates
from strom.state.backend import StateTable
from strom.state.encoding import decode
from strom.state.key_groups import key_group, range_for
from strom.state.keyed_state import KeyedStates
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.rocks.timers.timer_queue import ColdTimerQueue
from strom.testing.backends import spilling

OPERATOR = OperatorId("op")
MOST = 8
FIRST, LAST = -(1 << 63), (1 << 63) - 1
STATES = (TINY, spilling(1 << 10), spilling(8 << 10))
IN_MEMORY = StateConfig()

Timer = tuple[int, Any, Any]


class Color(Enum):
    RED = 1
    BLUE = 2


KEYS: dict[str, list[Any]] = {
    "numbers": list(range(40)),
    "texts": [f"k{n}" for n in range(30)] + ["", "\ud800"],
    "mixed": [0, 1, True, 1.0, -1, 2**70, "a", b"a", None, (1, "x"), (True, "x"), *Color],
    "objects": [(color, n) for color in Color for n in range(5)],
}
SPACES: list[Any] = [None, None, None, (0, 10), 7, Color.RED]


class Times:
    """Which timestamps are drawn; event time goes on in some."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.kind = rng.choice(["few", "around zero", "ends", "going on", "far apart"])
        self.now = 0

    def draw(self) -> int:
        match self.kind:
            case "few":
                return self._rng.randrange(5)
            case "around zero":
                return self._rng.randrange(-60, 60)
            case "ends":
                return self._rng.choice([FIRST, FIRST + 1, -1, 0, 1, LAST - 1, LAST])
            case "going on":
                self.now += self._rng.randrange(3)
                return self.now + self._rng.choice([1, 5, 50, 500])
        return self._rng.randrange(-(1 << 62), 1 << 62)


class Job:
    """An operator's timers in all its subtasks, and the model: of each timer its number."""

    def __init__(self, folder: Path, seed: int, exact: bool) -> None:
        """`exact`: one subtask for ever, so that the order of ties is known."""
        self.rng = random.Random(seed)
        self.exact = exact
        self.storage = open_storage(str(folder), "job")
        self.times = Times(self.rng)
        self.keys = [held_key(key) for key in self.rng.choice([*KEYS.values()])]
        self.spaces = self.rng.choice([[None], SPACES])
        self.model: dict[Timer, int] = {}
        self.number = self.n = 0
        self.base: tuple[Manifest, dict[Timer, int]] | None = None
        self.states: list[KeyedStates] = []
        self.from_files = self.spilled = 0
        self.start(None)

    @property
    def parallelism(self) -> int:
        return len(self.backends)

    def start(self, manifest: Manifest | None) -> None:
        """A new attempt, from a checkpoint if there is one."""
        rng = self.rng
        self.close()
        parallelism = 1 if self.exact else rng.choice([1, 2, 3])
        config = IN_MEMORY if rng.random() < 0.2 else rng.choice(STATES)
        in_place, same_program = rng.random() < 0.7, rng.random() < 0.8
        self.backends: list[MemoryKeyedStateBackend] = []
        self.increments = [Increments() for _ in range(parallelism)]
        for subtask in range(parallelism):
            states = KeyedStates(config)
            self.states.append(states)
            backend = states.make(range_for(subtask, parallelism, MOST), MOST)
            self.backends.append(backend)
            if manifest is None:
                continue
            share = (self.storage, manifest, OPERATOR, subtask, parallelism, MOST)
            files = None
            if in_place and backend.inherits:
                files = inherited(*share, same_program=same_program)
            if files is not None:
                backend.inherit(files)
                self.from_files += 1
            tables, _ = read_operator(*share, inherits=files is not None)
            backend.restore(tables)
        if rng.random() < 0.7:  # else nobody asks for them until something happens
            for backend in self.backends:
                backend.timers("t")

    def close(self) -> None:
        for states in self.states:
            states.close()
        self.states = []

    def step(self) -> None:
        rng = self.rng
        timer = (self.times.draw(), rng.choice(self.keys), rng.choice(self.spaces))
        queue = self.owner(timer).timers("t")
        what = rng.random()
        if what < 0.55:
            queue.register(*timer)
            self.number += 1
            self.model.setdefault(timer, self.number)
        elif what < 0.75:
            if self.model and rng.random() < 0.7:
                timer = rng.choice([*self.model])
                queue = self.owner(timer).timers("t")
            queue.delete(*timer)
            self.model.pop(timer, None)
        elif what < 0.85:
            self.fire(rng.choice(self.backends), timer[0])
        elif what < 0.88:
            backend = rng.choice(self.backends)
            times = [t for t, key, _ in self.model if self.is_of(backend, key)]
            assert backend.timers("t").peek() == min(times, default=None)
        elif what < 0.9:
            backend = rng.choice(self.backends)
            backend.validate()
            mine = [timer for timer in self.model if self.is_of(backend, timer[1])]
            assert len(backend.timers("t")) == len(mine)
        else:
            rng.choice(self.backends).time.begin(1)

    def owner(self, timer: Timer) -> MemoryKeyedStateBackend:
        (owner,) = [b for b in self.backends if self.is_of(b, timer[1])]
        return owner

    def is_of(self, backend: MemoryKeyedStateBackend, key: Any) -> bool:
        return key_group(key, MOST) in backend.key_groups

    def fire(self, backend: MemoryKeyedStateBackend, until: int) -> None:
        mine = [t for t in self.model if self.is_of(backend, t[1]) and t[0] <= until]
        waiting = sorted(mine, key=lambda timer: (timer[0], self.model[timer]))
        for _ in range(self.rng.choice([1, 2, 20, 1000])):
            found = backend.timers("t").pop_due(until)
            if not waiting:
                assert found is None
                return
            if self.exact:
                assert found == waiting[0]
            assert found is not None
            self.check_next(found, waiting)
            waiting.remove(found)
            del self.model[found]

    def check_next(self, found: Timer, waiting: list[Timer]) -> None:
        """It is the first of its key group: those of others may have been elsewhere."""
        group = key_group(found[1], MOST)
        first = [t for t in waiting if t[0] == waiting[0][0] and key_group(t[1], MOST) == group]
        assert found == first[0]

    def checkpoint(self, fails: bool) -> None:
        self.n += 1
        n = CheckpointId(self.n)
        base = NO_CHECKPOINT if self.base is None else self.base[0].checkpoint_id
        begun = [increments.begin(n, base) for increments in self.increments]
        frozen = [
            backend.snapshot(increment.since(OPERATOR))
            for backend, increment in zip(self.backends, begun, strict=True)
        ]
        model = dict(self.model)
        for _ in range(self.rng.randrange(30)):  # the asynchronous part comes when it comes
            self.step()
        made = []
        for subtask, (snapshot, increment) in enumerate(zip(frozen, begun, strict=True)):
            task, part = TaskId(VertexId("op"), subtask), [(OPERATOR, snapshot, None)]
            layers, files = increment.layers, increment.files
            made.append(write_subtask(self.storage, n, task, part, layers=layers, files=files))
            self.increments[subtask].written(n, made[-1])
        if fails:
            return
        shape = OperatorShape(OPERATOR, "op", self.parallelism, MOST)
        manifest = Manifest("job", "job", n, 0, (shape,), tuple(made))
        self.storage.publish(manifest)
        self.base = (manifest, model)
        self.check_stored()

    def check_stored(self) -> None:
        """What tools read of the newest checkpoint."""
        assert self.base is not None
        manifest, model = self.base
        try:
            table = StoredStates(self.storage, manifest, "it").keyed(OPERATOR, "t")
        except StateError:
            assert not model
        else:
            self.check_rows([table], model)

    def check_whole(self) -> None:
        """What a savepoint holds, read later."""
        model, frozen = dict(self.model), [b.snapshot() for b in self.backends]
        for _ in range(self.rng.randrange(20)):
            self.step()
        self.check_rows([t for one in frozen for t in one.tables()], model)

    def check_rows(self, tables: list[StateTable], model: dict[Timer, int]) -> None:
        rows = [row for table in tables for row in rows_of(table)]
        assert {row[0] for row in rows} == model.keys()
        assert len(rows) == len(model)
        if self.exact:
            in_order = [timer for timer, _ in sorted(rows, key=lambda row: (row[0][0], row[1]))]
            assert in_order == sorted(model, key=lambda timer: (timer[0], model[timer]))

    def restart(self) -> None:
        assert self.base is not None
        manifest, model = self.base
        self.count_spilled()
        self.model = dict(model)
        self.start(manifest)

    def count_spilled(self) -> None:
        for backend in self.backends:
            queue = backend.timers("t")
            self.spilled += queue.spilled if isinstance(queue, ColdTimerQueue) else 0


def rows_of(table: StateTable) -> Iterator[tuple[Timer, int]]:
    """Timers and their numbers."""
    if table.name != "t" or not table.data.num_rows:
        return
    names = ["__key_group", "timestamp", "sequence", "namespace", "key"]
    assert table.data.column_names == names
    groups, times, numbers = [table.data.column(name).to_pylist() for name in names[:3]]
    assert groups == sorted(groups)
    found = [decode(table.data.column(n), table.metadata[n], n) for n in ("key", "namespace")]
    for group, time, number, key, space in zip(groups, times, numbers, *found, strict=True):
        assert group == key_group(key, MOST)
        yield (time, held_key(key), space), number
