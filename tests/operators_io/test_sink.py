"""The sink operator: what is prepared, kept, committed and recovered, and when."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from strom.api.connectors.base import Sink
from strom.api.specs.records import SinkSpec
from strom.core.batch import ObjectBatch
from strom.core.errors import OperatorError
from strom.operators.base import run_to_end
from strom.operators.io.sink import SinkOperator


class Writer:
    """Prepares one committable per record; `late` prepares beside the task's thread."""

    tends_every_ms: int | None = None
    published: int | None = None

    def __init__(self, late: bool = False) -> None:
        self.late = late
        self.log: list[Any] = []
        self.buffer: list[Any] = []
        self.made_on: list[str] = []
        self.error: Exception | None = None
        self.finished = False

    def finish(self) -> None:
        self.finished = True

    def write(self, batch: Any) -> None:
        self.buffer.extend(batch.rows())

    def prepare_commit(self, checkpoint_id: int) -> Any:
        records, self.buffer = self.buffer, []

        def make() -> list[str]:
            self.made_on.append(threading.current_thread().name)
            if self.error is not None:
                raise self.error
            return [f"{checkpoint_id}:{record}" for record in records]

        return make if self.late else make()

    def commit(self, committables: Any) -> None:
        self.log.append(("commit", list(committables)))

    def recover(self, committables: Any) -> None:
        self.log.append(("recover", list(committables)))

    def close(self) -> None:
        self.log.append(("close",))
        raise OSError("must not escape")


@pytest.fixture
def writer(request: pytest.FixtureRequest) -> Writer:
    return Writer(getattr(request, "param", False))


class Opening(Sink):
    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def create_writer(self, context: Any) -> Any:
        return self.writer


def sink(writer: Writer) -> SinkOperator:
    return SinkOperator(SinkSpec(Opening(writer)))


def write(setup: Any, *values: Any) -> None:
    run_to_end(setup.operator.process(ObjectBatch(list(values))))


both = pytest.mark.parametrize("writer", [False, True], indirect=True, ids=["direct", "deferred"])


@both
def test_commits_when_the_checkpoint_completes(start: Any, writer: Writer) -> None:
    setup = start(sink(writer))
    write(setup, "a", "b")
    setup.snapshot(1).tables()
    assert writer.log == []
    setup.operator.notify_checkpoint_complete(1)
    assert writer.log == [("commit", ["1:a", "1:b"])]
    setup.operator.notify_checkpoint_complete(1)
    assert len(writer.log) == 1
    assert setup.out.counts["committed"] == 2
    setup.operator.validate()


@both
def test_several_pending_checkpoints_commit_in_order(start: Any, writer: Writer) -> None:
    #  a |1 b |2 c |3        1 aborted, 2 completes (1 and 2 commit), 3 completes
    setup = start(sink(writer))
    snapshots = []
    for n, value in enumerate("abc", start=1):
        write(setup, value)
        snapshots.append(setup.snapshot(n))
    for snapshot in snapshots:
        snapshot.tables()
    setup.operator.notify_checkpoint_aborted(1)
    setup.operator.notify_checkpoint_complete(2)
    assert writer.log == [("commit", ["1:a"]), ("commit", ["2:b"])]
    setup.operator.notify_checkpoint_complete(3)
    assert writer.log[2:] == [("commit", ["3:c"])]
    setup.operator.validate()


@both
def test_state_holds_all_that_is_not_committed(start: Any, writer: Writer) -> None:
    setup = start(sink(writer))
    write(setup, "a")
    setup.snapshot(1).tables()
    write(setup, "b")
    tables = setup.snapshot(2).tables()
    other = Writer()
    start(sink(other), tables=tables, attempt=1)
    assert other.log == [("recover", ["1:a", "2:b"])]

    setup.operator.notify_checkpoint_complete(2)
    write(setup, "c")
    last = Writer()
    start(sink(last), tables=setup.snapshot(3).tables(), attempt=1)
    assert last.log == [("recover", ["3:c"])]


@both
def test_recovered_committables_are_not_kept(start: Any, writer: Writer) -> None:
    setup = start(sink(writer))
    write(setup, "a")
    tables = setup.snapshot(1).tables()
    other = Writer()
    restored = start(sink(other), tables=tables, attempt=1)
    assert restored.snapshot(2).tables()[0].items == ()


def test_recover_also_runs_when_an_attempt_starts_without_a_checkpoint(start: Any) -> None:
    fresh, again = Writer(), Writer()
    start(sink(fresh), attempt=0)
    start(sink(again), attempt=1)
    assert fresh.log == []
    assert again.log == [("recover", [])]


