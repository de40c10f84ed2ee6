"""Fakes around one source or sink operator: a recording output, a context, scripted connectors."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from strom.core.clock import VirtualClock
from strom.core.config import JobConfig
from strom.core.ids import KeyGroupRange, OperatorId
from strom.operators.base import OperatorContext, run_to_end
from strom.state.operator_state import OperatorStateBackend


class Recorder:
    """An Output and Metrics that write down what they are told, in order."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.counts: dict[str, int] = {}

    def emit(self, batch: Any) -> None:
        self.events.append(("batch", batch))

    def emit_side(self, tag: str, batch: Any) -> None:
        self.events.append(("side", tag, batch))

    def emit_watermark(self, timestamp: int) -> None:
        self.events.append(("watermark", timestamp))

    def emit_status(self, active: bool) -> None:
        self.events.append(("status", active))

    def emit_latency_marker(self, marker: Any) -> None:
        self.events.append(marker)

    def count(self, name: str, n: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + n

    def gauge(self, name: str, value: float) -> None:
        pass

    def get_count(self, name: str) -> int:
        return self.counts.get(name, 0)

    def of(self, kind: str) -> list[Any]:
        return [event[1] for event in self.events if event[0] == kind]

    def rows(self) -> list[Any]:
        return [row for batch in self.of("batch") for row in batch.rows()]


@dataclass
class Setup:
    """An operator and everything around it."""

    operator: Any
    out: Recorder
    clock: VirtualClock
    state: OperatorStateBackend
    requests: list[int] = field(default_factory=list)
    wakes: list[int] = field(default_factory=list)
    reported: list[int | None] = field(default_factory=list)

    def snapshot(self, checkpoint_id: int) -> Any:
        """The synchronous part of a checkpoint; `.tables()` is the asynchronous one."""
        self.operator.prepare_snapshot(checkpoint_id)
        return self.state.snapshot()

    def tick(self, delta_ms: int) -> None:
        self.clock.advance_ms(delta_ms)
        run_to_end(self.operator.on_processing_time(self.clock.now_ms()))


@pytest.fixture
def start() -> Any:
    """Sets up and opens an operator: start(operator, tables=None, subtask=0, ...) -> Setup."""

    def build(
        operator: Any,
        tables: Any = None,
        subtask: int = 0,
        parallelism: int = 1,
        attempt: int = 0,
        clock: VirtualClock | None = None,
        config: JobConfig | None = None,
    ) -> Setup:
        state = OperatorStateBackend()
        if tables is not None:
            state.restore(tables)
        out = Recorder()
        setup = Setup(operator, out, clock or VirtualClock(), state)
        context = OperatorContext(
            operator_id=OperatorId("op-1"),
            name="my operator",
            job_id="job-1",
            job_name="job",
            subtask=subtask,
            parallelism=parallelism,
            max_parallelism=128,
            attempt=attempt,
            key_groups=KeyGroupRange(0, 127),
            config=config or JobConfig(),
            clock=setup.clock,
            keyed_state=SimpleNamespace(),  # type: ignore[arg-type]
            operator_state=state,
            metrics=out,
            wake_at=setup.wakes.append,
            wake=lambda: None,
            report_watermark=setup.reported.append,
            publish=lambda key, value: None,
            request_splits=lambda: setup.requests.append(1),
            restored=tables is not None,
        )
        operator.setup(context, out)
        run_to_end(operator.open())
        return setup

    return build


@dataclass(frozen=True)
class ScriptedSplit:
    split_id: str
    position: int = 0


class ScriptedReader:
    """Polls give what the test put into `script`; NeedSplit when it is empty."""

    def __init__(self) -> None:
        self.script: deque[Any] = deque()
        self.added: list[Any] = []
        self.unfinished: list[Any] = []
        self.completed: list[int] = []
        self.closed = 0
        self.durable: Any = None
        self.asks_every_ms: int | None = None
        self.can_pause = False
        self.paused: Any = None

    def add_splits(self, splits: Any) -> None:
        self.added.append(list(splits))
        self.unfinished.extend(splits)

    def poll(self) -> Any:
        from strom.api.connectors.base import NeedSplit

        if not self.script:
            return NeedSplit()
        step = self.script.popleft()
        if isinstance(step, Exception):
            raise step
        return step

    def snapshot(self) -> Any:
        return list(self.unfinished)

    def notify_checkpoint_complete(self, checkpoint_id: int, splits: Any) -> None:
        self.completed.append(checkpoint_id)
        self.durable = splits

    def pause(self, split_ids: frozenset[str]) -> None:
        self.paused = split_ids

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def reader() -> ScriptedReader:
    return ScriptedReader()


@pytest.fixture
def split() -> Any:
    return ScriptedSplit
