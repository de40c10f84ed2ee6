"""Nonsense in settings and unusual values in streams: a clear error, or exact results; no hang."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
import strom
from chaos_kit import config, environment, failure, gather, within
from strom import (
    CheckpointConfig,
    ExchangeConfig,
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    JobConfig,
)
from strom.connectors.datagen import DataGenSource

SECOND = timedelta(seconds=1)

# --- settings -------------------------------------------------------------------------------------

NONSENSE: dict[str, Callable[[], Any]] = {
    "buffer_bytes": lambda: ExchangeConfig(buffer_bytes=0),
    "min_buffer_bytes": lambda: ExchangeConfig(min_buffer_bytes=-1),
    "exclusive_buffers": lambda: ExchangeConfig(exclusive_buffers=0),
    "floating_buffers": lambda: ExchangeConfig(floating_buffers=-1),
    "buffer_timeout": lambda: ExchangeConfig(buffer_timeout=-SECOND),
    "checkpoint interval": lambda: CheckpointConfig(interval=timedelta(0)),
    "checkpoint interval ": lambda: CheckpointConfig(interval=100),  # type: ignore[arg-type]
    "checkpoint timeout": lambda: CheckpointConfig(timeout=timedelta(0)),
    "min_pause": lambda: CheckpointConfig(min_pause=-SECOND),
    "retained": lambda: CheckpointConfig(retained=0),
    "tolerable_failures": lambda: CheckpointConfig(tolerable_failures=-1),
    "storage": lambda: CheckpointConfig(storage=5),  # type: ignore[arg-type]
    "restart attempts": lambda: FixedDelayRestart(attempts=-1),
    "restart delay": lambda: FixedDelayRestart(delay=-SECOND),
    "restart maximum": lambda: ExponentialDelayRestart(initial=SECOND, maximum=timedelta(0)),
    "multiplier": lambda: ExponentialDelayRestart(multiplier=0.5),
    "jitter": lambda: ExponentialDelayRestart(jitter=math.nan),
    "failures": lambda: FailureRateRestart(failures=-1),
    "batch_size": lambda: JobConfig(batch_size=0),
    "batch_size ": lambda: JobConfig(batch_size=1.5),  # type: ignore[arg-type]
    "parallelism": lambda: JobConfig(parallelism=0),
    "parallelism ": lambda: JobConfig(parallelism="2"),  # type: ignore[arg-type]
    "max_parallelism": lambda: JobConfig(max_parallelism=40_000),
    "max_parallelism (4)": lambda: JobConfig(parallelism=5, max_parallelism=4),
    "auto_watermark_interval": lambda: JobConfig(auto_watermark_interval=-SECOND),
    "cancellation_timeout": lambda: JobConfig(cancellation_timeout=-SECOND),
    "metrics_interval": lambda: JobConfig(metrics_interval=-SECOND),
    "slot_cpus": lambda: JobConfig(slot_cpus=math.nan),
    "slot_request_timeout": lambda: JobConfig(slot_request_timeout=-SECOND),
    "restart": lambda: JobConfig(restart="fixed"),  # type: ignore[arg-type]
    "checkpoint": lambda: JobConfig(checkpoint=None),  # type: ignore[arg-type]
    "restore_from": lambda: JobConfig(restore_from=5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("setting", NONSENSE)
def test_a_nonsensical_setting_is_refused_by_name(setting: str) -> None:
    with pytest.raises(strom.ConfigurationError) as caught:
        NONSENSE[setting]()
    assert setting.strip() in str(caught.value)


def test_more_subtasks_than_key_groups_are_refused() -> None:
    env = environment(config(parallelism=2, max_parallelism=4))
    stream = env.from_collection([1]).map(lambda n: n).set_parallelism(5)
    with pytest.raises(strom.StromError, match="5"):
        gather(stream)


def test_an_unknown_storage_is_refused_at_the_start() -> None:
    settings = config("no-such-protocol://x", interval_ms=10)
    with pytest.raises(strom.ConfigurationError, match="no-such-protocol"):
        gather(environment(settings).from_collection([1]))


@pytest.mark.parametrize(
    "exchange",
    [
        ExchangeConfig(buffer_bytes=1, min_buffer_bytes=1, exclusive_buffers=1, floating_buffers=0),
        ExchangeConfig(buffer_timeout=timedelta(0)),
        ExchangeConfig(buffer_timeout=timedelta(days=1)),
    ],
    ids=["least memory", "no waiting", "waiting for ever"],
)
def test_extreme_settings_lose_nothing(exchange: ExchangeConfig) -> None:
    env = environment(config(interval_ms=5, exchange=exchange, batch_size=3, chaining=False))
    found = gather(env.from_collection(list(range(500))).rebalance().map(lambda n: n))
    assert sorted(found) == list(range(500))


# --- empty ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("interval_ms", [None, 5])
@pytest.mark.parametrize(
    "build",
    [
        lambda s: s,
        lambda s: s.map(lambda n: n),
        lambda s: s.key_by(lambda n: n).reduce(lambda a, b: a),
        lambda s: s.filter(lambda n: False),
        lambda s: s.union(s.map(lambda n: n)).rebalance().flat_map(lambda n: []),
        lambda s: (
            s.key_by(lambda n: n)
            .window(strom.TumblingEventTimeWindows.of(SECOND))
            .reduce(lambda a, b: a)
        ),
    ],
)
def test_an_empty_stream_ends(build: Any, interval_ms: int | None) -> None:
    env = environment(config(interval_ms=interval_ms))
    assert gather(build(env.from_collection([]))) == []


def test_sources_without_records_end() -> None:
    env = environment(config())
    table = pa.table({"n": pa.array([], pa.int64())})
    none = env.from_source(DataGenSource(lambda start, n: [], 0))
    three = DataGenSource(lambda s, n: list(range(s, s + n)), 3, splits=64)
    stream = env.from_collection(table).map(lambda row: row.n)
    assert sorted(gather(stream.union(none, env.from_source(three)))) == [
        0,
        1,
        2,
    ]


def test_a_job_without_sink_or_source_is_refused() -> None:
    env = environment(config())
    with pytest.raises(strom.StromError):
        env.execute("nothing")
    env.from_collection([1]).map(lambda n: n)
    with pytest.raises(strom.StromError, match="sink"):
        env.execute("no sink")


# --- keys -----------------------------------------------------------------------------------------

NAN = float("nan")
KEYS = [None, NAN, float("-inf"), 0, -0.0, False, 1, True, 1.0, "", "1", "ü", "🜁" * 50, b"", b"1"]
KEYS += [(), (1,), (1, "a"), (None, NAN), (("deep",), 2), 2**40, -(2**63), 2**64, 1.5, "\x00"]


def by_key(records: list[tuple[Any, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for key, n in records:
        found[repr(key)].append(n)
    return {key: sorted(values) for key, values in found.items()}


def test_unusual_keys_are_kept_apart_and_none_is_lost() -> None:
    """Equal keys of Python (0, -0.0 and False; 1, True and 1.0) may share a group; others not."""
    records = [(key, n) for n, key in enumerate(KEYS * 20)]

    def running_count(stream: Any) -> Any:
        counted = stream.map(lambda record: (record[0], 1)).key_by(lambda record: record[0])
        return counted.reduce(lambda a, b: (b[0], a[1] + b[1]))

    env = environment(config(interval_ms=5, batch_size=16))
    found = gather(running_count(env.from_collection(records)))
    assert len(found) == len(records)
    most = Counter({repr(key): 0 for key in KEYS})
    for key, n in found:
        most[repr(key)] = max(most[repr(key)], n)
    shared = {"0", "-0.0", "False", "1", "True", "1.0"}
    assert {k: n for k, n in most.items() if k not in shared} == {
        repr(k): 20 for k in KEYS if repr(k) not in shared
    }


@pytest.mark.parametrize(
    "key", [[1], {"a": 1}, {1, 2}, object(), len], ids=lambda key: type(key).__name__
)
def test_a_key_without_a_stable_hash_is_refused(key: Any) -> None:
    env = environment(config())
    text = failure(env.from_collection([1, 2]).key_by(lambda n: key).reduce(lambda a, b: a))
    assert "key" in text
    assert type(key).__name__ in text


def test_null_and_nan_keys_in_columns() -> None:
    table = pa.table({"k": pa.array([1.0, None, NAN, None, NAN, 1.0]), "v": [1, 2, 4, 8, 16, 32]})
    env = environment(config())
    sums: dict[str, int] = {}
    for row in gather(env.from_collection(table).key_by("k").sum("v")):
        sums[repr(row.k)] = max(sums.get(repr(row.k), 0), row.v)
    assert sums == {"1.0": 33, "None": 10, "nan": 20}


def test_a_missing_column_is_named() -> None:
    table = pa.table({"k": [1], "v": [2]})
    stream = environment(config()).from_collection(table)
    with pytest.raises(strom.GraphError, match=r"^key_by\(nope\): the stream has no column 'nope'"):
        stream.key_by("nope")
    text = failure(stream.map_batches(lambda batch: batch).key_by("nope").sum("v"))
    assert "nope" in text


# --- values ---------------------------------------------------------------------------------------

ODD: list[Any] = [None, NAN, "", "ä\u0000\u202e🜁", b"\xff" * 1000, 10**100, [], [None], {}, set()]
ODD += [{"deep": [{"er": (1, [2])}]}, -0.0, math.inf, range(3), timedelta.max, Exception("x"), ...]


@pytest.mark.parametrize("interval_ms", [None, 5])
def test_odd_values_travel_unchanged(interval_ms: int | None) -> None:
    env = environment(config(interval_ms=interval_ms, chaining=False, batch_size=2))
    found = gather(env.from_collection(ODD).rebalance().map(lambda value: value))
    assert Counter(map(repr, found)) == Counter(map(repr, ODD))


def test_a_million_characters_and_ten_thousand_columns() -> None:
    names = [f"column-{i}-ü" for i in range(10_000)]
    table = pa.table([[i, i + 1] for i in range(len(names))], names=names)
    exchange = ExchangeConfig(buffer_bytes=4096)
    env = environment(config(chaining=False, exchange=exchange))
    wide = env.from_collection(table).rebalance().map_batches(lambda batch: batch)
    rows = gather(wide.map(lambda row: (len(row), sum(row), "x" * 1_000_000)))
    assert sorted(row[:2] for row in rows) == [(10_000, 49_995_000), (10_000, 50_005_000)]
    assert {len(row[2]) for row in rows} == {1_000_000}


@pytest.mark.parametrize("value", [1.5, -0.25, math.nan, math.inf, 2.0**70])
def test_a_fraction_is_no_integer(value: float) -> None:
    """Arrow would cut it."""
    env = environment(config())
    row = strom.Types.ROW_NAMED(["n"], [strom.Types.LONG()])
    with pytest.raises(strom.StromError):
        gather(env.from_collection([1, 2]).map(lambda n: (value,), output_type=row))


def test_whole_floats_and_unsigned_integers_fit_integer_columns() -> None:
    from strom.core.batch import ObjectBatch, to_columns

    schema = pa.schema([("n", pa.int64()), ("u", pa.uint64())])
    batch = to_columns(ObjectBatch([(1.0, 2**63), (None, None)]), schema)
    assert batch.data.to_pylist() == [{"n": 1, "u": 2**63}, {"n": None, "u": None}]


def test_endless_output_of_one_record_can_be_cancelled() -> None:
    def endless(n: int) -> Any:
        while True:
            yield n

    settings = replace(config(), cancellation_timeout=timedelta(seconds=1))
    env = environment(settings)
    env.from_collection([1]).flat_map(endless).rebalance().sink_to(strom.DiscardSink())
    client = env.execute_async("endless")
    within(5.0, "cancel", client.cancel)
