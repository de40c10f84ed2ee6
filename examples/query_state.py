"""State that is looked into, corrected, and given to another program.

A job adds up the delays of flights by airline, and remembers each aircraft's last flight. It is
stopped with a savepoint in the middle. DuckDB asks the savepoint who is late most; one airline's
total turns out to be wrong (a feed had sent minutes as seconds for an hour, say) and is corrected
in a second savepoint. From that another version of the program goes on, at another parallelism and
max parallelism and with its state in RocksDB, to the end of the same flights. What it ends with is
compared with a plain computation; the program exits non-zero if they differ.

    python examples/query_state.py
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import strom
from strom import (
    DiscardSink,
    EmbeddedRocksDBStateBackend,
    JobConfig,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
from strom.connectors.datagen import DataGenSource
from strom.connectors.files import FileSink

AIRLINES = ("AA", "B6", "DL", "UA", "WN")
FLIGHTS = 4_000
SCHEMA = pa.schema([("carrier", pa.string()), ("tail", pa.string()), ("delay", pa.int64())])
WRONG = "DL"
CORRECTION = -1_000
"""Minutes that this airline has too many."""


def flights(start: int, count: int) -> pa.RecordBatch:
    """Flights `start` on, made up, the same each time."""
    numbers = range(start, start + count)
    columns = [
        [AIRLINES[n * 7 % 5] for n in numbers],
        [f"N{100 + n * 13 % 40}" for n in numbers],
        [n * 31 % 90 - 15 for n in numbers],
    ]
    return pa.RecordBatch.from_arrays([pa.array(one) for one in columns], schema=SCHEMA)


class Delays(KeyedProcessFunction):
    """The minutes that an airline was late, and its flights."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total"))
        self.flights = runtime_context.get_state(ValueStateDescriptor("flights"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.total.update((self.total.value() or 0) + value.delay)
        self.flights.update((self.flights.value() or 0) + 1)
        yield value.carrier, self.total.value(), self.flights.value()


class Means(Delays):
    """The next version: the mean, from the state of the first one."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        for carrier, total, number in super().process_element(value, ctx):
            yield {"carrier": carrier, "total": total, "flights": number, "mean": total / number}


class LastFlight(KeyedProcessFunction):
    """The last flight of an aircraft."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.last.update(value)
        yield from ()


def program(env: StreamExecutionEnvironment, function: KeyedProcessFunction, rate: int) -> Any:
    """The stream of what `function` says of airlines."""
    source = DataGenSource(flights, rate=rate, count=FLIGHTS, schema=SCHEMA)
    read = env.from_source(source, source_name="flights").uid("flights")
    read.key_by("tail").process(LastFlight()).uid("aircraft").sink_to(DiscardSink()).uid("none")
    return read.key_by("carrier").process(function).uid("delays")


def stopped(folder: Path) -> str:
    """A savepoint of the first program, half-way."""
    env = StreamExecutionEnvironment.get_execution_environment(JobConfig(parallelism=2))
    env.enable_checkpointing(timedelta(milliseconds=200), storage=str(folder / "checkpoints"))
    program(env, Delays(), rate=1_000).sink_to(DiscardSink()).uid("out")
    client = env.execute_async("delays")
    while client.metrics()["checkpoints"]["completed"] < 3:
        time.sleep(0.05)
    return client.stop_with_savepoint(False, str(folder / "savepoints")).result()


def corrected(savepoint: str, folder: Path) -> str:
    """A savepoint with one airline's total as it ought to be, for another max parallelism."""
    snapshot = strom.state.open(savepoint)
    late = snapshot.sql(
        """
        SELECT t.key AS carrier, t.value AS minutes, f.value AS flights
        FROM state.total t JOIN state.flights f USING (key) ORDER BY minutes DESC
        """
    )
    print("who is late, in the savepoint:", *late.to_pylist(), sep="\n  ")
    newest = snapshot.sql("SELECT count(*) AS n, max(value.delay) AS most FROM state.last")
    print("aircraft seen, and the longest last delay:", newest.to_pylist()[0])
    total = snapshot.sql(f"SELECT value FROM state.total WHERE key = '{WRONG}'")["value"][0].as_py()
    edits = snapshot.edit().set("delays", "total", WRONG, total + CORRECTION).drop("aircraft")
    edited = edits.max_parallelism(512).save(str(folder / "corrected"))
    for one in snapshot.diff(edited).states:
        print(f"{one.operator}.{one.state}: {one.changed} changed, {one.removed} removed")
    verified = strom.state.open(edited).verify()
    print(f"the corrected savepoint: {verified.rows} rows, {verified.problems or 'fine'}")
    return edited


def continued(savepoint: str, folder: Path) -> dict[str, tuple[int, int]]:
    """What the second program ends with, by airline."""
    env = StreamExecutionEnvironment.get_execution_environment(
        JobConfig(parallelism=3, max_parallelism=512, restore_from=savepoint)
    )
    env.set_state_backend(EmbeddedRocksDBStateBackend())
    env.enable_checkpointing(timedelta(milliseconds=200), storage=str(folder / "checkpoints"))
    sink = FileSink(str(folder / "means"), format="parquet")
    program(env, Means(), rate=100_000).sink_to(sink).uid("means")
    env.execute("means")
    import pyarrow.parquet as pq

    rows = pq.read_table(folder / "means").to_pylist()
    ends = sorted(rows, key=lambda row: row["flights"])
    return {row["carrier"]: (row["total"], row["flights"]) for row in ends}


def wanted() -> dict[str, tuple[int, int]]:
    """The same without streams."""
    found: dict[str, tuple[int, int]] = {WRONG: (CORRECTION, 0)}
    for row in flights(0, FLIGHTS).to_pylist():
        total, number = found.get(row["carrier"], (0, 0))
        found[row["carrier"]] = total + row["delay"], number + 1
    return found


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="strom-state-") as name:
        folder = Path(name)
        found = continued(corrected(stopped(folder), folder), folder)
    right = found == wanted()
    print("in the end:", *sorted(found.items()), "as it must be" if right else wanted(), sep="\n  ")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
