"""Snapshots of a timer queue that continue others: the layers of the newest complete one are what a
whole snapshot was then, in the same order, at any parallelism."""

from __future__ import annotations

from typing import Any

from row_courses import MAX, SEEDS, Run
from strom.checkpoint.snapshot_io import read_operator
from strom.core.key_kinds import held_key
from strom.state.backend import KeyedSnapshot, StateTable
from strom.state.encoding import decode


class TimerRun(Run):
    """The same of a timer queue: its timers by key group, in order of registration."""

    def __init__(self, seed: int, folder: str) -> None:
        super().__init__("value", seed, folder)
        self.now = 0

    def timer(self) -> tuple[int, Any, Any]:
        return (
            self.now + self.rng.randrange(self.rng.choice([3, 200])),
            held_key(self.key(self.rng.randrange(self.spread))),
            self.rng.choice(self.spaces),
        )

    def access(self) -> None:
        queue = self.state.timers("s")
        for _ in range(self.rng.choice([1, 2, 30])):
            if self.rng.random() < 0.7:
                queue.register(*self.timer())
            else:
                queue.delete(*self.rng.choice([self.timer(), *self.waiting[-20:]]))

    @property
    def waiting(self) -> list[Any]:
        return [timer[:3] for timer in self.state.timers("s").freeze_all("s").timers()]

    def later(self) -> None:
        queue = self.state.timers("s")
        self.now += self.rng.choice([1, 10])
        for _ in range(self.rng.choice([1, 3, 100])):
            if queue.pop_due(self.now) is None:
                break

    def bulk(self) -> None:
        self.state.validate()

    fire = later

    def rows(self, snapshot: KeyedSnapshot) -> list[Any]:
        return [row for table in snapshot.tables() for row in timers_of(table)]

    def whole(self) -> Any:
        return self.rows(self.state.snapshot())

    def check(self) -> None:
        assert self.manifest is not None
        parallelism = self.rng.choice([1, 2, 3])
        found: list[Any] = []
        for subtask in range(parallelism):
            tables, _ = read_operator(self.storage, self.manifest, "op", subtask, parallelism, MAX)
            state = self.backend(subtask, parallelism)
            state.restore(tables)
            state.timers("s")
            state.validate()
            found += self.rows(state.snapshot())
        assert found == self.expected


def timers_of(table: StateTable) -> list[Any]:
    columns = [table.data.column("timestamp").to_pylist()]
    for name in ("key", "namespace"):
        columns.append(decode(table.data.column(name), table.metadata[name], name))
    return [(at, held_key(key), space) for at, key, space in zip(*columns, strict=True)]


def test_any_course_of_events_of_timers(tmp_path: Any) -> None:
    seen: set[str] = set()
    for seed in range(2 * SEEDS):
        run = TimerRun(seed, str(tmp_path / str(seed)))
        run.go(60)
        seen |= run.layers
    assert seen == {"base", "delta"}
