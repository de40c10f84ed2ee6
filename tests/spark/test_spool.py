"""The spool and the stream's side of the bridge; pyarrow writes the files in Spark's place."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from strom.api.connectors.base import Emit, EnumeratorContext, NeedSplit, ReaderContext
from strom.connectors.spark import spool_source
from strom.connectors.spark.spool import ENDED, FAILED, RUNNING, Spool, SpoolState
from strom.connectors.spark.spool_source import EnumeratorState, SpoolSource
from strom.core.clock import SystemClock
from strom.core.errors import ConfigurationError, ConnectorError, TypeMismatchError

SCHEMA = pa.schema({"n": pa.int64(), "at": pa.timestamp("us", "UTC")})


def write(spool: Spool, batch: int, *files: range, watermark: int | None = None) -> None:
    """Micro-batch with these numbers in its files; `at` is n seconds."""
    place = spool.new_place(batch)
    place.mkdir()
    for index, numbers in enumerate(files or [range(0)]):
        at = pa.array([n * 1_000_000 for n in numbers], pa.int64()).cast(SCHEMA.field("at").type)
        table = pa.table({"n": list(numbers), "at": at}, SCHEMA)
        pq.write_table(table, place / f"part-{index:05d}.parquet", row_group_size=7)
    spool.publish(batch, watermark)


def ended(spool: Spool) -> None:
    spool.say(SpoolState(ENDED, 1))


def folders(spool: Spool) -> list[str]:
    return sorted(path.name.lstrip("0") or "0" for path in (spool.folder / "batches").iterdir())


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    spool = Spool(tmp_path / "spool")
    spool.declare("{}")
    return spool


class Job:
    """Subtasks that read a spool, driven as tasks drive them."""

    def __init__(
        self, source: SpoolSource, parallelism: int = 1, saved: Any = None, size: int = 4
    ) -> None:
        context = EnumeratorContext("in", parallelism, "job")
        state, splits = saved if saved is not None else (None, [])
        self.enumerator = source.create_enumerator(context, state)
        self.readers = [
            source.create_reader(ReaderContext("in", i, parallelism, size, SystemClock()))
            for i in range(parallelism)
        ]
        for i, split in enumerate(splits):
            self.readers[i % parallelism].add_splits([split])
        self.numbers: list[int] = []
        self.watermarks: list[list[int]] = [[] for _ in self.readers]

    def step(self, subtask: int = 0) -> bool | None:
        """Whether something came; None: the subtask is at its end."""
        match self.readers[subtask].poll():
            case Emit() as emit:
                self.numbers += emit.batch.data.column("n").to_pylist()
                if emit.watermark is not None:
                    self.watermarks[subtask].append(emit.watermark)
                return True
            case NeedSplit():
                given = self.enumerator.next_splits(subtask)
                if given is None:
                    return None
                self.readers[subtask].add_splits(given)
                return bool(given)
        raise AssertionError

    def drain(self) -> None:
        """Read until nothing is there."""
        moved = True
        while moved:
            moved = False
            for subtask in range(len(self.readers)):
                moved = bool(self.step(subtask)) or moved

    def checkpoint(self) -> Any:
        """Complete; returns what a restore gets."""
        state = self.enumerator.snapshot()
        taken = [list(reader.snapshot()) for reader in self.readers]
        raw = [reader._snapshots[-1][0] for reader in self.readers]
        for reader, splits in zip(self.readers, raw, strict=True):
            reader.notify_checkpoint_complete(1, splits)
        return pickle.loads(pickle.dumps((state, [s for some in taken for s in some])))


def test_micro_batches_come_in_order_and_the_stream_ends_with_the_query(spool: Spool) -> None:
    write(spool, 0, range(10), range(10, 12))
    write(spool, 1)
    write(spool, 2, range(12, 15))
    job = Job(SpoolSource(spool, SCHEMA, bounded=True))
    job.drain()
    assert job.numbers == list(range(15))
    assert job.step() is False  # the query runs: more may come
    write(spool, 3, range(15, 17))
    ended(spool)
    job.drain()
    assert job.numbers == list(range(17))
    assert job.step() is None


def test_a_micro_batch_is_there_whole_or_not_at_all(spool: Spool) -> None:
    place = spool.new_place(0)
    place.mkdir()
    pq.write_table(pa.table({"n": [1]}), place / "part-0.parquet")
    assert spool.batches(0) == []
    assert not spool.has(0)
    assert not spool.new_place(0).exists()  # what is left of it goes before it is written again


@pytest.mark.parametrize("steps", range(1, 12))
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_restore_reads_on_exactly_where_the_checkpoint_was(
    spool: Spool, steps: int, parallelism: int
) -> None:
    for batch in range(3):
        write(
            spool, batch, range(batch * 20, batch * 20 + 9), range(batch * 20 + 9, batch * 20 + 20)
        )
    ended(spool)
    source = SpoolSource(spool, SCHEMA, bounded=True)
    first = Job(source, parallelism)
    for i in range(steps):
        first.step(i % parallelism)
    saved = first.checkpoint()
    read = list(first.numbers)
    first.drain()  # lost: the next attempt knows only the checkpoint
    second = Job(source, 3 - parallelism, saved)
    second.drain()
    assert sorted(read + second.numbers) == list(range(60))


def test_what_checkpoints_cover_is_removed_one_checkpoint_later(spool: Spool) -> None:
    source = SpoolSource(spool, SCHEMA, bounded=False)
    job = Job(source)
    for batch in range(30):
        write(spool, batch, range(batch, batch + 1))
        job.drain()
        job.checkpoint()
        assert len(folders(spool)) <= 4
    assert job.numbers == list(range(30))
    assert folders(spool)[-1] == "29"  # by which Spark's next attempt is known


def test_nothing_is_removed_before_the_checkpoint_after_next(spool: Spool) -> None:
    source = SpoolSource(spool, SCHEMA, bounded=False)
    for batch in range(6):
        write(spool, batch, range(batch * 10, batch * 10 + 10))
    job = Job(source)
    saved = [job.checkpoint()]
    while job.step():
        saved.append(job.checkpoint())
        again = Job(source, saved=saved[-2])
        again.drain()
        assert again.numbers[-1:] == [59]
        whole = Job(source, saved=saved[-1])
        whole.drain()
        assert sorted(job.numbers + whole.numbers) == list(range(60))


def test_checkpoints_that_fail_delay_the_removal_only_so_long(spool: Spool) -> None:
    job = Job(SpoolSource(spool, SCHEMA, bounded=False))
    for batch in range(30):
        write(spool, batch, range(batch, batch + 1))
        job.drain()
        for reader in job.readers:
            reader.snapshot()  # of a checkpoint that does not complete
        job.checkpoint()
        assert len(folders(spool)) <= 4


def test_a_micro_batch_that_was_removed_before_it_was_read_is_an_error(spool: Spool) -> None:
    source = SpoolSource(spool, SCHEMA, bounded=False)
    write(spool, 0, range(3))
    job = Job(source)
    job.drain()
    saved = job.checkpoint()
    for batch in (1, 2, 3):
        write(spool, batch, range(3))
    spool.drop(2)
    with pytest.raises(ConnectorError, match=r"micro-batch 1 is not in .*though 2 is"):
        Job(source, saved=saved).drain()
    later = Job(source, saved=(EnumeratorState(2, (), None), []))
    later.step()
    spool.drop(3)
    with pytest.raises(ConnectorError, match="micro-batch 2 is not in the spool any more"):
        later.drain()


def test_a_job_that_begins_anew_with_what_another_left_is_an_error(spool: Spool) -> None:
    """It would leave out what the other has read, without a word."""
    source = SpoolSource(spool, SCHEMA, bounded=True)
    first = Job(source)
    for batch in range(4):
        write(spool, batch, range(batch, batch + 1))
        first.drain()
        saved = first.checkpoint()
    assert folders(spool)[0] != "0"
    ended(spool)
    with pytest.raises(
        ConnectorError, match=r"'in': micro-batch 0 is not in .*begin with a new fo"
    ):
        Job(source).drain()
    again = Job(source, saved=saved)
    again.drain()
    assert again.numbers == []


def test_sparks_watermark_follows_the_last_row_of_its_micro_batch(spool: Spool) -> None:
    source = SpoolSource(spool, SCHEMA, bounded=False, event_time="at", spark_watermark=True)
    write(spool, 0, range(5))
    write(spool, 1, range(5, 9), watermark=3_000)
    write(spool, 2, range(9, 12), watermark=7_000)
    job = Job(source, size=100)
    seen: list[tuple[int, int]] = []
    while job.step() is not False:
        seen += [(len(job.numbers), w) for w in job.watermarks[0][len(seen) :]]
    # 0: rows 0 to 4     1: rows 5 to 8, then 3000     2: rows 9 to 11, then 7000
    assert seen == [(9, 2_999), (12, 6_999)]
    write(spool, 3, watermark=11_000)  # a micro-batch without rows
    job.drain()
    assert job.watermarks[0] == [2_999, 6_999, 10_999]


def test_every_subtask_hears_sparks_watermark_also_without_a_file(spool: Spool) -> None:
    source = SpoolSource(spool, SCHEMA, bounded=False, event_time="at", spark_watermark=True)
    write(spool, 0, range(5), watermark=2_000)
    job = Job(source, parallelism=2)
    job.drain()
    assert job.watermarks == [[1_999], [1_999]]


def test_event_times_are_of_the_column(spool: Spool) -> None:
    write(spool, 0, range(3))
    source = SpoolSource(spool, SCHEMA, bounded=False, event_time="at")
    job = Job(source)
    job.step()
    emit = job.readers[0].poll()
    assert isinstance(emit, Emit)
    assert emit.batch.timestamps is not None
    assert emit.batch.timestamps.tolist() == [0, 1000, 2000]


def test_a_null_event_time_is_an_error(spool: Spool) -> None:
    place = spool.new_place(0)
    place.mkdir()
    at = pa.array([None], SCHEMA.field("at").type)
    pq.write_table(pa.table({"n": [1], "at": at}), place / "part-0.parquet")
    spool.publish(0)
    with pytest.raises(TypeMismatchError, match="'at' is null in 1 rows"):
        Job(SpoolSource(spool, SCHEMA, bounded=True, event_time="at")).drain()


def test_columns_that_older_rows_lack_are_null(spool: Spool) -> None:
    write(spool, 0, range(2))
    wider = pa.schema([*SCHEMA, pa.field("word", pa.string())])
    job = Job(SpoolSource(spool, wider, bounded=True))
    job.step()
    emit = job.readers[0].poll()
    assert isinstance(emit, Emit)
    assert emit.batch.data.schema.equals(wider)
    assert emit.batch.data.column("word").to_pylist() == [None, None]


def test_a_query_that_failed_or_fell_silent_fails_the_job_after_its_rows(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(spool, 0, range(3))
    spool.say(SpoolState(FAILED, 7, "column 'x' cannot be resolved"))
    job = Job(SpoolSource(spool, SCHEMA, bounded=False))
    with pytest.raises(ConnectorError, match=r"operator 'in'.*failed: column 'x' cannot be"):
        job.drain()
    assert job.numbers == [0, 1, 2]

    spool.say(SpoolState(RUNNING, 1))
    quiet = Job(SpoolSource(spool, SCHEMA, bounded=False))
    quiet.drain()
    quiet.drain()
    monkeypatch.setattr(spool_source, "SILENCE_S", 0.0)
    with pytest.raises(ConnectorError, match="nothing was heard for 0 s of the program"):
        quiet.drain()
    spool.say(SpoolState(RUNNING, 2))
    quiet.step()


def test_a_micro_batch_that_is_not_where_it_was_written_is_an_error(spool: Spool) -> None:
    spool.new_place(0)
    with pytest.raises(ConfigurationError, match=r"no file is in .*: it is not the same folder"):
        spool.publish(0)


def test_spark_waits_for_a_stream_that_takes_nothing(spool: Spool) -> None:
    for batch in range(3):
        write(spool, batch, range(batch, batch + 1))
    assert spool.waiting() == 3
    Job(SpoolSource(spool, SCHEMA, bounded=False)).step()
    assert spool.waiting() == 0


def test_small_files_that_a_crash_of_the_machine_emptied_are_as_good_as_none(spool: Spool) -> None:
    """They are written often, so they are not synced; each is written anew by who comes back."""
    for batch in range(3):
        write(spool, batch, range(batch, batch + 1))
    ended(spool)
    Job(SpoolSource(spool, SCHEMA, bounded=True)).drain()
    assert spool.waiting() == 0
    for name in ("taken", "state.json"):
        (spool.folder / name).write_text("")
    assert spool.waiting() == 3
    assert spool.state() is None


@pytest.mark.parametrize("parallelism", [1, 2])
def test_micro_batches_without_rows_hold_nothing_up(spool: Spool, parallelism: int) -> None:
    job = Job(SpoolSource(spool, SCHEMA, bounded=False), parallelism)
    for batch in range(100):
        write(spool, batch)
        job.drain()
        assert spool.waiting() == 0
        job.checkpoint()
        assert len(folders(spool)) <= 40
    write(spool, 100, range(3))
    job.drain()
    assert job.numbers == [0, 1, 2]


def test_a_spool_needs_a_folder_that_renames() -> None:
    with pytest.raises(ConfigurationError, match="renaming folders"):
        Spool("s3://bucket/x")
