"""From a recording to a result, and to the record at fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ..core.batch import Batch
from ..core.errors import ConfigurationError
from ..engine.graph.model import ChainedOperator, JobGraph
from .reading import Recorded, Row, find, tail
from .replayed import Fault, Replayed
from .running import OPEN, Program, Run, Step, steps


def replay(
    path: str,
    operator: str | None = None,
    *,
    subtask: int | None = None,
    attempt: int | None = None,
    graph: JobGraph | None = None,
    singly: bool = True,
    failed: Callable[[BaseException], None] | None = None,
) -> Replayed:
    """Run an operator again on what was recorded of it at `path` (a path or fsspec URL that
    `env.record` was given, or the folder of one job in it).

    operator: its uid, name or id; `subtask`, `attempt`: both from 0. Not said: what failed, else
    what there is, of the newest job; ConfigurationError if that is several. graph: the job that
    the operator is taken from (`env.get_job_graph()`), as it is to be run now; None: the one that
    was recorded, which is unpickled and so runs code of whoever recorded it, as pickled records do.
    singly: whether what a batch failed with is looked for record by record, on the same state,
    which calls functions again. failed: called with what the operator raised, before anything is
    closed.

    What the operator raises is in the result. Raises ConfigurationError, CheckpointError and
    SerializationError for recordings that cannot be run.
    """
    recorded = find(path, operator, subtask, attempt)
    program = _program(recorded, graph)
    found, failing = _run(recorded, program, failed)
    if failing is not None and singly:
        found.fault = _single(recorded, program, found.fault, failing) or found.fault
    return found


def _program(recorded: Recorded, graph: JobGraph | None) -> Program:
    if graph is None:
        shipped = recorded.shipped()
        return Program(shipped["operator"], shipped["config"])
    operators = [one for vertex in graph.vertices for one in vertex.operators]
    for name in ("operator", "uid", "name"):
        said = recorded.about[name]
        for one in operators:
            if said is not None and said in (one.operator_id, one.uid, one.name):
                return Program(one, graph.config)
    there = ", ".join(sorted({f"'{_called(one)}'" for one in operators}))
    raise ConfigurationError(
        f"the program has no operator '{recorded.operator}', which is recorded; it has {there}"
    )


def _called(operator: ChainedOperator) -> str:
    return str(operator.uid if operator.named else operator.name)


def _run(
    recorded: Recorded, program: Program, failed: Callable[[BaseException], None] | None
) -> tuple[Replayed, int | None]:
    """And the number of the call that failed, if that is known."""
    behind = tail(recorded)
    found = _nothing_yet(recorded, behind.checkpoint_id)
    calls = steps(behind)
    first = next(calls)
    run = Run(recorded, behind, program, first)
    call, at = Call(OPEN), 0
    try:
        for number, step in enumerate(chain([first], calls)):
            batch = run.batch_of(step.row)
            if not step.tells:
                call, at = Call(step.row, batch, found.records), number
            found.records += 0 if batch is None else len(batch)
            try:
                _make(run, step, batch)
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:
                found.error = error
                found.fault = call.fault(run.key())
                if failed is not None:
                    failed(error)
                break
    finally:
        found.notes = behind.notes
        found.elements, found.sides = run.output.elements, run.output.sides
        run.close()
    return found, None if found.error is None else at


def _make(run: Run, step: Step, batch: Batch | None) -> None:
    """One call, the first of which opens the operator."""
    if step.row is OPEN:
        run.open()
    else:
        run.call(step, batch)


@dataclass(frozen=True)
class Call:
    """One that is being made, behind so many records."""

    row: Row
    batch: Batch | None = None
    before: int = 0

    def fault(self, key: Any) -> Fault:
        row, batch = self.row, self.batch
        if batch is None:
            time_ms = row.number if row.kind in ("watermark", "wake") else None
            return Fault(row.kind, self.before, self.before, time_ms, key=key)
        if len(batch) == 1:
            return self.single(0, key)
        before = self.before
        return Fault("record", before + len(batch), before + 1, None, key=key, port=row.port)

    def single(self, at: int, key: Any) -> Fault:
        """That of one record of the batch."""
        assert self.batch is not None
        number, stamps = self.before + at + 1, self.batch.timestamps
        time_ms = None if stamps is None else int(stamps[at])
        record = self.batch.slice(at, 1).rows()[0]
        return Fault("record", number, number, time_ms, record, key, self.row.port)


def _single(
    recorded: Recorded, program: Program, fault: Fault | None, failing: int
) -> Fault | None:
    """Of a call with a batch: the record at which it fails if each comes by itself. None: of
    another call, or none fails then."""
    if fault is None or fault.call != "record" or fault.first == fault.number:
        return None
    behind = tail(recorded)
    calls = steps(behind)
    first = next(calls)
    run = Run(recorded, behind, program, first)
    records = 0
    try:
        for number, step in enumerate(chain([first], calls)):
            batch = run.batch_of(step.row)
            if number == failing:
                assert batch is not None
                return _failing(run, step, Call(step.row, batch, records))
            records += 0 if batch is None else len(batch)
            _make(run, step, batch)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None  # it does not do the same twice
    finally:
        run.close()
    return None


def _failing(run: Run, step: Step, call: Call) -> Fault | None:
    assert call.batch is not None
    at = 0
    try:
        for one in run.call_singly(step, call.batch):
            at = one
    except KeyboardInterrupt:
        raise
    except BaseException:
        return call.single(at, run.key())
    return None


def _nothing_yet(recorded: Recorded, checkpoint_id: int) -> Replayed:
    about, failure = recorded.about, recorded.failure
    return Replayed(
        about["job"]["id"],
        about["job"]["name"],
        recorded.operator,
        about["subtask"],
        about["parallelism"],
        about["attempt"],
        checkpoint_id,
        recorded_failure=None if failure is None else str(failure.get("error")),
    )
