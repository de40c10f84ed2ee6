"""What can be known of the Spark connectors without starting Spark or Ray."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from strom.api.connectors.base import EnumeratorContext
from strom.connectors.spark import SparkOptions, SparkParquetSink, SparkParquetSource, java
from strom.connectors.spark.bridge import decode, encode, storable
from strom.connectors.spark.parquet_source import EnumeratorState, Pace
from strom.connectors.spark.ranges import ParquetSplit
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
