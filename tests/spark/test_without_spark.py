"""What can be known of the Spark connectors without starting Spark or Ray."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from strom import StreamExecutionEnvironment
from strom.api.connectors.base import EnumeratorContext
from strom.connectors.spark import (
    SparkKafkaSink,
    SparkKafkaSource,
    SparkOptions,
    SparkParquetSink,
    SparkParquetSource,
    java,
)
from strom.connectors.spark.bridge import decode, encode, storable
from strom.connectors.spark.packages import jars_for
from strom.connectors.spark.parquet_source import EnumeratorState, Pace
from strom.connectors.spark.ranges import ParquetSplit
from strom.connectors.spark.row_groups import (
    Footer,
    Group,
    Piece,
    filtered_runs,
    fitting_rows,
    packed,
    pieces,
    runs,
    step,
)
from strom.core.clock import VirtualClock
from strom.core.errors import ConfigurationError, ResourceError, TypeMismatchError


def fake_java(folder: Path, version: str) -> Path:
    """A Java home whose java says that it is `version`."""
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    binary.chmod(0o755)
    return folder


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("1.8.0_392", 8), ("21", 21)])
def test_java_version_is_read_from_what_java_says(tmp_path: Path, text: str, major: int) -> None:
    home = fake_java(tmp_path / text, text)
    assert java.java_major(str(home / "bin" / "java")) == major


def test_a_java_home_that_fits_goes_first_on_the_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "j17", "17.0.1")
    env = java.spark_environment({"JAVA_HOME": str(home), "PATH": "/usr/bin:/bin"})
    assert env["PATH"] == f"{home}/bin:/usr/bin:/bin"
    # What is set already is not changed again.
    assert java.spark_environment({"JAVA_HOME": str(home), "PATH": "/usr/bin:/bin", **env}) == {}


def test_a_java_home_that_spark_cannot_use_is_passed_over(tmp_path: Path) -> None:
    new = fake_java(tmp_path / "j25", "25.0.2")
    fit = fake_java(tmp_path / "j17", "17.0.1")
    path = os.pathsep.join([str(fit / "bin"), "/bin"])
    env = java.spark_environment({"JAVA_HOME": str(new), "PATH": path})
    assert "PATH" not in env
    assert env["JAVA_HOME"] == str(fit)


def test_ray_started_without_java_is_told_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ResourceError, match=r"no java on its PATH.*prepare_environment\(\)"):
        java.require_java()


def test_differing_options_are_named_without_private_values() -> None:
    one = SparkOptions(executors=2, configuration={"spark.password": "secret"})
    text = one.differences(SparkOptions())
    assert "executors: 2 and 1" in text
    assert "configuration" in text
    assert "secret" not in text


def test_nonsense_options_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="executors is 0"):
        SparkOptions(executors=0)
    with pytest.raises(ConfigurationError, match="rows_per_split"):
        SparkParquetSource("x", rows_per_split=0)
    with pytest.raises(ConfigurationError, match="renaming"):
        SparkParquetSink("s3://bucket/x")
    with pytest.raises(ConfigurationError, match="cannot look at"):
        _ = SparkParquetSource("/does/not/exist").schema


def test_arrow_types_that_spark_lacks_become_near_ones() -> None:
    schema = pa.schema(
        {
            "a": pa.large_string(),
            "b": pa.dictionary(pa.int8(), pa.string()),
            "c": pa.timestamp("ms", "Europe/Rome"),
            "d": pa.timestamp("s"),
            "e": pa.uint32(),
        }
    )
    assert [str(t) for t in storable(schema).types] == [
        "string",
        "string",
        "timestamp[us, tz=UTC]",
        "timestamp[us]",
        "int64",
    ]
    with pytest.raises(TypeMismatchError, match="'u' has type uint64"):
        storable(pa.schema({"u": pa.uint64()}))


def test_a_block_survives_encoding() -> None:
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    assert decode(encode(table)).equals(table)


def test_pace_passes_rows_at_the_rate_and_makes_up_for_one_second_at_most() -> None:
    clock = VirtualClock()
    pace = Pace(1000.0, clock)
    assert pace.batch_rows == 50
    assert pace.blocked_until() is None
    pace.spend(500)
    assert pace.blocked_until() == clock.now_ms() + 500
    clock.advance_ms(500)
    assert pace.blocked_until() is None
    clock.advance_ms(10_000)  # nothing to read meanwhile
    passed = 0
    while pace.blocked_until() is None:
        pace.spend(50)
        passed += 50
    assert passed == 1050


def splits(count: int) -> tuple[ParquetSplit, ...]:
    return tuple(ParquetSplit(i, ("f",), None, None, 10) for i in range(count))


def restored(count: int, parallelism: int):  # type: ignore[no-untyped-def]
    source = SparkParquetSource("x")
    context = EnumeratorContext("in", parallelism, "job")
    return source.create_enumerator(context, EnumeratorState(splits(count)))


def test_splits_are_handed_out_in_order_and_a_fast_reader_waits_for_a_slow_one() -> None:
    it = restored(12, parallelism=2)

    def ask(subtask: int) -> list[int]:
        return [split.index for split in it.next_splits(subtask)]

    # reader 0: 0,1      2,3    4    (waits for reader 1)          7 8
    # reader 1: (has not asked: may be reading split 0)     5 6
    assert ask(0) == [0, 1]
    assert ask(0) == [2, 3]
    assert ask(0) == [4]
    assert ask(0) == []
    assert ask(1) == [5, 6]
    assert ask(0) == [7, 8]
    assert [s.index for s in it.snapshot().splits] == [9, 10, 11]


def test_no_more_splits_is_told_to_every_reader() -> None:
    it = restored(1, parallelism=2)
    assert len(it.next_splits(1)) == 1
    assert it.next_splits(0) is None
    assert it.next_splits(1) is None


def test_jars_come_from_a_folder_where_there_is_no_network(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "thing-1.2.jar").touch()
    (tmp_path / "own-3.jar").touch()
    found = jars_for(["org.example:thing:1.2"], str(tmp_path))
    assert [Path(jar).name for jar in found] == ["thing-1.2.jar", "own-3.jar"]
    with pytest.raises(ConfigurationError, match=r"org.example:other:1 is not in that folder; cop"):
        jars_for(["org.example:other:1"], str(tmp_path))
    assert jars_for([], str(tmp_path)) == []
    with pytest.raises(ConfigurationError, match="a list of coordinates"):
        SparkOptions(packages="org.example:thing:1.2")


def test_jars_that_pyspark_has_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home" / "jars").mkdir(parents=True)
    (tmp_path / "home" / "jars" / "lz4-1.jar").touch()
    (tmp_path / "lz4-1.jar").touch()
    (tmp_path / "kafka-2.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "home"))
    found = jars_for(["org.example:kafka:2"], str(tmp_path))
    assert found == [str(tmp_path / "kafka-2.jar")]


def test_what_contradicts_itself_is_refused_where_it_is_written() -> None:
    with pytest.raises(ConfigurationError, match="either `topics` or those of a `pattern`"):
        SparkKafkaSource("h:1")
    with pytest.raises(ConfigurationError, match="needs the `group`"):
        SparkKafkaSource("h:1", "t", start="committed")
    with pytest.raises(ConfigurationError, match="start must be earliest"):
        SparkKafkaSource("h:1", "t", start="first")
    with pytest.raises(ConfigurationError, match="stop must be earliest"):
        SparkKafkaSource("h:1", "t", stop="committed")
    with pytest.raises(ConfigurationError, match="needs a time zone"):
        SparkKafkaSource("h:1", "t", start=datetime(2024, 1, 1))
    with pytest.raises(ConfigurationError, match="leave `discover` away"):
        SparkKafkaSource("h:1", "t", stop="latest", discover=timedelta(seconds=1))
    with pytest.raises(ConfigurationError, match="given together, or neither"):
        SparkKafkaSource("h:1", "t", select=["value"])
    early = datetime(1970, 1, 25, 20, 31, 23, 647_000, UTC)
    with pytest.raises(ConfigurationError, match="start: Kafka cannot be asked through Spark"):
        SparkKafkaSource("h:1", "t", start=datetime(1969, 12, 31, tzinfo=UTC))
    for name in ("start", "stop"):
        with pytest.raises(
            ConfigurationError, match=f"{name}: Kafka cannot be asked through Spark"
        ):
            SparkKafkaSource("h:1", "t", **{name: early})
    later = SparkKafkaSource("h:1", "t", start=early + timedelta(milliseconds=1)).read.start
    assert (later.kind, later.timestamp) == ("timestamp", 1 << 31)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert SparkKafkaSource("h:1", "t", start=epoch).read.start.kind == "earliest"
    assert SparkKafkaSource("h:1", "t").bounded is False
    assert SparkKafkaSource("h:1", "t", stop="latest").bounded


def test_the_plan_says_that_the_kafka_sink_is_at_least_once() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([{"value": "x"}]).sink_to(SparkKafkaSink("h:1", "t"))
    assert "at least once: after a failure Spark produces records again" in env.explain()


def test_secrets_of_settings_are_in_no_text() -> None:
    settings = {"sasl.jaas.config": "password='hidden'"}
    source = SparkKafkaSource("h:1", "t", settings=settings)
    sink = SparkKafkaSink("h:1", "t", settings=settings)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_source(source).sink_to(sink)
    texts = [repr(source), repr(source.read), repr(sink), env.explain(), env.explain("json")]
    assert not any("hidden" in text for text in texts)


def footer(name: str, *rows: int, width: float = 8.0) -> Footer:
    """A file whose row groups take ten bytes a row, behind four bytes."""
    starts = [4 + 10 * sum(rows[:i]) for i in range(len(rows))]
    groups = tuple(Group(n, at, n * 10) for n, at in zip(rows, starts, strict=True))
    return Footer(name, 14 + 10 * sum(rows), groups, {"a": width})


def test_row_groups_are_joined_up_to_a_split_and_greater_ones_are_parted() -> None:
    found = [footer("f", 40, 40, 40), footer("g", 10), footer("h", 250, 20)]
    cut = [pieces(one) for one in packed(runs(found, 100), 100, None)]
    assert [[(p.file, p.begin, p.end, p.whole) for p in split] for split in cut] == [
        [("f", 0, 80, True)],
        [("f", 80, 120, True), ("g", 0, 10, True)],
        [("h", 0, 83, False)],
        [("h", 83, 166, False)],
        [("h", 166, 250, False)],
        [("h", 250, 270, True)],
    ]
    assert cut[0][0] == Piece("f", 0, 80, 1214, 4, 800, True)
    assert cut[1][0] == Piece("f", 80, 120, 1214, 804, 400, True)
    assert len(packed(runs([footer(str(n), 1) for n in range(9)], 100), 100, 4)) == 3


def test_row_groups_that_lie_in_no_order_are_looked_for_in_the_whole_file() -> None:
    mixed = Footer("f", 900, (Group(10, 500, 100), Group(10, 4, 100), Group(10, 700, 9)), {})
    assert mixed.piece(10, 20) == Piece("f", 10, 20, 900, 0, 900, False)
    assert mixed.piece(0, 30) == Piece("f", 0, 30, 900, 0, 900, True)


def test_stretches_that_the_filter_empties_are_read_by_no_split() -> None:
    found = [footer("f", 40, 40, 40), footer("g", 40, 3)]
    assert step(found, 90) == 80
    assert step(found, 30) == 30
    assert step([footer("f", 40, 50, 3)], 90) == 90
    left = filtered_runs(found, 40, {("f", 0): 1, ("f", 2): 7, ("g", 1): 2})
    cut = [pieces(one) for one in packed(left, 80, None)]
    assert [[(p.file, p.begin, p.end) for p in split] for split in cut] == [
        [("f", 0, 120)],
        [("g", 40, 43)],
    ]


def test_rows_that_take_more_memory_make_smaller_splits() -> None:
    assert fitting_rows([], None) == 1 << 20
    assert fitting_rows([footer("f", 5), footer("g", 5, width=1024.0)], None) == 1 << 15
    assert fitting_rows([footer("f", 5, width=1024.0)], ["other"]) == 1 << 20
