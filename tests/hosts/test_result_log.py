"""What a job has published, written down by one coordinator and read by the next."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from strom.checkpoint.manifest import Manifest
from strom.core.errors import CheckpointError, CorruptCheckpointError
from strom.core.ids import CheckpointId, OperatorId
from strom.core.job_status import JobStatus
from strom.engine.exchange.pickling import Parcel, opened
from strom.engine.hosts.job_outcome import JobOutcome
from strom.engine.hosts.job_record import Begun, JobRecord, Term
from strom.engine.hosts.record_keeper import RecordKeeper
from strom.engine.hosts.result_files import (
    END,
    Coordinator,
    Place,
    Result,
    ResultFile,
    Share,
    decode,
    encode,
    file_name,
    named,
)
from strom.engine.hosts.result_log import MOST_AT_ONCE, ResultLog, left_by

SINK = OperatorId("sink")
OUTCOME = JobOutcome("a1", "one", JobStatus.FINISHED, None, 17.0, 3, 1, {})


class Folder:
    """A job's record. `fails`: once, with this."""

    def __init__(self) -> None:
        self.files: dict[str, bytes | CorruptCheckpointError] = {}
        self.fails: CheckpointError | None = None

    def put_results(self, name: str, data: bytes) -> None:
        error, self.fails = self.fails, None
        if error is not None:
            raise error
        assert name not in self.files
        self.files[name] = data

    def all_results(self) -> Mapping[str, bytes | CorruptCheckpointError]:
        return dict(self.files)

    def get_results(self, name: str) -> bytes:
        raise AssertionError("nothing is put together here")

    def remove_results(self, names: Sequence[str]) -> None:
        raise AssertionError("nothing is put together here")


@pytest.fixture
def folder() -> Folder:
    return Folder()


def manifest(n: int, epoch: int) -> Manifest:
    return Manifest("job", "job", CheckpointId(n), 0, (), (), epoch=epoch)


def next_log(
    folder: Folder, epoch: int, number: int, start: Manifest | None, rejected: bool = False
) -> tuple[ResultLog, list[Any]]:
    """Of a coordinator that goes on from there, and what it begins with."""
    log = ResultLog(folder, number)
    log.find(epoch, start, rejected)
    before = log.begin(0 if start is None else int(start.checkpoint_id))
    return log, [opened(value, "value") for _, _, value in before]


def hear(log: ResultLog, *values: str) -> None:
    for value in values:
        log.hear(SINK, f"key of {value}", value)


# --- files ----------------------------------------------------------------------------------------


def test_a_file_is_read_as_it_was_written() -> None:
    results = (Result(SINK, "a", b"1"), Result(OperatorId("other"), "ключ", b""))
    shares = {Coordinator(1, 0): Share(3, 0), Coordinator(1, 1): Share(5)}
    for file in (ResultFile(0, {}, ()), ResultFile(7, shares, results, 4, "why")):
        assert decode("f", encode(replace(file, results=list(file.results)))) == replace(
            file, results=list(file.results)
        )
    for who, n in ((Coordinator(3, 1_000_002), 17), (Coordinator(1, 0), END)):
        assert named(file_name(who, Place(n, 5))) == (who, Place(n, 5))
    assert named("results-1-0-2-5.0af3.tmp") is None
    assert named("term.json") is None


def test_whatever_byte_is_altered_or_missing_it_is_said() -> None:
    data = encode(ResultFile(0, {}, [Result(SINK, "a", b"value")]))
    for at in range(len(data)):
        torn = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        for broken in (torn, data[:at]):
            with pytest.raises(CorruptCheckpointError, match="results-1-0-1 is torn"):
                decode("results-1-0-1", broken)


# --- from one coordinator to the next -------------------------------------------------------------


