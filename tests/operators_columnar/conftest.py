"""An operator in a hand-made context: batches and watermarks in, everything it emits recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from strom.api.specs.records import OperatorSpec
from strom.core.batch import Batch
from strom.core.clock import VirtualClock
from strom.core.config import JobConfig
from strom.core.ids import OperatorId
from strom.operators.base import Operator, OperatorContext
from strom.operators.registry import build_operator
from strom.state.backend import StateTable
from strom.state.key_groups import range_for
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.operator_state import OperatorStateBackend
from strom.testing.operator_harness import OperatorSnapshotTables, regroup

MAX_PARALLELISM = 16


@dataclass
class Recorder:
    """Output and metrics of one operator."""

    events: list[Any] = field(default_factory=list)
    """Batches and watermarks, in order."""
    side: dict[str, list[Batch]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def emit(self, batch: Batch) -> None:
        if len(batch):
            self.events.append(batch)

    def emit_side(self, tag: str, batch: Batch) -> None:
        if len(batch):
            self.side.setdefault(tag, []).append(batch)

    def emit_watermark(self, timestamp: int) -> None:
        self.events.append(timestamp)

    def emit_status(self, active: bool) -> None:
        self.events.append(active)

    def emit_latency_marker(self, marker: Any) -> None:
        self.events.append(marker)

    def count(self, name: str, n: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + n

    def gauge(self, name: str, value: float) -> None: ...

    def get_count(self, name: str) -> int:
        return self.counts.get(name, 0)

    @property
    def batches(self) -> list[Batch]:
        return [event for event in self.events if not isinstance(event, int)]

    def rows(self) -> list[Any]:
        return [row for batch in self.batches for row in batch.rows()]

    def dicts(self) -> list[dict[str, Any]]:
        return [row.as_dict() for row in self.rows()]


class Task:
    """One subtask running one operator."""

    def __init__(
        self,
        operator: Operator | OperatorSpec,
        subtask: int = 0,
        parallelism: int = 1,
        tables: Sequence[StateTable] = (),
        config: JobConfig | None = None,
        restored: bool = False,
    ) -> None:
        self.out = Recorder()
        self.operator = build_operator(operator) if isinstance(operator, OperatorSpec) else operator
        self.groups = range_for(subtask, parallelism, MAX_PARALLELISM)
        state = MemoryKeyedStateBackend(self.groups, MAX_PARALLELISM)
        if tables:
            state.restore(tables)
        self.ctx = OperatorContext(
            operator_id=OperatorId("op"),
            name="the operator",
            job_id="job",
            job_name="job",
            subtask=subtask,
            parallelism=parallelism,
            max_parallelism=MAX_PARALLELISM,
            attempt=0,
            key_groups=self.groups,
            config=config or JobConfig(),
            clock=VirtualClock(),
            keyed_state=state,
            operator_state=OperatorStateBackend(),
            metrics=self.out,
            wake_at=lambda now: None,
            wake=lambda: None,
            report_watermark=lambda watermark: None,
            publish=lambda key, value: None,
            request_splits=lambda: None,
            restored=restored or bool(tables),
        )
        self.operator.setup(self.ctx, self.out)
        self.operator.open()

    def snapshot(self) -> list[StateTable]:
        self.operator.prepare_snapshot(1)
        return list(self.ctx.keyed_state.snapshot().tables())


def rescale(
    make: Callable[[], Operator],
    snapshots: Sequence[Sequence[StateTable]],
    parallelism: int,
    config: JobConfig | None = None,
) -> list[Task]:
    """New subtasks from the snapshots of the former ones."""
    parts = [OperatorSnapshotTables(tuple(tables), ()) for tables in snapshots]
    return [
        Task(
            make(),
            subtask,
            parallelism,
            regroup(parts, range_for(subtask, parallelism, MAX_PARALLELISM)).keyed,
            config,
        )
        for subtask in range(parallelism)
    ]


@dataclass(frozen=True)
class Bench:
    """What tests take from here."""

    task: type[Task]
    rescale: Any
    max_parallelism: int


@pytest.fixture(scope="session")
def bench() -> Bench:
    return Bench(Task, rescale, MAX_PARALLELISM)
