"""One operator, run again call by call."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from ..checkpoint.manifest import Manifest
from ..checkpoint.storage import MemoryStorage
from ..checkpoint.transfers import INLINE
from ..core.batch import Batch, ColumnBatch, ObjectBatch
from ..core.config import JobConfig
from ..core.elements import MIN_TIMESTAMP, LatencyMarker, StreamStatus, Watermark
from ..core.ids import EVEN, Attempt, Deal, OperatorId, TaskId, VertexId
from ..engine.graph.model import ChainedOperator, JobVertex
from ..engine.task.deployment import TaskDeployment
from ..engine.task.in_flight import element_of
from ..engine.task.metrics import OperatorMetrics
from ..engine.task.restoring import restore
from ..operators.base import (
    Operator,
    OperatorContext,
    Steps,
    Work,
    pass_watermark,
    run_to_end,
)
from ..operators.registry import build_operator
from ..state.backend import NoKey
from ..state.key_groups import range_for
from ..state.keyed_state import KeyedStates
from ..state.operator_state import OperatorStateBackend
from .clock import ReplayClock
from .reading import Recorded, Row, Tail
from .replayed import Emitted

BATCHES = ("columns", "objects")


class Emissions:
    """The operator's output. What it had emitted already when the state was taken is not emitted
    again."""

    def __init__(self) -> None:
        self.elements: list[Emitted] = []
        self.sides: dict[str, list[Batch]] = {}
        self.watermark = MIN_TIMESTAMP
        self.known = False
        """Whether it is told what it was told before."""

    def emit(self, batch: Batch) -> None:
        if len(batch):
            self.elements.append(batch)

    def emit_side(self, tag: str, batch: Batch) -> None:
        if len(batch):
            self.sides.setdefault(tag, []).append(batch)

    def emit_watermark(self, timestamp: int) -> None:
        if timestamp > self.watermark:
            self.watermark = timestamp
            self.elements.append(Watermark(timestamp))

    def emit_status(self, active: bool) -> None:
        if not self.known:
            self.elements.append(StreamStatus(active))

    def emit_latency_marker(self, marker: LatencyMarker) -> None:
        """There are none."""


@dataclass(frozen=True)
class Program:
    """What is run: the operator, and the configuration of its job."""

    operator: ChainedOperator
    config: JobConfig


class Step(NamedTuple):
    """A call, what was read from the clock until the next one, and whether that one came in the
    middle of its work."""

    row: Row
    clock: list[bytes]
    parked: bool = False

    @property
    def tells(self) -> bool:
        """Whether it is of a checkpoint, and so may come in the middle of another call's work."""
        return self.row.kind in _TELL


