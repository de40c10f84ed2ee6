"""Files of collected results are put together, and whoever goes on finds all that was published."""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strom.checkpoint.manifest import Manifest
from strom.core.errors import CheckpointError, CorruptCheckpointError, MissingCheckpointError
from strom.core.ids import CheckpointId, OperatorId
from strom.engine.hosts.job_record import JobRecord
from strom.engine.hosts.result_files import END, Place, Result, ResultFile
from strom.engine.hosts.result_log import ResultLog, left_by
from strom.engine.hosts.result_merges import MOST_BYTES, ResultMerges, joined

SINK = OperatorId("sink")

AT_ONCE, BEHIND = 4, 3


class Folder:
    """A job's record. What `stops` names is where its writer dies, or has to stop: before the files
    are one (`put`), or before those that were put together are gone (`remove`)."""

    def __init__(self, stops: str | None = None) -> None:
        self.files: dict[str, bytes] = {}
        self.stops = stops
        self.merges = 0

    def put_results(self, name: str, data: bytes) -> None:
        if len(name.split("-")) == 6:
            self.merges += 1
            self._stop("put")
        self.files[name] = data

    def all_results(self) -> Mapping[str, bytes | CorruptCheckpointError]:
        return dict(self.files)

    def get_results(self, name: str) -> bytes:
        return self.files[name]

    def remove_results(self, names: Sequence[str]) -> None:
        self._stop("remove")
        for name in names:
            del self.files[name]

    def _stop(self, where: str) -> None:
        if self.stops == where:
            raise CheckpointError("the storage is away")


def log_of(folder: Folder, number: int = 0, start: Manifest | None = None) -> ResultLog:
    log = ResultLog(folder, number, merges=ResultMerges(AT_ONCE, BEHIND))
    log.find(number + 1, start, rejected=False)
    log.begin(0 if start is None else int(start.checkpoint_id))
    return log


def manifest(n: int, epoch: int) -> Manifest:
    return Manifest("job", "job", CheckpointId(n), 0, (), (), epoch=epoch)


def complete(log: ResultLog, n: int, oldest: int) -> None:
    """Checkpoint `n`, behind a result of which it is not."""
    log.hear(SINK, f"key {n}", n)
    log.write(n)
    with suppress(CheckpointError):  # as a coordinator, which tries it again
        log.merge(oldest)


def found(folder: Folder, upto: int, epoch: int | None = None) -> list[Any]:
    left = left_by(folder.files, upto, epoch)
    assert left.lost is None
    return [pickle.loads(one.data) for one in left.results]


def test_of_many_checkpoints_there_are_few_files() -> None:
    folder = Folder()
    log = log_of(folder)
    most = 0
    for n in range(1, 1001):
        complete(log, n, oldest=max(1, n - 1))
        most = max(most, len(folder.files))
        if n % 111 == 0:
            for upto in (n - 1, n):
                assert found(folder, upto) == list(range(1, upto + 1))
    levels = 5  # of files that are 4 of the level below: 4 ** 5 > 1000
    assert most <= BEHIND + AT_ONCE * levels, most
    assert found(folder, END) == list(range(1, 1001))
    assert sum(map(len, folder.files.values())) < 100_000


@pytest.mark.parametrize("stops", ["put", "remove"])
def test_whoever_goes_on_from_any_point_has_all_of_it(stops: str) -> None:
    """Its predecessor died, or the storage was away, while it put files together; and so does the
    one that comes then."""
    for crash in range(1, 40):
        folder = Folder()
        first = log_of(folder)
        for n in range(1, crash + 1):
            folder.stops = stops if n == crash else None
            complete(first, n, oldest=max(1, n - 2))
        folder.stops = None
        for upto in range(max(1, crash - 2), crash + 1):
            assert found(folder, upto, 1) == list(range(1, upto + 1))
        second = log_of(folder, 1, manifest(crash, 1))
        for n in range(crash + 1, crash + 20):
            complete(second, n, oldest=n - 1)
        assert found(folder, crash + 19, 2) == list(range(1, crash + 20))


@pytest.mark.parametrize("stops", ["put", "remove"])
def test_it_is_tried_again(stops: str) -> None:
    folder = Folder()
    log = log_of(folder)
    for n in range(1, 100):
        folder.stops = stops if n % 3 else None
        complete(log, n, oldest=n)
    assert found(folder, END) == list(range(1, 100))
    assert folder.merges > 20


def test_nothing_is_put_together_that_somebody_may_go_back_to() -> None:
    folder = Folder()
    log = log_of(folder)
    for n in range(1, 50):
        complete(log, n, oldest=min(n, 7))
    for upto in range(7, 50):
        assert found(folder, upto, 1) == list(range(1, upto + 1))
    assert "results-1-0-8-8" in folder.files


def test_what_was_taken_for_dead_may_go_on_with_it() -> None:
    """Its successor has counted what it started from, and finds that, in whatever files."""
    folder = Folder()
    old = log_of(folder)
    for n in range(1, 10):
        complete(old, n, oldest=1)
    new = log_of(folder, 1, manifest(9, 1))
    new.hear(SINK, "of the new one", "new")
    new.write(10)
    old.merge(9)
    for n in range(10, 40):
        old.hear(SINK, f"key {n}", n)
        old.write(n)
    assert found(folder, 10, 2) == [*range(1, 10), "new"]
    assert folder.merges == 1


