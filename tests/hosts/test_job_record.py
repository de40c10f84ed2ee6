"""What a coordinator leaves for the next one."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from strom.core.errors import CheckpointError, ConfigurationError, MissingCheckpointError
from strom.core.job_status import JobStatus
from strom.engine.coordinator.handover import Handover
from strom.engine.hosts import job_record, record_keeper
from strom.engine.hosts.job_outcome import JobOutcome
from strom.engine.hosts.job_record import DEATHS_MS, MOST_DEATHS, Begun, JobRecord, Term
from strom.engine.hosts.kept_term import KeptTerm
from strom.engine.hosts.record_keeper import Left, RecordKeeper

BEGUN = Begun(b"graph", first_attempt=7, token="t")
OUTCOME = JobOutcome("a1", "one", JobStatus.FINISHED, None, 17.0, 3, 1, {})


@pytest.mark.parametrize("kept", ["in the storage", "on the machine"])
def test_what_is_written_is_read_until_it_is_removed(
    kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_record, "_local_root", lambda: tmp_path / "machine")
    root = str(tmp_path / "root") if kept == "in the storage" else None
    record = JobRecord(root, "a1")
    with pytest.raises(MissingCheckpointError):
        record.read()
    record.begin(BEGUN)
    assert JobRecord(root, "a1").read() == (BEGUN, Term())
    left = Handover({"sums": 3}, {"sums": 2}, failed=[2], restarts=3, rescales=4)
    term = Term(2, False, 9, (5, 6, 7), left=left)
    record.write(term.next(8))
    assert JobRecord(root, "a1").read() == (
        BEGUN,
        Term(3, False, 9, [5, 6, 7, 8], left=left),
    )
    assert record.outcome() is None
    record.end(OUTCOME, 3)
    assert JobRecord(root, "a1").outcome() == (OUTCOME, 3)
    record.put_results("results-1-0-2-1", b"x")
    assert record.all_results() == {"results-1-0-2-1": b"x"}
    record.begin(BEGUN)  # another run of the same job: it may go on from there
    assert (record.outcome(), set(record.all_results())) == (None, {"results-1-0-2-1"})
    record.remove()
    record.remove()
    left = [path for path in tmp_path.rglob("*") if path.is_file() or path.name == ".coordinators"]
    assert left == []


def test_nothing_is_asked_of_a_storage_that_is_not_needed() -> None:
    record = JobRecord("no-such-protocol://x", "a1")
    with pytest.raises(ConfigurationError, match="no-such-protocol"):
        record.begin(BEGUN)


def test_what_dies_again_and_again_is_given_up() -> None:
    term = Term()
    for n in range(MOST_DEATHS):
        assert not term.dies_too_often()
        term = term.next(n * 1000)
    assert term.dies_too_often()
    assert not term.next(DEATHS_MS * 2).dies_too_often()


class Away(JobRecord):
    """Of a storage that can be read at the third time only."""

    times = 0

    def read(self) -> tuple[Begun, Term]:
        self.times += 1
        if self.times < 3:
            raise CheckpointError("away")
        return BEGUN, Term()

    def write(self, term: Term) -> None:
        raise CheckpointError("full")


class AwayForAWhile(JobRecord):
    """Its first `left` writes and looks fail."""

    left = 5

    def _fail(self) -> None:
        if self.left:
            self.left -= 1
            raise CheckpointError("away")

    def begin(self, begun: Begun) -> None:
        self._fail()
        super().begin(begun)

    def write(self, term: Term) -> None:
        self._fail()
        super().write(term)

    def term(self) -> Term:
        self._fail()
        return super().term()


def test_what_a_storage_did_not_take_is_written_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the next coordinator would have a number that another had, or a width of before."""
    monkeypatch.setattr(record_keeper, "PAUSE_S", 0.001)
    record = AwayForAWhile(str(tmp_path), "a1")
    keeper = RecordKeeper(record, "a1")

    async def ask() -> None:
        written = keeper.begin(BEGUN, Term())
        changed = keeper.write(Term(1, left=Handover({"sums": 3})))
        await asyncio.wrap_future(written)
        await asyncio.wrap_future(changed)
        left = await keeper.read()
        assert left is not None
        assert (left.term.number, left.term.left.now) == (1, {"sums": 3})
        record.left = 2
        keeper.end(OUTCOME)
        assert record.outcome() == (OUTCOME, None)
        await keeper.remove()

    asyncio.run(ask())
    assert [line.levelname for line in caplog.records] == ["WARNING"] * 2


def test_who_was_held_up_does_not_set_the_term_back(tmp_path: Path) -> None:
    """Nor says how the job ended. Of another run is who began it once more."""
    record, kept = JobRecord(str(tmp_path), "a1"), Handover({"sums": 3}, failed=[2])

    async def ask() -> None:
        for newer in (Term(2, attempt=9, left=kept), Term(0, run=1_000, left=kept)):
            record.begin(BEGUN)
            late = RecordKeeper(record, "a1")
            await asyncio.wrap_future(RecordKeeper(record, "a1").write(newer))
            await asyncio.wrap_future(late.write(Term(1, attempt=5)))
            late.end(OUTCOME)
            await late.remove()
            assert (record.term(), record.outcome()) == (replace(newer, since_ms=[]), None)

    asyncio.run(ask())


def test_an_attempt_is_written_down_with_the_failures_before_it(tmp_path: Path) -> None:
    async def note() -> None:
        term = KeptTerm(RecordKeeper(JobRecord(str(tmp_path), "a1"), "a1"))
        await asyncio.wrap_future(term.begin(BEGUN, True, 1))
        await asyncio.wrap_future(term.change(left=Handover({"sums": 3}, rescales=4)))
        term.note_attempt(9, [2], 3)
        await term.promise()

    asyncio.run(note())
    written = JobRecord(str(tmp_path), "a1").term()
    assert (written.attempt, written.left) == (
        9,
        Handover({"sums": 3}, failed=[2], restarts=3, rescales=4),
    )


def test_a_storage_that_is_away_is_waited_for_and_one_that_is_full_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(record_keeper, "PAUSE_S", 0.001)
    monkeypatch.setattr(record_keeper, "WRITE_S", 0.05)
    keeper = RecordKeeper(Away(str(tmp_path), "a1"), "a1")

    async def ask() -> None:
        assert await keeper.read() == Left(BEGUN, Term(), None, None)
        with caplog.at_level(logging.WARNING):
            await asyncio.wrap_future(keeper.begin(BEGUN, Term()))
            keeper.write(Term())
        await keeper.remove()

    asyncio.run(ask())
    assert [line.levelname for line in caplog.records] == ["WARNING"]
    assert "would go on from if it died cannot be written down" in caplog.text


def test_there_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    keeper = RecordKeeper(JobRecord(str(tmp_path), "a1"), "a1")

    async def ask() -> None:
        assert await keeper.read() is None
        JobRecord(str(tmp_path), "a1").begin(BEGUN)
        (tmp_path / ".coordinators" / "a1" / "term.json").write_text("{")
        assert await keeper.read() is None
        await keeper.remove()

    asyncio.run(ask())
    assert not list(tmp_path.rglob("term.json"))