def test_the_next_one_has_all_that_its_checkpoint_does_not(folder: Folder) -> None:
    """Values as tasks send them, plain or closed; what comes again is known by its key."""
    first, before = next_log(folder, 1, 0, None)
    assert before == []
    assert first.hear(SINK, "a", [1, "plain"])
    assert first.hear(SINK, "b", Parcel(pickle.dumps({"closed"})))
    first.write(3)
    first.write(4)  # nothing was published since
    hear(first, "c")
    first.write(5)
    hear(first, "held by 5")
    assert sorted(folder.files) == ["results-1-0-3-2", "results-1-0-5-3"]
    second, before = next_log(folder, 2, 1, manifest(5, 1))
    assert before == [[1, "plain"], {"closed"}, "c"]
    assert second.ways_back == [(0, 0), (1, 5)]
    assert not second.hear(SINK, "b", "again")
    hear(second, "held by 5")
    second.write(6)
    _, before = next_log(folder, 3, 2, manifest(6, 2))
    assert before == [[1, "plain"], {"closed"}, "c", "held by 5"]


def test_what_was_written_for_a_checkpoint_that_never_was_is_written_again(folder: Folder) -> None:
    """Whether the write failed, or hung, and came through later."""
    log, _ = next_log(folder, 1, 0, None)
    hear(log, "a")
    folder.fails = CheckpointError("the disk is full")
    with pytest.raises(CheckpointError, match="full"):
        log.write(1)
    hear(log, "b")
    log.write(2)
    hung = encode(ResultFile(0, {}, [Result(SINK, "key of a", pickle.dumps("a"))], 0))
    hear(log, "c")
    log.write(3)
    for files in (folder.files, {**folder.files, "results-1-0-1-1": hung}):
        found = left_by(files, 3, 1)
        assert [pickle.loads(one.data) for one in found.results] == ["a", "b", "c"]


def test_the_later_of_two_checkpoints_may_be_published_first(folder: Folder) -> None:
    """Whoever goes on from either has all; and a publication that is tried again takes nothing
    away."""
    log, _ = next_log(folder, 1, 0, None)
    hear(log, "a")
    log.write(2)
    hear(log, "b")
    log.write(1)
    hear(log, "c")
    log.write(1)
    log.write(2)
    for n in (1, 2, END):
        found = left_by(folder.files, n, 1)
        assert [pickle.loads(one.data) for one in found.results] == ["a", "b", "c"]
    for n in range(3, 3 + MOST_AT_ONCE):
        hear(log, str(n))
        log.write(n)
    with pytest.raises(CheckpointError, match="checkpoint 1 comes too late"):
        log.write(1)
    log.write(END)
    assert len(left_by(folder.files, END).results) == log.count == 3 + MOST_AT_ONCE


def test_a_fenced_one_adds_nothing_to_what_its_successor_has_written(folder: Folder) -> None:
    """What it heard before it was fenced is held by the checkpoint that the other started from."""
    old, _ = next_log(folder, 1, 0, None)
    hear(old, "a")
    old.write(3)
    new, before = next_log(folder, 2, 1, manifest(3, 1))
    assert before == ["a"]
    hear(old, "b")
    old.write(4)  # and then it finds that it is fenced
    hear(new, "b", "c")
    new.write(4)
    hear(old, "d")
    old.write(5)
    _, before = next_log(folder, 3, 2, manifest(4, 2))
    assert before == ["a", "b", "c"]


def test_who_completed_no_checkpoint_is_passed_over(folder: Folder) -> None:
    first, _ = next_log(folder, 1, 0, None)
    hear(first, "a")
    first.write(3)
    second, _ = next_log(folder, 2, 1, manifest(3, 1))
    hear(second, "held by 3")
    second.write(4)  # it died then
    _, before = next_log(folder, 3, 2, manifest(3, 1))
    assert before == ["a"]


def test_with_an_older_checkpoint_the_log_goes_back_too(folder: Folder) -> None:
    first, _ = next_log(folder, 1, 0, None)
    for n in (1, 2, 3):
        hear(first, f"of {n}")
        first.write(n)
    second, before = next_log(folder, 2, 1, manifest(2, 1), rejected=True)
    assert before == ["of 1", "of 2"]
    hear(second, "another of 3")
    second.write(4)
    _, before = next_log(folder, 3, 2, manifest(4, 2))
    assert before == ["of 1", "of 2", "another of 3"]
    _, before = next_log(folder, 3, 2, None)  # and to the beginning
    assert before == []


