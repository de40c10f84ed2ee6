"""One case of a job of `topologies`, with what has to come out of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from ...api.streams.data_stream import StreamExecutionEnvironment
from ...core.config import JobConfig
from ...engine.graph.model import JobGraph
from ..equivalence import Difference, canonical, compare
from ..probes import CollectProbe
from .case import Case, Sink
from .invariants import Violation
from .reading import LETTERS, Reading, expected_letters
from .records import Limit, data_of, refused_of
from .running import Ran, run
from .sinks import BlindSink, CountedSink, StagedSink
from .topologies import TOPOLOGIES, AtLeast

_STAGED: Final[dict[Sink, type[StagedSink]]] = {
    "staged": StagedSink,
    "counted": CountedSink,
    "blind": BlindSink,
}


@lru_cache(maxsize=3000)
def _built(
    job: str, variant: int, records: int, refused: int, limit: Limit, sink: Sink, parallelism: int
) -> tuple[CollectProbe, JobGraph]:
    topology, data = TOPOLOGIES[job], data_of(variant, records, refused)

    def build(env: StreamExecutionEnvironment) -> dict[str, Any]:
        read = Reading(env, limit)
        streams: dict[str, Any] = dict(topology.build(read, data))
        if read.letters:
            first, *more = read.letters
            streams[LETTERS] = first.union(*more) if more else first
        if sink != "collect":
            made = _STAGED[sink]
            streams = {name: stream.sink_to(made()) for name, stream in streams.items()}
        return streams

    probe = CollectProbe(build)
    config = JobConfig(parallelism=parallelism, max_parallelism=16)
    return probe, probe.graph(config)


@lru_cache(maxsize=1000)
def _expected(job: str, variant: int, records: int, refused: int) -> list[Any]:
    topology, data = TOPOLOGIES[job], data_of(variant, records, refused)
    return [*topology.expect(data), *expected_letters(data, topology.sources)]


def run_random(case: Case) -> Ran:
    """A case of one of our topologies. Raises Violation, Difference or SimulationError."""

    def built(parallelism: int) -> tuple[CollectProbe, JobGraph]:
        records = case.variant, case.records, case.refused
        return _built(case.job, *records, case.limit, case.sink, parallelism)

    def graph_of(config: JobConfig) -> JobGraph:
        return replace(built(config.parallelism)[1], config=config)

    ran = run(case, built(case.parallelism[0])[0], graph_of)
    expected = _expected(case.job, case.variant, case.records, case.refused)
    at_least = TOPOLOGIES[case.job].at_least
    if case.limit == "short" and (ran.failed or _has_to_fail(case)):
        check_failed(ran, expected)
    elif case.mode == "at_least_once":
        check_at_least("the output", expected, ran.output, at_least or "set")
    else:
        compare("the output", expected, ran.output)
    return ran


def _has_to_fail(case: Case) -> bool:
    """Whether there is a record more to be put aside than may be: by one subtask, see `reading`."""
    data = data_of(case.variant, case.records, case.refused)
    sources = [{"a": data.first, "b": data.second}[n] for n in TOPOLOGIES[case.job].sources]
    return any(map(refused_of, sources))


def check_failed(ran: Ran, expected: Sequence[Any]) -> None:
    """Of a job that was to put more records aside than it may: it failed, and what had come out
    of it until then is right."""
    if ran.failed is None:
        raise Violation("more records were put aside than the limit allows, and the job finished")
    more = Counter(map(canonical, ran.output)) - Counter(map(canonical, expected))
    if more:
        raise Difference(f"of a job that failed came {sorted(more.elements())[:5]} too much")


def check_at_least(
    way: str, expected: Sequence[Any], found: Sequence[Any], at_least: AtLeast
) -> None:
    """Difference unless everything came, and nothing unheard-of."""
    if at_least == "set":
        compare(way, sorted(set(map(repr, expected))), sorted(set(map(repr, found))))
        return
    want, got = _largest(expected), _largest(found)
    unknown = sorted(map(repr, got.keys() - want.keys()))
    short = [(who, n, got.get(who)) for who, n in want.items() if got.get(who, n - 1) < n]
    if unknown or short:
        raise Difference(f"{way}: unexpected: {unknown[:5]}, too small: {short[:5]}")


def _largest(records: Sequence[Any]) -> dict[Any, int]:
    """Of each record, without its numbers: the last one, at its largest."""
    found: dict[Any, int] = {}
    for name, record in records:
        values = tuple(record) if isinstance(record, tuple) else (record,)
        who = (name, values[:3] if len(values) > 3 else values[:-1])
        found[who] = max(found.get(who, values[-1]), values[-1])
    return found
