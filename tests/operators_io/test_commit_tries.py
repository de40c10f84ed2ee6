"""Commits that fail: tried again in order while the stream goes on, or the end of the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from strom import CommitError, JobConfig, RetryableCommitError
from strom.api.connectors.base import Sink, SinkWriter
from strom.api.specs.records import SinkSpec
from strom.core.commit_config import CommitConfig
from strom.core.config import CheckpointConfig
from strom.core.errors import ConnectorError, FencedError, OperatorError
from strom.operators.io.commit_tries import CommitTries, Verdict, verdict
from strom.operators.io.sink import SinkOperator
from strom.testing.operator_harness import OperatorHarness


class Failing(SinkWriter):
    """Publishes records; each call raises the next of `errors`, None: none. An error that is
    raised in the middle: behind `part` of the committables."""

    def __init__(self, *errors: Exception | None, part: int | None = None) -> None:
        self.errors = list(errors)
        self.part = part
        self.buffer: list[Any] = []
        self.calls: list[tuple[str, list[Any]]] = []
        self.public: list[Any] = []

    def write(self, batch: Any) -> None:
        self.buffer += batch.rows()

    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        records, self.buffer = self.buffer, []
        return [(checkpoint_id, record) for record in records]

    def commit(self, committables: Sequence[Any]) -> Iterator[None] | None:
        return self._publish("commit", committables)

    def recover(self, committables: Sequence[Any]) -> Iterator[None] | None:
        return self._publish("recover", committables)

    def _publish(self, how: str, committables: Sequence[Any]) -> None:
        self.calls.append((how, list(committables)))
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            self.published = self.part
            raise error
        self.public += [one for one in committables if one not in self.public]


class Stepping(Failing):
    """The same, and raises behind its first step."""

    def _publish(self, how: str, committables: Sequence[Any]) -> Any:
        def steps() -> Iterator[None]:
            yield
            Failing._publish(self, how, committables)

        return steps()


class Made(Sink):
    def __init__(self, writer: SinkWriter) -> None:
        self.writer = writer

    def create_writer(self, context: Any) -> SinkWriter:
        return self.writer


Start = Callable[..., OperatorHarness]


def run(writer: SinkWriter, commit: CommitConfig | None = None, **more: Any) -> OperatorHarness:
    config = JobConfig(commit=commit or CommitConfig(), **more.pop("job", {}))
    return OperatorHarness(SinkOperator(SinkSpec(Made(writer))), config=config, **more)


def complete(harness: OperatorHarness, checkpoint_id: int) -> None:
    harness._call(lambda: harness.operator.notify_checkpoint_complete(checkpoint_id))


def checkpoint(harness: OperatorHarness, *records: Any) -> Any:
    """Write the records and take the next one."""
    if records:
        harness.push(list(records))
    return harness.snapshot()


def test_which_errors_pass() -> None:
    wrapped = ConnectorError("cannot publish")
    wrapped.__cause__ = ConnectionResetError()
    denied = ConnectorError("cannot publish")
    denied.__cause__ = PermissionError()
    for error, expected in (
        (RetryableCommitError("busy"), Verdict.PASSES),
        (wrapped, Verdict.PASSES),
        (TimeoutError(), Verdict.PASSES),
        (CommitError("gone"), Verdict.FINAL),
        (FencedError("another"), Verdict.FINAL),
        (denied, Verdict.FINAL),
        (FileNotFoundError(), Verdict.FINAL),
        (ConnectorError("what?"), Verdict.UNKNOWN),
        (ValueError(), Verdict.UNKNOWN),
    ):
        assert verdict(error) is expected, error


def test_pauses_double_and_are_drawn_and_bounded() -> None:
    config = CommitConfig(retries=40, longest_delay=timedelta(seconds=2))
    tries, now, pauses = CommitTries(config, "seed"), 0, []
    while (at := tries.after(TimeoutError(), now)) is not None and len(pauses) < 8:
        pauses.append(at - now)
        now = at
    wholes = [200, 400, 800, 1600, 2000, 2000, 2000, 2000]
    assert all(whole / 2 <= pause <= whole for pause, whole in zip(pauses, wholes, strict=True))
    assert len({pause / whole for pause, whole in zip(pauses, wholes, strict=True)}) > 4
    other = CommitTries(config, "another")
    assert other.after(TimeoutError(), 0) != pauses[0], "subtasks do not come back together"
    short = CommitTries(CommitConfig(timeout=timedelta(seconds=1)), "", draw=lambda: 1.0)
    assert [short.after(TimeoutError(), now) for now in (0, 200, 600)] == [200, 600, None]
    assert CommitTries(CommitConfig(retries=0), "").after(TimeoutError(), 0) is None


@pytest.mark.parametrize("kind", [Failing, Stepping])
def test_it_is_tried_again_in_order_while_the_stream_goes_on(kind: type[Failing]) -> None:
    #  a |1 b |2 c |3     1 completes, fails twice; 2 and 3 complete and wait behind it
    writer = kind(TimeoutError(), RetryableCommitError("busy"))
    harness = run(writer)
    checkpoint(harness, "a")
    complete(harness, 1)
    assert [call for call, _ in writer.calls] == ["commit"]
    checkpoint(harness, "b")
    complete(harness, 2)
    restored = checkpoint(harness, "c")
    complete(harness, 3)
    assert writer.public == []
    assert len(writer.calls) == 1, "all waits behind the first"
    assert harness.operator.holds_end
    harness.advance_processing_time(99)
    assert len(writer.calls) == 1, "not before its pause is over"
    harness.advance_processing_time(200)
    assert len(writer.calls) == 2
    harness.advance_processing_time(10_000)
    assert writer.public == [(1, "a"), (2, "b"), (3, "c")]
    assert [len(c) for _, c in writer.calls] == [1, 1, 1, 1, 1]
    assert not harness.operator.holds_end
    counts = harness.metrics.counts
    assert (counts["successfulCommittables"], counts["retriedCommittables"]) == (3, 2)
    assert "failedCommittables" not in counts
    assert harness.metrics.gauges["pendingCommittables"] == 0
    other = Failing()
    run(other, restored=restored, attempt=1)
    assert other.calls == [("recover", [(1, "a"), (2, "b"), (3, "c")])], "state had them all"


@pytest.mark.parametrize("kind", [Failing, Stepping])
def test_records_wait_once_too_many_checkpoints_do(kind: type[Failing]) -> None:
    """Those that hold nothing do not count; what is held up is written behind the commits."""
    writer = kind(*[TimeoutError()] * 3)
    harness = run(writer, CommitConfig(uncommitted=2))
    gauges = harness.metrics.gauges
    for number, records in enumerate((["a"], [], ["b"]), 1):
        checkpoint(harness, *records)
        complete(harness, number)
    assert gauges["uncommittedCheckpoints"] == 2
    assert len(writer.calls) == 1
    harness.push(["c"])
    assert writer.buffer == []
    assert not harness.settled
    assert gauges["heldUpByCommit"] == 1
    complete(harness, 4)  # of which nothing was prepared here
    harness.advance_processing_time(10_000)
    assert harness.settled
    assert writer.public == [(1, "a"), (3, "b")]
    assert writer.buffer == ["c"]
    assert gauges["heldUpByCommit"] == gauges["uncommittedCheckpoints"] == 0
    assert harness.metrics.counts["retriedCommittables"] == 3


def test_what_is_held_up_in_vain_fails_as_ever() -> None:
    writer = Failing(*[TimeoutError("no answer")] * 9)
    harness = run(writer, CommitConfig(retries=2, uncommitted=1))
    checkpoint(harness, "a")
    complete(harness, 1)
    harness.push(["b"])
    with pytest.raises(OperatorError, match="commit of checkpoint 1 failed 3 times"):
        harness.advance_processing_time(60_000)
    assert writer.buffer == []


def test_a_recover_holds_up_all_until_it_is_done() -> None:
    first = Failing()
    harness = run(first)
    restored = checkpoint(harness, "a")
    writer = Stepping(TimeoutError(), TimeoutError())
    again = run(writer, restored=restored, attempt=1)
    again.push(["b"])
    assert writer.buffer == []
    assert not again.settled
    again.advance_processing_time(again.clock.now_ms() + 5_000)
    assert writer.public == [(1, "a")]
    assert again.settled
    assert writer.buffer == ["b"]
    assert [call for call, _ in writer.calls] == ["recover"] * 3


def test_it_can_be_closed_in_the_middle_of_a_pause() -> None:
    writer = Failing(TimeoutError())
    harness = run(writer)
    checkpoint(harness, "a")
    complete(harness, 1)
    harness.close()
    assert len(writer.calls) == 1
    assert writer.public == []


def test_what_cannot_be_done_says_what_was_published() -> None:
    #  1 committed; 2 fails for good behind one of two; 3 is prepared
    writer = Failing(None, CommitError("the table is gone"), part=1)
    harness = run(writer, job={"checkpoint": CheckpointConfig(storage="memory://c")})
    checkpoint(harness, "a")
    complete(harness, 1)
    checkpoint(harness, "b", "c")
    checkpoint(harness, "d")
    with pytest.raises(OperatorError) as failed:
        complete(harness, 2)
    assert not failed.value.recoverable
    assert str(failed.value).partition("\n")[0] == (
        "operator 'operator', subtask 0: the commit of checkpoint 2 failed: "
        f"CommitError: the table is gone{_place(failed.value)}. "
        "Published: all up to checkpoint 1 (1 committable since this attempt began) and 1 of 2 "
        "committables of checkpoint 2. Not published: 1 of 2 committables of checkpoint 2, and "
        "what was prepared since (checkpoints 3). Mend the cause, and start the job again from "
        "checkpoint 2: it publishes what is missing first, and nothing twice"
    )
    assert harness.metrics.counts["failedCommittables"] == 2


def test_who_is_fenced_says_so_also_behind_an_error_of_the_sink() -> None:
    wrapped = ConnectorError("cannot publish")
    wrapped.__cause__ = FencedError("another")
    for error, fenced in ((FencedError("another"), True), (wrapped, True), (CommitError(), False)):
        harness = run(Failing(error))
        checkpoint(harness, "a")
        with pytest.raises(OperatorError) as failed:
            complete(harness, 1)
        assert (failed.value.fenced, failed.value.recoverable) == (fenced, False), error


def _place(error: OperatorError) -> str:
    """Where the test's own line raised it."""
    text = str(error)
    return text[text.index("is gone") + 7 : text.index(". Published")]


def test_tries_that_are_used_up_fail_the_job() -> None:
    writer = Failing(*[TimeoutError("no answer")] * 9)
    harness = run(writer, CommitConfig(retries=2))
    checkpoint(harness, "a")
    complete(harness, 1)
    with pytest.raises(OperatorError) as failed:
        harness.advance_processing_time(60_000)
    text = str(failed.value)
    assert not failed.value.recoverable
    assert "the commit of checkpoint 1 failed 3 times in 0." in text
    assert "TimeoutError: no answer" in text
    assert "perhaps some of 1 committable of checkpoint 1, the sink does not say" in text
    assert "(or raise sink.committer.retries)" in text
    assert "in memory, and lost with it" in text
    assert len(writer.calls) == 3
