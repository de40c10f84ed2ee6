"""How a coordinator ends: whatever fails then, who waits for the job is told of its end. And what
the next one knows of what it has promised."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from strom.core.ids import OperatorId
from strom.core.job_status import JobStatus
from strom.engine.hosts import coordinator_life
from strom.engine.hosts.coordinator_inbox import Cancel
from strom.engine.hosts.job_outcome import JobOutcome
from strom.engine.hosts.job_record import MOST_DEATHS, Begun, JobRecord, Term
from strom.engine.hosts.ray_coordinator import JobCoordinator

OUTCOME = JobOutcome("a1", "one", JobStatus.FINISHED, None, 0.0, 0, 0, {})


def broken(*arguments: Any) -> None:
    raise OSError("the disk is full")


@pytest.mark.parametrize("what", ["driver", "prometheus", "reporter", "cluster", "log"])
def test_what_cannot_be_released_keeps_no_end_from_being_told(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator: Any = JobCoordinator("a1")
    closed: list[str] = []

    def part(name: str) -> SimpleNamespace:
        return SimpleNamespace(
            close=broken if name == what else lambda: closed.append(name),
            start=lambda: None,
            ended=True,
            outcome=lambda: OUTCOME,
        )

    names = ("driver", "prometheus", "reporter", "cluster")
    for name in names:
        setattr(coordinator, f"_{name}", part(name))
    coordinator._log = None
    if what == "log":
        monkeypatch.setattr(coordinator_life, "close_log", broken)
        with pytest.raises(OSError, match="full"):
            coordinator._run()
    else:
        coordinator._run()
    assert closed == [name for name in names if name != what]

    async def asked() -> None:
        coordinator._started.set()
        assert await coordinator.outcome(0.0) == OUTCOME
        assert (await coordinator.published(OperatorId("o"), 0, 0.0)).closed

    asyncio.run(asked())


class Next:
    """The coordinator that comes after one of job "a1", which left a record."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = str(place)
        self.record = JobRecord(self.place, "a1")
        self.record.begin(Begun(b""))
        self.said: list[Any] = []
        self.made: list[Any] = []
        here = SimpleNamespace(current_actor=None)
        fake = SimpleNamespace(
            is_initialized=lambda: False, get_runtime_context=lambda: here, kill=print
        )
        monkeypatch.setattr(coordinator_life, "ray", fake)
        monkeypatch.setattr(coordinator_life, "_unpickled", lambda begun: None)
        monkeypatch.setattr(JobCoordinator, "_begin", self._begin)

    @staticmethod
    async def _begin(
        one: Any, begun: Any, graph: Any, takes_over: bool, outcome: JobOutcome | None = None
    ) -> None:
        one._started.set()
        if outcome is not None:
            await one._end_with(outcome)

    def make(self) -> Any:
        self.made.append(JobCoordinator("a1", self.place, None, self.said.append))
        return self.made[-1]

    def comes(self) -> Any:
        coordinator = self.make()
        asyncio.run(coordinator._come_back())
        return coordinator


@pytest.fixture
def next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Next]:
    known = Next(tmp_path, monkeypatch)
    yield known
    for coordinator in known.made:
        coordinator._records._writer.shutdown()


def test_what_was_promised_holds_for_the_next(next_one: Next) -> None:
    """Whoever was told that the job is cancelled waits for its end; who let it go is gone."""
    first = next_one.make()
    first._term.now = Term()
    first._started.set()
    asyncio.run(first.cancel())
    assert next_one.record.read()[1].cancelled
    asyncio.run(first.detach())
    second = next_one.comes()
    assert isinstance(second._inbox.get_nowait(), Cancel)
    assert not second._attached
    assert next_one.record.read()[1].number == 1


def test_a_detachment_while_the_job_begins_is_in_its_record(next_one: Next) -> None:
    coordinator = next_one.make()

    async def begins() -> None:
        start = asyncio.ensure_future(coordinator.start(Begun(b"")))
        await asyncio.gather(start, coordinator.detach())

    asyncio.run(begins())
    term = next_one.record.read()[1]
    assert (term.number, term.attached, term.cancelled, len(term.since_ms)) == (0, False, False, 1)


def test_one_that_gives_up_does_so_for_all_that_come(next_one: Next) -> None:
    next_one.record.write(Term(since_ms=[2**60] * MOST_DEATHS))
    assert next_one.comes()._outcome.status is JobStatus.FAILED
    next_one.record.write(Term())
    assert next_one.comes()._outcome.status is JobStatus.FAILED
    assert [end.status for end in next_one.said] == [JobStatus.FAILED, JobStatus.FAILED]


def test_the_end_of_a_run_before_is_not_that_of_this_one(next_one: Next) -> None:
    next_one.record.end(OUTCOME)
    assert next_one.comes()._outcome == OUTCOME
    assert next_one.said == [OUTCOME]
    next_one.record.begin(Begun(b""))
    assert next_one.record.outcome() is None
