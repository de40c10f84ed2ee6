"""Whatever interrupts the merging of files, and whoever goes on: each record once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from amounts import examples
from compaction_kit import batch, every, hidden, prepare, records
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strom.connectors.files import (
    ParquetSink,
)
from strom.connectors.files.staging import StagingArea


class Crash(BaseException):
    """Ends a process at a step of the filesystem."""


STEPS = {
    "create": 8,
    "seal": 8,
    "publish": 6,
    "discard": 8,
    "held_path": 6,
    "final_path": 8,
}
"""How often each method is called in the script, at least; a crash comes before and after each."""


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_step(
    tmp_path_factory: Any,
    writer_context: Any,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    after: bool,
) -> None:
    """Whatever a crash interrupts, the next attempt goes on from the last complete checkpoint."""
    crashes = 0
    for when in range(1, 60):
        folder = tmp_path_factory.mktemp("sink")
        crashed = _run_with_a_crash(folder, writer_context, monkeypatch, step, when, after)
        assert records(folder) == list(range(12)), (step, when, after)
        assert hidden(folder) == [], (step, when, after)
        crashes += crashed
        if not crashed:
            break
    assert crashes >= STEPS[step]


def _run_with_a_crash(
    folder: Path, writer_context: Any, patch: pytest.MonkeyPatch, step: str, when: int, after: bool
) -> bool:
    """Six checkpoints of two records each, merged every second time; then the end."""
    sink = ParquetSink(folder, compact=every(2))
    calls, crashed = 0, False
    real = getattr(StagingArea, step)

    def wrapped(self: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal calls, crashed
        calls += 1
        if calls == when and not crashed and not after:
            crashed = True
            raise Crash
        result = real(self, *arguments, **options)
        if calls == when and not crashed:
            crashed = True
            raise Crash
        return result

    durable: tuple[int, int, list[Any]] = (0, 0, [])
    attempt = 0
    with patch.context() as m:
        m.setattr(StagingArea, step, wrapped)
        while True:
            position, checkpoint, committables = durable
            try:
                writer = sink.create_writer(writer_context(attempt=attempt))
                if attempt:
                    writer.recover(committables)
                while position < 12:
                    writer.write(batch(position, position + 1))
                    position, checkpoint = position + 2, checkpoint + 1
                    made = prepare(writer, checkpoint)
                    durable = (position, checkpoint, made)
                    writer.commit(made)
                writer.finish()
                made = prepare(writer, checkpoint + 1)
                durable = (position, checkpoint + 1, made)
                writer.commit(made)
                break
            except Crash:
                attempt += 1
                if crashed and attempt > 1:
                    raise
    writer.close()
    return crashed


SCRIPT = st.lists(
    st.tuples(
        st.sampled_from(["write", "prepare", "complete", "crash", "rescale"]), st.integers(0, 9)
    ),
    max_size=40,
)


@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(script=SCRIPT, checkpoints=st.integers(1, 4))
def test_any_history_gives_each_record_once(
    tmp_path_factory: Any, writer_context: Any, script: list[Any], checkpoints: int
) -> None:
    """Several subtasks, several checkpoints under way, any of which may complete, or none; a crash
    deals what the newest complete one says out anew, to as many subtasks as there are then. The
    checkpoint's committables are those of all that had not been committed by then, as the operator
    stores them."""
    folder = tmp_path_factory.mktemp("sink")
    sink = ParquetSink(folder, compact=every(checkpoints))
    run = _Job(sink, writer_context)
    for action, number in [*script, ("crash", 0)]:
        getattr(run, action)(number)
    run.end()
    assert records(folder) == list(range(run.position))
    assert hidden(folder) == []


class _Job:
    """Writers as sink operators hold them, and what a checkpoint storage would hold."""

    def __init__(self, sink: Any, writer_context: Any) -> None:
        self.sink = sink
        self.make = writer_context
        self.attempt = 0
        self.position = 0
        self.checkpoint = 0
        self.durable: tuple[int, list[Any]] = (0, [])
        self.start(2, [])

    def start(self, parallelism: int, committables: list[Any]) -> None:
        self.writers = [
            self.sink.create_writer(self.make(i, parallelism, self.attempt))
            for i in range(parallelism)
        ]
        self.pending: list[list[tuple[int, list[Any]]]] = [[] for _ in self.writers]
        self.states: dict[int, tuple[int, list[Any]]] = {}
        if self.attempt:
            for i in reversed(range(parallelism)):
                self.writers[i].recover(committables[i::parallelism])

    def write(self, number: int) -> None:
        self.writers[number % len(self.writers)].write(batch(self.position))
        self.position += 1

    def prepare(self, number: int) -> None:
        self.checkpoint += 1
        held = []
        for writer, pending in zip(self.writers, self.pending, strict=True):
            pending.append((self.checkpoint, prepare(writer, self.checkpoint)))
            held += [one for _, made in pending for one in made]
        self.states[self.checkpoint] = (self.position, held)

    def complete(self, number: int) -> None:
        """One of those under way completes; the crash may come before all have committed."""
        if not self.states:
            return
        n = sorted(self.states)[number % len(self.states)]
        self.durable = self.states[n]
        self.states = {m: state for m, state in self.states.items() if m > n}
        committing = list(zip(self.writers, self.pending, strict=True))
        for writer, pending in committing[: None if number % 3 else 1]:
            while pending and pending[0][0] <= n:
                writer.commit(pending.pop(0)[1])

    def crash(self, number: int) -> None:
        self.rescale(len(self.writers) - 1)

    def rescale(self, number: int) -> None:
        self.attempt += 1
        self.position = self.durable[0]
        self.start(1 + number % 3, self.durable[1])

    def end(self) -> None:
        for writer in self.writers:
            writer.finish()
        self.prepare(0)
        n = self.checkpoint
        for writer, pending in zip(self.writers, self.pending, strict=True):
            while pending and pending[0][0] <= n:
                writer.commit(pending.pop(0)[1])
        for writer in self.writers:
            writer.close()