def test_a_deferred_prepare_runs_once_on_the_snapshots_thread(start: Any) -> None:
    writer = Writer(late=True)
    setup = start(sink(writer))
    write(setup, "a")
    first = setup.snapshot(1)
    write(setup, "b")
    second = setup.snapshot(2)
    assert writer.made_on == []
    workers = [
        threading.Thread(target=snapshot.tables, name=f"upload-{i}")
        for i, snapshot in enumerate([second, first])
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    setup.operator.notify_checkpoint_complete(2)
    assert len(writer.made_on) == 2
    assert all(name.startswith("upload") for name in writer.made_on)
    assert writer.log == [("commit", ["1:a"]), ("commit", ["2:b"])]


def test_a_failing_deferred_prepare_names_the_operator_every_time(start: Any) -> None:
    writer = Writer(late=True)
    writer.error = OSError("no space left")
    setup = start(sink(writer), subtask=3, parallelism=4)
    write(setup, "a")
    first, second = setup.snapshot(1), setup.snapshot(2)
    for snapshot in (first, second):
        with pytest.raises(
            OperatorError, match=r"'my operator', subtask 3: .*checkpoint 1 .*no space left"
        ):
            snapshot.tables()
    assert writer.made_on == [writer.made_on[0]]
    assert writer.log == []


def test_nothing_is_committed_by_finish(start: Any, writer: Writer) -> None:
    setup = start(sink(writer))
    write(setup, "a")
    assert not writer.finished
    run_to_end(setup.operator.finish())
    assert writer.finished
    assert writer.log == []
    setup.snapshot(9).tables()
    setup.operator.notify_checkpoint_complete(9)
    assert writer.log == [("commit", ["9:a"])]


def test_a_failed_commit_stays_pending(start: Any, writer: Writer) -> None:
    setup = start(sink(writer))
    write(setup, "a")
    setup.snapshot(1).tables()
    real, failures = writer.commit, [OSError("later")]

    def commit(committables: Any) -> None:
        if failures:
            raise failures.pop()
        real(committables)

    writer.commit = commit  # type: ignore[method-assign]
    with pytest.raises(OperatorError, match="later") as failed:
        setup.operator.notify_checkpoint_complete(1)
    assert failed.value.recoverable, "nobody knows whether another writer could"
    setup.operator.notify_checkpoint_complete(1)
    assert writer.log == [("commit", ["1:a"])]


def test_close_never_raises_and_closes_once(start: Any, writer: Writer) -> None:
    setup = start(sink(writer))
    setup.operator.close()
    setup.operator.close()
    assert writer.log == [("close",)]


def test_a_writer_is_tended_now_and_then_whatever_is_written(start: Any) -> None:
    #  tended every 100 ms: woken at 100, early at 140, and late at 350
    class Tended(Writer):
        tends_every_ms = 100

        def tend(self) -> None:
            self.log.append("tend")

    writer = Tended()
    setup = start(sink(writer))
    began = setup.clock.now_ms()
    for delta, tended in ((99, 0), (1, 1), (40, 1), (210, 2), (100, 3)):
        setup.tick(delta)
        assert len(writer.log) == tended
    assert [at - began for at in setup.wakes] == [100, 200, 450, 550]
    untended = start(sink(Writer()))
    untended.tick(1000)
    assert untended.wakes == []


def test_a_write_that_has_to_wait_is_work_in_steps(start: Any) -> None:
    class Slow(Writer):
        def write(self, batch: Any) -> Any:
            for record in batch.rows():
                yield
                self.buffer.append(record)

    writer = Slow()
    setup = start(sink(writer))
    work = setup.operator.process(ObjectBatch(["a", "b"]))
    next(work)
    assert writer.buffer == []
    next(work)
    assert writer.buffer == ["a"]
    run_to_end(work)
    setup.snapshot(1).tables()
    setup.operator.notify_checkpoint_complete(1)
    assert writer.log == [("commit", ["1:a", "1:b"])]


class Patient(Writer):
    """Commits and recovers in steps."""

    def commit(self, committables: Any) -> Any:
        self.log.append(("begin", list(committables)))
        yield
        yield
        self.log.append(("commit", list(committables)))

    def recover(self, committables: Any) -> Any:
        yield
        self.log.append(("recover", list(committables)))


def test_a_commit_that_has_to_wait_is_work_in_steps(start: Any) -> None:
    #  1 and 2 prepared; 1 completes, its commit waits, 2 completes; a third comes in between
    writer = Patient()
    setup = start(sink(writer))
    for n, value in enumerate("ab", start=1):
        write(setup, value)
        setup.snapshot(n).tables()
    work = setup.operator.notify_checkpoint_complete(1)
    assert writer.log == [("begin", ["1:a"])]
    assert setup.operator.notify_checkpoint_complete(2) is None
    tables = setup.snapshot(3).tables()
    run_to_end(work)
    assert writer.log[1:] == [("commit", ["1:a"]), ("begin", ["2:b"]), ("commit", ["2:b"])]
    assert setup.out.counts["committed"] == 2
    run_to_end(setup.operator.notify_checkpoint_complete(3))
    write(setup, "d")
    setup.snapshot(4).tables()
    run_to_end(setup.operator.notify_checkpoint_complete(4))
    assert writer.log[-1] == ("commit", ["4:d"])
    other = Patient()
    start(sink(other), tables=tables, attempt=1)
    assert other.log == [("recover", ["1:a", "2:b"])], "what was being committed is not forgotten"