class Run:
    """The operator from a tail's state on. Restored when it is made, then `open`; `close` in the
    end."""

    def __init__(self, recorded: Recorded, tail: Tail, program: Program, first: Step) -> None:
        """`first`: of `steps`."""
        about, begin = recorded.about, tail.begin
        self._began = "restored" in begin
        """Whether its task began there, so that what is read of the clock while it is restored and
        opened was read then."""
        self._begin, self._first = begin, first
        self.clock = ReplayClock(begin["now_ms"])
        self.output = Emissions()
        self._states = KeyedStates(replace(program.config.state, local_dirs=()))
        self._work: Steps | None = None
        self._pauses = 0
        self._behind: deque[Steps] = deque()
        """Work that waits for that."""
        self.context = self._context(about, program, begin)
        self.operator: Operator = build_operator(
            program.operator.spec, program.operator.implementation
        )
        if self._began:
            self._expect(first)
        try:
            self._restore(about, tail, program)
        except BaseException:
            self._states.close()
            raise

    def open(self) -> None:
        """The first step: and go on with what it was in the middle of."""
        begin = self._begin
        self.operator.setup(self.context, self.output)
        run_to_end(self.operator.open())
        self._tell_again(begin)
        if not self._began:
            self._expect(self._first)
        if begin.get("again") is not None:
            kind, port, number = begin["again"]
            self._start(self._called(Row(kind, port, number, None, None)))
            self._pauses += begin["pauses"]
        if not self._first.parked:
            self.settle()

    def _expect(self, step: Step) -> None:
        for said in step.clock:
            self.clock.expect(said)

    def _context(
        self, about: dict[str, Any], program: Program, begin: dict[str, Any]
    ) -> OperatorContext:
        chained, clock = program.operator, self.clock
        shape = about["subtask"], about["parallelism"], about["max_parallelism"]
        groups = range_for(*shape, _deal(about))
        return OperatorContext(
            operator_id=chained.operator_id,
            name=chained.name,
            job_id=about["job"]["id"],
            job_name=about["job"]["name"],
            subtask=about["subtask"],
            parallelism=about["parallelism"],
            max_parallelism=about["max_parallelism"],
            attempt=about["attempt"],
            key_groups=groups,
            config=program.config,
            clock=clock,
            keyed_state=self._states.make(
                groups, about["max_parallelism"], clock, chained.state_backend
            ),
            operator_state=OperatorStateBackend(about["subtask"]),
            metrics=OperatorMetrics(chained.name),
            wake_at=lambda timestamp: None,  # its wake-ups are recorded
            wake=lambda: None,
            report_watermark=lambda watermark: None,
            publish=lambda key, value: None,
            request_splits=lambda: None,
            restored=begin.get("restored", True),
            uid=chained.uid,
            threads=False,
        )

    def _restore(self, about: dict[str, Any], tail: Tail, program: Program) -> None:
        """As a task is restored, from the whole of the base where that is this subtask's alone."""
        copied = tail.begin.get("restored")
        if copied is False:
            return
        manifest: Manifest = tail.state.manifest()
        chained = replace(program.operator, operator_id=OperatorId(about["operator"]))
        alone = copied is None
        parallelism = 1 if alone else about["parallelism"]
        vertex = JobVertex(
            VertexId("replay"),
            chained.name,
            (chained,),
            parallelism,
            about["max_parallelism"],
            deal=EVEN if alone else _deal(about),
        )
        deployment = TaskDeployment(
            task=TaskId(vertex.id, 0 if alone else about["subtask"]),
            attempt=Attempt(about["attempt"]),
            job_id=about["job"]["id"],
            job_name=about["job"]["name"],
            vertex=vertex,
            edges=(),
            input_edges=(),
            edge_names={},
            key_groups={},
            inputs=(),
            outputs=(),
            config=program.config,
            storage=MemoryStorage(about["job"]["id"]),
            restore=manifest,
            restore_storage=tail.state,
            own_share=tail.begin.get("alone", False),
        )
        context = replace(self.context, operator_id=chained.operator_id)
        restore(deployment, [context], tail.state, INLINE)

    def _tell_again(self, begin: dict[str, Any]) -> None:
        """What it knew, and is in no state."""
        self.output.watermark = begin.get("emitted", MIN_TIMESTAMP)
        again = begin.get("again")
        self.output.known = True
        if not begin.get("active", True):
            self.operator.process_status(False)
        watermark = begin.get("watermark")
        anew = again is not None and again[0] == "watermark"
        if watermark is not None and not anew:
            run_to_end(pass_watermark(self.operator, self.context.keyed_state.time, watermark))
        for port in begin.get("ended", ()):
            run_to_end(self.operator.end_input(port))
        self.output.known = False

    # --- calls ---------------------------------------------------------------------------------

    def batch_of(self, row: Row) -> Batch | None:
        """Its records, if it is a batch. Objects are unpickled."""
        found = element_of(row.item) if row.kind in BATCHES else None
        return found if isinstance(found, (ColumnBatch, ObjectBatch)) else None

    def call(self, step: Step, batch: Batch | None = None) -> None:
        """Make it, as far as it went before the next one came. `batch`: what it brings."""
        row = step.row
        if step.tells:
            self._tell(step)
        else:
            self.clock.begin()
            if batch is not None:
                self.context.keyed_state.time.begin(len(batch))
            self._expect(step)
            if batch is not None:
                self._start(self.operator.process(batch, row.port))
            else:
                self._start(self._called(row))
        if not step.parked:
            self.settle()

    def call_singly(self, step: Step, batch: Batch) -> Iterator[int]:
        """The same, record by record; gives the number of each before it is handed over."""
        self.clock.begin()
        self._expect(step)
        for at in range(len(batch)):
            yield at
            self.context.keyed_state.time.begin(1)
            self._start(self.operator.process(batch.slice(at, 1), step.row.port))
            self.settle()

    def _called(self, row: Row) -> Work:
        operator = self.operator
        match row.kind:
            case "watermark":
                return pass_watermark(operator, self.context.keyed_state.time, row.number)
            case "status":
                operator.process_status(bool(row.number))
            case "end":
                return operator.end_input(row.port)
            case "wake":
                self.clock.advance_to(row.number)
                return operator.on_processing_time(row.number)
            case "finish":
                return operator.finish()
        return None

    def _tell(self, step: Step) -> None:
        """Of a checkpoint, in the middle of work if it was so."""
        row = step.row
        while self._work is not None and self._pauses < row.port:
            self._step()
        self._expect(step)
        if row.kind == "prepare":
            self.operator.prepare_snapshot(row.number)
        elif row.kind == "aborted":
            self.operator.notify_checkpoint_aborted(row.number)
        else:
            work = self.operator.notify_checkpoint_complete(row.number)
            if work is not None and self._work is not None:
                self._behind.append(work)
            else:
                self._start(work)

    def settle(self) -> None:
        """Do all that is begun."""
        while self._work is not None:
            self._step()

    def _start(self, work: Work) -> None:
        self._work, self._pauses = work, 0
        if work is not None:
            self._step()

    def _step(self) -> None:
        work = self._work
        assert work is not None
        try:
            next(work)
            self._pauses += 1
        except StopIteration:
            self._work, self._pauses = (self._behind.popleft() if self._behind else None), 0
        except BaseException:
            self._work = None
            raise

    def key(self) -> Any:
        """The current key of its keyed state, None if there is none."""
        found = self.context.keyed_state.get_current_key()
        return None if isinstance(found, NoKey) else found

    def close(self) -> None:
        work, self._work = self._work, None
        try:
            if isinstance(work, Generator):
                work.close()
            self.operator.close()
        finally:
            self._states.close()


_TELL: Final = ("prepare", "complete", "aborted")


def steps(tail: Tail) -> Iterator[Step]:
    """The calls of a tail; the first one stands for its beginning."""
    row = OPEN
    said: list[bytes] = []
    for one in tail.rows():
        if one.kind == "clock":
            said.append(bytes(one.data))
        elif one.kind not in ("begin", "closed"):
            yield Step(row, said, one.kind in _TELL and one.port > 0)
            row, said = one, []
    yield Step(row, said)


OPEN: Final = Row("open", 0, 0, None, None)


def _deal(about: dict[str, Any]) -> Deal:
    """Recordings of before have none."""
    return tuple(about.get("deal", EVEN))
