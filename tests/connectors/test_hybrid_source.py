"""`HybridSource`: one source after the other."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from amounts import examples
from drawn_ways import assert_equivalent
from hypothesis import given, settings
from hypothesis import strategies as st
from strom import (
    Emit,
    NeedSplit,
    Source,
    SourceReader,
    SplitEnumerator,
    TumblingEventTimeWindows,
    Wait,
    WatermarkStrategy,
    count,
    sum_,
)
from strom.connectors.datagen import DataGenSource, NumberSequenceSource
from strom.connectors.files import FileSource
from strom.connectors.hybrid import HybridSource
from strom.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from strom.core.errors import ConfigurationError, ConnectorError
from strom.testing.scripted import Pause, ScriptedSource

SCHEMA = pa.schema([("n", pa.int64()), ("k", pa.string())])


def rows(start: int, count: int) -> pa.RecordBatch:
    ns = list(range(start, start + count))
    return pa.RecordBatch.from_pydict({"n": ns, "k": [f"k{n % 3}" for n in ns]}, schema=SCHEMA)


def three() -> HybridSource:
    """Numbers 0..39 of a source with two splits, 40..69 of one with three, 70..99."""
    first = DataGenSource(lambda s, n: list(range(s, s + n)), 40, splits=2, block=4)
    second = DataGenSource(lambda s, n: list(range(40 + s, 40 + s + n)), 30, splits=3, block=2)
    return HybridSource.builder(first).add_source(second).add_source(sequence(70, 99)).build()


def sequence(start: int, end: int) -> NumberSequenceSource:
    return NumberSequenceSource(start, end)


@settings(max_examples=examples(80), deadline=None)
@given(
    schedule=st.lists(st.integers(0, 1), max_size=60),
    again=st.lists(st.integers(0, 2), max_size=40),
    parallelism=st.integers(1, 4),
)
def test_any_restore_in_the_middle_of_any_source(
    run: Any, schedule: list[int], again: list[int], parallelism: int
) -> None:
    first = run(three(), parallelism=2, batch_size=3)
    for subtask in schedule:
        first.step(subtask)
    second = first.restored(first.snapshot(), 3)
    for subtask in again:
        second.step(subtask)
    third = second.restored(second.snapshot(), parallelism).finish()
    assert sorted(first.rows() + second.rows() + third.rows()) == list(range(100))


@settings(max_examples=examples(60), deadline=None)
@given(schedule=st.lists(st.integers(0, 2), max_size=80), restored=st.booleans())
def test_no_reader_begins_a_source_before_all_have_read_the_former(
    run: Any, schedule: list[int], restored: bool
) -> None:
    at_work = run(three(), parallelism=3, batch_size=3)
    seen: list[int] = []

    def step(subtask: int) -> None:
        polled = at_work.step(subtask)
        if isinstance(polled, Emit):
            seen.extend(polled.batch.rows())

    for subtask in schedule:
        step(subtask)
    if restored:
        at_work = at_work.restored(at_work.snapshot(), 3)
    while not all(at_work.done):
        for subtask in range(3):
            if not at_work.done[subtask]:
                step(subtask)
        at_work.clock.advance_ms(50)
    assert sorted(seen) == list(range(100))
    stages = [0 if n < 40 else 1 if n < 70 else 2 for n in seen]
    assert stages == sorted(stages)


def test_the_checkpoint_says_which_source_is_read(run: Any) -> None:
    at_work = run(three(), batch_size=100)
    stages = []
    while not at_work.done[0]:
        at_work.step(0)
        at_work.clock.advance_ms(100)
        enumerator, splits = pickle.loads(at_work.snapshot())
        assert {split.stage for split in splits} <= {enumerator.stage}
        stages.append(enumerator.stage)
    assert sorted(set(stages)) == [0, 1, 2]
    assert stages == sorted(stages)


def test_files_and_then_generated_rows_in_a_job(tmp_path: Path) -> None:
    """Event time goes on over the switch, and no record is late for it."""
    for i in range(3):
        table = pa.Table.from_batches([rows(20 * i, 20)])
        pq.write_table(table, tmp_path / f"{i}.parquet", row_group_size=7)
    following = DataGenSource(lambda s, n: rows(60 + s, n), 60, schema=SCHEMA, splits=2, block=4)

    def build(env: Any) -> Any:
        source = HybridSource.builder(FileSource(tmp_path)).add_source(following).build()
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(60).with_timestamp_assigner("n")
        stream = env.from_source(source, strategy, "history and more")
        windows = stream.key_by("k").window(TumblingEventTimeWindows.of(40))
        return {"all": stream.select("n"), "windows": windows.aggregate(n=count(), s=sum_("n"))}

    expected: list[Any] = [("all", (n,)) for n in range(120)]
    for key in range(3):
        for start in range(0, 120, 40):
            held = [n for n in range(start, start + 40) if n % 3 == key]
            expected.append(("windows", (f"k{key}", start, start + 40, len(held), sum(held))))
    assert_equivalent(build, expected)


def test_objects_with_pauses_in_a_job() -> None:
    """Lanes of very different lengths: the readers switch together, whoever is done first."""
    first = ScriptedSource([[("a", i) for i in range(30)], [("b", 0)], []])
    second = ScriptedSource([[("c", i) for i in range(5)], [("d", 0), Pause(3), ("d", 1)]])

    def build(env: Any) -> Any:
        source = HybridSource.builder(first).add_source(second).add_source(second).build()
        return {"out": env.from_source(source)}

    once = [*(("c", i) for i in range(5)), ("d", 0), ("d", 1)]
    expected = [*(("a", i) for i in range(30)), ("b", 0), *once, *once]
    assert_equivalent(build, [("out", record) for record in expected])


class Trickling(DataGenSource):
    """Its enumerator has a split now and then, and its readers ask every 2 ms."""

    def create_enumerator(self, context: Any, restored: Any) -> Any:
        enumerator = super().create_enumerator(context, restored)
        left, asked = enumerator.snapshot(), [0]

        def next_splits(subtask: int) -> Any:
            asked[0] += 1
            if asked[0] % 3:
                return [] if left else None
            return [left.pop()] if left else None

        enumerator.next_splits = next_splits  # type: ignore[method-assign]
        enumerator.snapshot = lambda: list(left)  # type: ignore[method-assign]
        return enumerator

    def create_reader(self, context: Any) -> Any:
        reader = super().create_reader(context)
        reader.asks_every_ms = 2
        return reader


def test_sources_whose_splits_appear_in_time_in_a_job() -> None:
    def trickling(start: int) -> Trickling:
        return Trickling(lambda s, n: list(range(start + s, start + s + n)), 80, 8, block=3)

    def build(env: Any) -> Any:
        source = HybridSource.builder(trickling(0)).add_source(trickling(80)).build()
        return {"out": env.from_source(source)}

    assert_equivalent(build, [("out", n) for n in range(160)])


def test_a_reader_that_waits_for_the_others_lets_them_go_on() -> None:
    """With watermark alignment it would hold them at its own last record, for ever."""
    first = ScriptedSource([[("a", 0)], [("b", i) for i in range(0, 5000, 100)]])
    second = ScriptedSource([[("c", 5000)], [("d", 5001)]])
    strategy = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_timestamp_assigner(lambda value, _: value[1])
        .with_watermark_alignment("g", timedelta(milliseconds=200), timedelta(milliseconds=5))
    )

    def build(env: Any) -> Any:
        source = HybridSource.builder(first).add_source(second).build()
        return {"out": env.from_source(source, strategy)}

    expected = [("a", 0), *(("b", i) for i in range(0, 5000, 100)), ("c", 5000), ("d", 5001)]
    assert_equivalent(build, [("out", record) for record in expected])


def test_a_factory_makes_the_next_source_of_the_formers_enumerator(run: Any) -> None:
    asked: list[Any] = []

    def following(previous: SplitEnumerator) -> Source:
        asked.append(previous)
        return sequence(10 * len(asked), 10 * len(asked) + 5)

    builder = HybridSource.builder(sequence(0, 5)).add_source(following, bounded=True)
    source = builder.add_source(lambda previous: sequence(90, 92)).build()
    assert not source.bounded
    first = run(source, parallelism=2, batch_size=2)
    while not asked:
        for subtask in (0, 1):
            first.step(subtask)
        first.clock.advance_ms(100)
    # What was made is in the checkpoint, and not made anew.
    rest = first.restored(first.snapshot(), 3).finish()
    assert sorted(first.rows() + rest.rows()) == [*range(6), *range(10, 16), 90, 91, 92]
    assert len(asked) == 1
    assert asked[0].snapshot() == []


def test_a_factorys_source_must_be_what_was_said(run: Any) -> None:
    def step(factory: Any) -> None:
        source = HybridSource.builder(sequence(0, 1)).add_source(factory, bounded=True).build()
        run(source).finish()

    with pytest.raises(ConfigurationError, match="factory of source 2 returned 7, not a Source"):
        step(lambda previous: 7)
    with pytest.raises(ConfigurationError, match="made a DataGenSource that never ends"):
        step(lambda previous: DataGenSource(lambda s, n: list(range(n))))
    with pytest.raises(
        ConfigurationError, match=r"source 2 .* gives rows with columns, the first P"
    ):
        step(lambda previous: DataGenSource(rows, 3, schema=SCHEMA))


def test_only_the_last_may_be_unbounded() -> None:
    forever = DataGenSource(lambda s, n: list(range(n)))
    with pytest.raises(ConfigurationError, match=r"source 1 of 2 \(DataGenSource\) never ends"):
        HybridSource.builder(forever).add_source(sequence(0, 1)).build()
    builder = HybridSource.builder(sequence(0, 1)).add_source(lambda previous: forever)
    with pytest.raises(ConfigurationError, match=r"source 2 of 3 \(a factory\) never ends"):
        builder.add_source(sequence(0, 1)).build()
    last = HybridSource.builder(sequence(0, 1)).add_source(forever).build()
    assert not last.bounded
    assert HybridSource.builder(sequence(0, 1)).build().bounded
    with pytest.raises(ConfigurationError, match=r"add_source takes a Source.*got 'kafka'"):
        HybridSource.builder(sequence(0, 1)).add_source("kafka")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="expected a Source, got None"):
        HybridSource.builder(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ([("n", pa.int32()), ("k", pa.string())], "column 'n' is int32, in the first int64"),
        ([("n", pa.int64())], "it has no column 'k'"),
        (
            [("n", pa.int64()), ("k", pa.string()), ("x", pa.string())],
            "the first has no column 'x'",
        ),
    ],
)
def test_columns_must_agree(other: Any, message: str) -> None:
    first = DataGenSource(rows, 3, schema=SCHEMA)
    second = DataGenSource(rows, 3, schema=pa.schema(other))
    with pytest.raises(ConfigurationError, match=message):
        HybridSource.builder(first).add_source(second).build()


def test_columns_in_another_order_are_put_in_order(run: Any) -> None:
    turned = pa.schema([SCHEMA.field("k"), SCHEMA.field("n")])
    second = DataGenSource(lambda s, n: rows(10 + s, n).select(["k", "n"]), 3, schema=turned)
    first = DataGenSource(rows, 3, schema=SCHEMA)
    source = HybridSource.builder(first).add_source(second).build()
    assert source.schema == SCHEMA
    done = run(source).finish()
    assert [row.n for row in done.rows()] == [0, 1, 2, 10, 11, 12]
    assert all(b.data.schema.equals(SCHEMA) for b in done.batches[0] if len(b))


def test_files_that_are_not_there_yet_are_compared_when_they_are(run: Any, tmp_path: Path) -> None:
    later = FileSource(tmp_path / "later")
    first = DataGenSource(rows, 3, schema=SCHEMA)
    source = HybridSource.builder(first).add_source(later).build()
    (tmp_path / "later").mkdir()
    pq.write_table(pa.table({"n": [1], "k": [2]}), tmp_path / "later" / "a.parquet")
    with pytest.raises(ConfigurationError, match="column 'k' is int64, in the first string"):
        run(source).finish()


def test_a_checkpoint_of_other_sources_is_refused(run: Any) -> None:
    at_work = run(three())
    at_work.finish()
    snapshot = at_work.snapshot()
    at_work.source = HybridSource.builder(sequence(0, 1)).build()
    with pytest.raises(ConfigurationError, match="taken while source 3 of DataGenSource, DataGen"):
        at_work.restored(snapshot, 1)
    more = run(HybridSource.builder(sequence(0, 1)).build())
    more.source = sequence(0, 1)
    single = run(sequence(0, 1)).snapshot()
    more.source = three()
    with pytest.raises(ConfigurationError, match="of another source than a HybridSource"):
        more.restored(single, 1)


def test_sources_of_one_class_may_not_be_swapped(run: Any) -> None:
    first, second = sequence(0, 9), sequence(10, 29)
    at_work = run(HybridSource.builder(first).add_source(second).build(), batch_size=4)
    at_work.step(0)
    snapshot = at_work.snapshot()
    at_work.source = HybridSource.builder(second).add_source(first).build()
    with pytest.raises(ConfigurationError, match=r"NumberSequenceSource\) read 0 to 9 when"):
        at_work.restored(snapshot, 1)
    at_work.source = HybridSource.builder(first).add_source(sequence(10, 19)).build()
    rest = at_work.restored(snapshot, 2).finish()  # the second was not begun
    assert sorted(at_work.rows() + rest.rows()) == list(range(20))


def test_files_of_another_folder_are_another_source(run: Any, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        pq.write_table(pa.Table.from_batches([rows(0, 4)]), tmp_path / name / "0.parquet")

    def of(*names: str) -> HybridSource:
        first, *more = (FileSource(tmp_path / name) for name in names)
        builder = HybridSource.builder(first)
        for one in more:
            builder = builder.add_source(one)
        return builder.build()

    at_work = run(of("a", "b"))
    at_work.step(0)
    snapshot = at_work.snapshot()
    at_work.source = of("b", "a")
    with pytest.raises(ConfigurationError, match="a when the checkpoint was taken, and now it rea"):
        at_work.restored(snapshot, 1)
    enumerator, splits = pickle.loads(snapshot)
    older = {k: v for k, v in vars(enumerator).items() if k != "reads"}
    vars(enumerator).clear()
    vars(enumerator).update(older)
    at_work.restored(pickle.dumps((enumerator, splits)), 1)  # of a version that did not say it


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        (KafkaSource("here:1", ["a", "b"], stop=KafkaOffsetsInitializer.latest()), ("a", "b")),
        (KafkaSource("here:1", topic_pattern="a.*"), ("a.*",)),
        (KafkaSource("here:1", partitions=[("a", 1), ("a", 0)]), ("a-0", "a-1")),
        (DataGenSource(lambda s, n: [], 7), ("7 records",)),
        (DataGenSource(lambda s, n: []), ()),
        (ScriptedSource([[]]), ()),
    ],
)
def test_what_sources_say_they_read(source: Source, reads: tuple[str, ...]) -> None:
    assert source.reads_from() == reads


def test_sources_may_be_added_behind_those_that_were_begun(run: Any) -> None:
    """Also when all were read: the job goes on with the new one."""
    short = HybridSource.builder(sequence(0, 9)).add_source(sequence(10, 19))
    at_work = run(short.build(), parallelism=2, batch_size=4)
    at_work.finish()
    at_work.source = short.add_source(sequence(20, 29)).build()
    rest = at_work.restored(at_work.snapshot(), 3).finish()
    assert sorted(at_work.rows()) == list(range(20))
    assert sorted(rest.rows()) == list(range(20, 30))


@dataclass
class TellingReader(SourceReader):
    """One record; keeps what it is told."""

    asks_every_ms = 1000
    said: list[Any] = field(default_factory=list)
    held: list[Any] = field(default_factory=list)
    waits: bool = False

    def add_splits(self, splits: Sequence[Any]) -> None:
        self.held += splits

    def poll(self) -> Any:
        if not self.held:
            return NeedSplit()
        if self.waits:
            return Wait(None)
        return Emit(batch_of(self.held[0]), self.held.pop().split_id, finished=True)

    def snapshot(self) -> list[Any]:
        return list(self.held)

    def notify_checkpoint_complete(self, checkpoint_id: int, splits: Sequence[Any]) -> None:
        self.said.append((checkpoint_id, len(splits)))

    def close(self) -> None:
        self.said.append("closed")


def batch_of(value: Any) -> Any:
    from strom.core.batch import ObjectBatch

    return ObjectBatch([value])


class TellingSource(NumberSequenceSource):
    def __init__(self, waits: bool = False) -> None:
        super().__init__(0, 0)
        self.waits = waits
        self.readers: list[TellingReader] = []

    def create_reader(self, context: Any) -> Any:
        self.readers.append(TellingReader(waits=self.waits))
        return self.readers[-1]


def test_a_former_reader_hears_of_the_checkpoint_that_covers_all_it_read(run: Any) -> None:
    first, second = TellingSource(), TellingSource(waits=True)
    at_work = run(HybridSource.builder(first).add_source(second).build())
    reader = at_work.readers[0]
    at_work.step(0)
    before = reader.snapshot()
    while not second.readers:
        at_work.step(0)
        at_work.clock.advance_ms(100)
    after = reader.snapshot()
    reader.notify_checkpoint_complete(1, before)
    assert first.readers[0].said == [(1, 1)]
    reader.notify_checkpoint_complete(2, after)
    assert first.readers[0].said == [(1, 1), (2, 0), "closed"]
    assert second.readers[0].said == [(2, 1)]
    reader.close()
    assert second.readers[0].said == [(2, 1), "closed"]


def test_all_readers_hear_of_the_checkpoint_behind_the_end(run: Any) -> None:
    """Of which no reader has given a snapshot. An old one says nothing of former sources."""
    first, second = TellingSource(), TellingSource()
    at_work = run(HybridSource.builder(first).add_source(second).build())
    reader = at_work.readers[0]
    while not second.readers:
        at_work.step(0)
        at_work.clock.advance_ms(100)
    reader.notify_checkpoint_complete(1, ())
    assert first.readers[0].said == []
    at_work.finish()
    reader.notify_checkpoint_complete(2, [])
    assert first.readers[0].said == [(2, 0), "closed"]
    assert second.readers[0].said == [(1, 0), (2, 0)]


def test_a_reader_that_wants_to_asks_beside_what_it_holds(run: Any) -> None:
    """But no more once there is nothing more to come: such a question says that all is read."""
    source = TellingSource(waits=True)
    at_work = run(HybridSource.builder(source).build())
    polls = []
    at = at_work.clock.now_ms()
    for _ in range(5):
        polls.append(at_work.step(0))
        at_work.clock.advance_ms(600)
    # question, (600) wait until 1000, (1200) question: over; then it only waits
    assert polls == [NeedSplit(), Wait(at + 1000), NeedSplit(), Wait(None), Wait(None)]
    source.readers[0].waits = False
    at_work.finish()
    assert len(at_work.rows()) == 1


def test_a_source_whose_batches_are_not_what_it_says_is_named(run: Any) -> None:
    class Odd(TellingSource):
        schema = SCHEMA  # type: ignore[assignment]

    first = DataGenSource(rows, 3, schema=SCHEMA)
    with pytest.raises(ConnectorError, match=r"source 2 \(Odd\) gives Python objects, the first r"):
        run(HybridSource.builder(first).add_source(Odd()).build()).finish()
