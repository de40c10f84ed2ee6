"""`python -m benchmarks connectors`: which measurements there are, and their lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from strom import StromError

from .lines import Line
from .systems import Systems


@dataclass(frozen=True)
class Amounts:
    """How much to measure. events: records of 100 bytes that the fastest are measured with; slower
    ones take a part of them, files eight times as many rows. micro_batches: through the bridge.
    rate, seconds: of the latencies. peers: a folder for the environments of others; None: the
    user's cache."""

    events: int = 5_000_000
    parallelism: int = 2
    host: str = "ray"
    micro_batches: int = 200
    rate: int = 20_000
    seconds: float = 10.0
    peers: str | None = None

    def part(self, divisor: float) -> int:
        return max(1, round(self.events / divisor))


Measurement = Callable[[Systems, Amounts], Iterable[Line]]


def _kafka_native(systems: Systems, amounts: Amounts) -> Iterator[Line]:
    from .kafka_in import measure_source
    from .kafka_out import measure_sink

    yield from measure_source(systems, amounts.events, amounts.parallelism, amounts.host)
    yield from measure_sink(systems, amounts.part(2))


def _kafka_count(systems: Systems, amounts: Amounts) -> Iterable[Line]:
    from .kafka_count import measure_count

    return measure_count(systems, amounts.part(3), amounts.parallelism, amounts.host)


def _kafka_latency(systems: Systems, amounts: Amounts) -> Iterable[Line]:
    from .kafka_latency import measure_latency

    a = amounts
    return measure_latency(systems, a.rate, a.seconds, a.parallelism, a.host)


def _kafka_spark(systems: Systems, amounts: Amounts) -> Iterator[Line]:
    from .kafka_latency import measure_spark_latency
    from .through_spark import kafka_spark

    a = amounts
    yield from kafka_spark(systems, a.part(2.5), a.parallelism)
    yield measure_spark_latency(systems, a.rate, a.seconds, a.parallelism)


def _kafka_peers(systems: Systems, amounts: Amounts) -> Iterable[Line]:
    from .peers import measure_peers

    events = amounts.part(2.5)
    return measure_peers(systems, events, amounts.parallelism, amounts.host, amounts.peers)


def _parquet_spark(systems: Systems, amounts: Amounts) -> Iterator[Line]:
    from .through_spark import parquet_spark

    yield parquet_spark(systems, amounts.part(0.5), amounts.parallelism)


def _bridge(systems: Systems, amounts: Amounts) -> Iterator[Line]:
    from .bridge import OVERHEAD_OF, measure_overhead, measure_soak

    yield measure_overhead(systems, min(amounts.micro_batches, OVERHEAD_OF))
    yield measure_soak(systems, amounts.micro_batches)


def _parquet_native(systems: Systems, amounts: Amounts) -> Iterator[Line]:
    from .parquet_native import parquet_native

    yield parquet_native(8 * amounts.events, amounts.parallelism, amounts.host)


MEASUREMENTS: dict[str, Measurement] = {
    "kafka_native": _kafka_native,
    "kafka_count": _kafka_count,
    "kafka_latency": _kafka_latency,
    "kafka_spark": _kafka_spark,
    "kafka_peers": _kafka_peers,
    "parquet_native": _parquet_native,
    "parquet_spark": _parquet_spark,
    "bridge": _bridge,
}
"""By name, in the order in which they run."""

NEED_SPARK = frozenset({"kafka_spark", "parquet_spark", "bridge", "kafka_peers"})
"""Ray must know of Java before it starts."""


def measure(
    names: Sequence[str], amounts: Amounts, systems: Systems | None = None
) -> Iterator[Line]:
    """The lines of these measurements; of one that fails, a line that says why, and then the next.
    `systems`: those to use; None: own ones, which end with the last line."""
    with systems or Systems() as used:
        if not NEED_SPARK.isdisjoint(names):
            used.prepare_spark()
        for name in names:
            try:
                yield from MEASUREMENTS[name](used, amounts)
            except StromError as error:
                yield {"name": name, "error": str(error)}