def test_while_one_hangs_in_it_no_other_begins() -> None:
    """It would come back, and write less than there is by then."""
    folder = Folder()
    log = log_of(folder)
    for n in range(1, 40):
        log.hear(SINK, f"key {n}", n)
        log.write(n)
    put, hung = folder.put_results, []

    def hang(name: str, data: bytes) -> None:
        hung.append(name)
        log.merge(39)
        put(name, data)

    folder.put_results = hang  # type: ignore[method-assign]
    log.merge(39)
    assert len(hung) == 1
    log.merge(39)
    assert len(hung) == 2


def test_what_is_large_stays_as_it_is() -> None:
    merges = ResultMerges(2, 0)
    for n in range(1, 9):
        merges.written(Place(n, n), MOST_BYTES if n % 4 == 1 else 10)
        while due := merges.due(n):
            assert all(one.size <= MOST_BYTES for one in due)
            assert sum(one.size for one in due) <= MOST_BYTES
            merges.merged(due, sum(one.size for one in due), n)
        merges.validate()
    assert merges.count < 8


class Late(Folder):
    """Of a write that fails nobody knows whether it comes through, or when."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.hanging: list[tuple[str, bytes]] = []

    def put_results(self, name: str, data: bytes) -> None:
        self.come_through()
        if self.rng.random() < 0.2:
            self.hanging.append((name, data))
            raise CheckpointError("it takes too long")
        super().put_results(name, data)

    def come_through(self) -> None:
        if self.hanging and self.rng.random() < 0.5:
            name, data = self.hanging.pop(self.rng.randrange(len(self.hanging)))
            super().put_results(name, data)


@pytest.mark.parametrize("seed", range(200))
def test_publications_and_writes_that_hang(seed: int) -> None:
    """Checkpoints that are published behind newer ones, writes that come through when others have
    been put together; the job starts anew in between. All that was written down stays."""
    rng = random.Random(seed)
    folder = Late(rng)
    log = ResultLog(folder, 0, merges=ResultMerges(2, rng.randrange(3)))
    log.find(1, None, rejected=False)
    log.begin(0)
    heard = written = n = 0
    waiting: list[int] = []
    there: list[int] = []
    for _ in range(80):
        if rng.random() < 0.5:
            log.hear(SINK, f"key {heard}", heard)
            heard += 1
        if rng.random() < 0.5:
            n += 1
            waiting.append(n)
        if waiting and rng.random() < 0.7:
            late = waiting.pop(-1 if rng.random() < 0.6 else rng.randrange(len(waiting)))
            with suppress(CheckpointError):
                log.write(late)
                written = heard
                there = sorted([*there, late])[-2:]
        if there and rng.random() < 0.5:
            with suppress(CheckpointError):
                log.merge(there[0])
        if rng.random() < 0.05:
            log.find(1, None, rejected=False)  # what is written next is owed
        folder.come_through()
        log._merges.validate()
        values = found(folder, END)
        assert values == list(range(len(values)))
        assert len(values) >= written


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, MOST_BYTES)), max_size=60
    )
)
def test_levels_never_ascend(steps: list[tuple[int, int, int]]) -> None:
    merges = ResultMerges(2, 1)
    oldest = n = 0
    for back, further, size in steps:
        n += further
        oldest = max(oldest, n - back)
        merges.written(Place(n, n), size)
        due = merges.due(oldest)
        assert all(one.place.checkpoint <= oldest for one in due)
        if due:
            merges.merged(due, sum(one.size for one in due), n)
        merges.validate()


def part(start: int, *values: str) -> ResultFile:
    return ResultFile(start, {}, [Result(SINK, value, value.encode()) for value in values])


def test_files_that_overlap_are_one_without_repetition() -> None:
    """As where of two checkpoints the later one was published first."""
    whole = joined([part(2, "c"), part(0, "a", "b", "c", "d"), part(2, "c"), part(4, "e")])
    assert (whole.start, [one.key for one in whole.results]) == (0, ["a", "b", "c", "d", "e"])
    with pytest.raises(
        CorruptCheckpointError, match="goes on from 3, and those before it end at 1"
    ):
        joined([part(0, "a"), part(3, "d")])


def test_files_that_are_put_together_while_they_are_read_are_looked_for_again(
    tmp_path: Path,
) -> None:
    record = JobRecord(str(tmp_path), "a1")
    for name in ("results-1-0-1-1", "results-1-0-2-2"):
        record.put_results(name, b"one")
    read, looks = record._get, []

    def merged_meanwhile(name: str) -> bytes:
        looks.append(name)
        record.put_results("results-1-0-2-2", b"both")
        record.remove_results(["results-1-0-1-1"])
        return read(name)

    record._get = merged_meanwhile  # type: ignore[method-assign]
    assert record.all_results() == {"results-1-0-2-2": b"both"}
    assert len(looks) == 3
    record.remove_results(["results-1-0-1-1"])
    with pytest.raises(MissingCheckpointError):
        JobRecord(str(tmp_path), "a1").get_results("results-1-0-1-1")
