"""The sink operator: what is prepared, kept, committed and recovered, and when."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from strom.api.specs.records import SinkSpec
from strom.core.batch import ObjectBatch
from strom.core.errors import OperatorError
from strom.operators.io.sink import SinkOperator


class Writer:
    """Prepares one committable per record; `late` prepares beside the task's thread."""

    def __init__(self, late: bool = False) -> None:
        self.late = late
        self.log: list[Any] = []
        self.buffer: list[Any] = []
        self.made_on: list[str] = []
        self.error: Exception | None = None

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


def sink(writer: Writer) -> SinkOperator:
    return SinkOperator(SinkSpec(SimpleNamespace(create_writer=lambda context: writer)))


def write(setup: Any, *values: Any) -> None:
    setup.operator.process(ObjectBatch(list(values)))


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
    setup.operator.finish()
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
    with pytest.raises(OSError, match="later"):
        setup.operator.notify_checkpoint_complete(1)
    setup.operator.notify_checkpoint_complete(1)
    assert writer.log == [("commit", ["1:a"])]


def test_close_never_raises_and_closes_once(start: Any, writer: Writer) -> None:
    setup = start(sink(writer))
    setup.operator.close()
    setup.operator.close()
    assert writer.log == [("close",)]