def test_tasks_know_the_checkpoint_that_lay_in_memory(folder: Folder) -> None:
    """It went with the coordinator, and its epoch; the next one begins with the same."""
    first, _ = next_log(folder, 1, 0, None)
    hear(first, "a")
    first.write(3)
    hear(first, "b")
    first.write(4)
    second = ResultLog(folder, 1)
    second.find(1, None, rejected=False)
    found = [opened(value, "value") for _, _, value in second.begin(4, ran_on=True)]
    assert (found, second.ways_back) == (["a", "b"], [(0, 0)])


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        ("torn", "results-1-0-2-2 is torn"),
        ("unreadable", "results-1-0-2-2: the file is missing"),
        ("gone", "results-1-0-3-3 goes on from 2 results, of which 1 are there"),
        ("the last is gone", "files with 1 of the 3 results that coordinator 1-0 wrote down are"),
    ],
)
def test_what_is_lost_is_said_to_all_that_come(folder: Folder, harm: str, why: str) -> None:
    """The job goes on; no value is wrong."""
    first, _ = next_log(folder, 1, 0, None)
    for n in (1, 2, 3):
        hear(first, f"of {n}")
        first.write(n)
    start = manifest(3, 1)
    if harm == "the last is gone":
        second, _ = next_log(folder, 2, 1, start)
        second.write(4)
        start = manifest(4, 2)
        del folder.files["results-1-0-3-3"]
    elif harm == "gone":
        del folder.files["results-1-0-2-2"]
    else:
        missing = CorruptCheckpointError("results-1-0-2-2: the file is missing")
        folder.files["results-1-0-2-2"] = b"xx" if harm == "torn" else missing
    third, before = next_log(folder, 3, 2, start)
    assert before == []
    assert third.lost is not None
    assert why in third.lost
    hear(third, "more")
    third.write(5)
    fourth, before = next_log(folder, 4, 3, manifest(5, 3))
    assert (before, fourth.lost) == (["more"], third.lost)


# --- the end --------------------------------------------------------------------------------------


class Unwritable(JobRecord):
    def put_results(self, name: str, data: bytes) -> None:
        raise CheckpointError("the disk is full")


@pytest.mark.parametrize("whole", [True, False])
def test_the_rest_is_there_when_the_job_is_over(tmp_path: Path, whole: bool) -> None:
    """Or it is said that it is not."""
    record = (JobRecord if whole else Unwritable)(str(tmp_path), "a1")
    keeper, after = RecordKeeper(record, "a1"), RecordKeeper(record, "a1")
    log = keeper.result_log(0, whole=True)
    log.find(1, None, rejected=False)
    log.begin(0)
    hear(log, "a", "b")

    async def ask() -> None:
        await asyncio.wrap_future(keeper.begin(Begun(b""), Term()))
        keeper.end(OUTCOME, log)
        left = await after.read()
        assert left is not None
        assert (left.outcome, left.published) == (OUTCOME, 2)
        found = await after.results(left.published)
        values = [pickle.loads(one.data) for one in found.results]
        if whole:
            assert (values, found.lost) == (["a", "b"], None)
        else:
            why = "2 of its 2 results were not written down when it ended"
            assert (values, found.lost) == ([], why)
        await after.remove()
        await keeper.remove()

    asyncio.run(ask())
    assert not list(tmp_path.rglob("results-*"))


def test_who_was_taken_for_dead_neither_ends_the_job_nor_removes_its_record(
    tmp_path: Path,
) -> None:
    record = JobRecord(str(tmp_path), "a1")
    old, new = RecordKeeper(record, "a1"), RecordKeeper(record, "a1")

    async def ask() -> None:
        await asyncio.wrap_future(old.begin(Begun(b""), Term()))
        await asyncio.wrap_future(new.write(Term(1)))
        record.put_results("results-2-1-4-1", b"")
        old.end(OUTCOME)
        await old.remove()
        assert record.outcome() is None
        assert set(record.all_results()) == {"results-2-1-4-1"}
        new.end(OUTCOME)
        assert record.outcome() == (OUTCOME, None)
        await new.remove()

    asyncio.run(ask())
    assert not list(tmp_path.rglob("term.json"))
