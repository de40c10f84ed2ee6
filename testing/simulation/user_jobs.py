"""A user's pipeline under crashes: `strom.testing.simulate`.

    simulate(job)                          a hundred seeds; raises SimulationFailed at the first
    simulate(job, replay="seed=7 ...")     the one that was printed

`job` writes a pipeline into an environment and returns the stream, or several by name, whose
records are compared with those of an undisturbed run. All runs are in this process and thread,
under a virtual clock: nothing waits, and the same case is the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ...api.connectors.collection import CollectionSource
from ...api.specs.records import SourceSpec
from ...api.streams.data_stream import DataStream, StreamExecutionEnvironment
from ...api.streams.settings import DataStreamSink
from ...checkpoint.storage import MemoryStorage
from ...core.config import JobConfig
from ...core.errors import ConfigurationError, StromError
from ...core.job_status import JobStatus
from ...engine.graph.model import JobGraph
from ...engine.hosts.simulator import Simulation, SimulationError, SimulationPlan
from ..equivalence import WATERMARK_INTERVAL, NothingProven, compare
from ..probes import Build, CollectProbe, End
from ..scripted import ScriptedSource
from .case import Case, parse
from .draws import Faults, draw
from .running import Ran, run
from .running_seeds import Totals, run_cases, undisturbed
from .shrinking import shrunk

CheckOutput = Callable[[list[Any]], None]
"""Raises AssertionError if the output is not as it has to be."""


class SimulationFailed(AssertionError):
    """A seed failed. `case` replays it; it is short, if it was to be."""

    def __init__(self, case: Case, why: str, first: Case) -> None:
        self.case = case
        self.why = why
        drawn = "" if first == case else f"\n    drawn as: {first}"
        super().__init__(f'{why}\nreplay with simulate(job, replay="{case}"){drawn}')


def simulate(
    job: Build,
    seeds: int | Iterable[int] = 100,
    faults: Faults | None = None,
    check: CheckOutput | None = None,
    replay: str | None = None,
    shrink: bool = True,
) -> Totals:
    """Run `job` under what each seed draws within `faults`; returns what was done in all.

    `check` is given the records of a run (pairs of name and record if there are several streams);
    None: they are those of an undisturbed run, in any order. `replay`: this case, and no seed.
    `shrink`: look for a shorter case that fails, which takes up to 200 runs more.

    Raises ConfigurationError if the job cannot be simulated; SimulationFailed at the first seed
    that fails; NothingProven if none did, but no crash came while there was a checkpoint to go back
    to and input left: the job needs more records.
    """
    faults = faults or Faults()
    if "at_least_once" in faults.modes and check is None:
        raise ConfigurationError(
            "records that count at least once come out more often than undisturbed: "
            "simulate(..., check=...) has to say what holds"
        )
    pipeline = _Pipeline(job, check)
    if replay is not None:
        return pipeline.run_all([parse(replay)], shrink)
    numbers = range(seeds) if isinstance(seeds, int) else seeds
    totals = pipeline.run_all((draw(seed, faults) for seed in numbers), shrink)
    disturbs = faults.crashes + faults.coordinators + faults.after > 0
    if disturbs and totals.seeds > 1 and not totals.midway:
        raise NothingProven(
            f"in {totals.seeds} seeds no crash came between a checkpoint and the end of the input: "
            "give the job more records, or simulate more seeds"
        )
    return totals


class _Pipeline:
    """The user's job, with its graphs and undisturbed outputs as they were needed."""

    def __init__(self, job: Build, check: CheckOutput | None) -> None:
        self._job = partial(_built, job)
        self._check = check
        self._expected: dict[int, list[Any]] = {}
        """By how many records each source may have."""
        self._holds: dict[int, bool] = {0: True}
        """By the same, whether `check` holds of an undisturbed run."""

    def run_all(self, cases: Iterable[Case], shrink: bool) -> Totals:
        with undisturbed():
            self._reference(0)  # what is wrong without any fault is no seed's
        totals = run_cases(cases, self.run, fail_fast=True)
        if totals.violations:
            text, why = totals.violations[0]
            first = case = parse(text)
            if shrink:
                with undisturbed():
                    case = shrunk(first, self._failure, tries=200)
                    why = self._failure(case) or why
            raise SimulationFailed(case, why, first)
        return totals

    def _failure(self, case: Case) -> str | None:
        """Of a shorter case. What `check` says of fewer records without any fault, such as that
        there are to be more, is no failure."""
        if not self._holds_of(case.records):
            return None
        try:
            self.run(case)
        except (AssertionError, StromError) as error:
            return f"{type(error).__name__}: {error}"
        return None

    def _holds_of(self, records: int) -> bool:
        if self._check is not None and records not in self._holds:
            try:
                self._check(self._reference(records))
                self._holds[records] = True
            except AssertionError:
                self._holds[records] = False
        return self._check is None or self._holds[records]

    def run(self, case: Case) -> Ran:
        probe = CollectProbe(self._job)
        ran = run(case, probe, partial(self._graph, probe, case.records))
        if self._check is not None:
            self._check(ran.output)
        else:
            compare("the output", self._reference(case.records), ran.output)
        return ran

    def _graph(self, probe: CollectProbe, records: int, config: JobConfig) -> JobGraph:
        """What the job itself says of checkpoints, restarts and its autoscaler does not count."""
        graph = probe.graph(replace(config, max_parallelism=JobConfig().max_parallelism))
        own = replace(
            graph.config,
            checkpoint=config.checkpoint,
            restart=config.restart,
            autoscaler=config.autoscaler,
            restore_from=config.restore_from,
        )
        return shortened(replace(graph, config=own), records)

    def _reference(self, records: int) -> list[Any]:
        """The output of one undisturbed run at parallelism 1."""
        if records not in self._expected:
            probe = CollectProbe(self._job)
            graph = probe.graph(JobConfig(auto_watermark_interval=WATERMARK_INTERVAL))
            check_bounded(graph)
            plain = JobConfig()
            config = replace(graph.config, checkpoint=plain.checkpoint, autoscaler=plain.autoscaler)
            graph = shortened(replace(graph, config=config), records)
            result = Simulation(graph, SimulationPlan(brisk=True), MemoryStorage("whole")).run()
            outcome = result.outcome
            if outcome is None or outcome.status is not JobStatus.FINISHED:
                raise SimulationError(f"undisturbed, the job failed: {outcome and outcome.error}")
            published = {o: list(values.values()) for o, values in result.published.items()}
            self._expected[records] = probe.output(published)
        return self._expected[records]


def _built(job: Build, env: StreamExecutionEnvironment) -> End | Mapping[str, End]:
    built = job(env)
    ends = built.values() if isinstance(built, Mapping) else [built]
    if not ends or not all(isinstance(end, (DataStream, DataStreamSink)) for end in ends):
        raise ConfigurationError(
            "a job that is simulated returns the stream whose records are looked at, or a dict of "
            f"streams by name; it returned {built!r}"
        )
    return built


def check_bounded(graph: JobGraph) -> None:
    """ConfigurationError if a source never ends."""
    for operator in (o for vertex in graph.vertices for o in vertex.operators):
        if isinstance(operator.spec, SourceSpec) and not operator.spec.source.bounded:
            raise ConfigurationError(
                f"source '{operator.name}' never ends, so no simulation of it would: give the job "
                "a bounded one"
            )


def shortened(graph: JobGraph, records: int) -> JobGraph:
    """The graph with at most so many records of each source that holds them itself (collections
    and scripts); 0: all."""
    if not records:
        return graph
    vertices = tuple(
        replace(
            vertex,
            operators=tuple(
                replace(o, spec=replace(o.spec, source=_cut(o.spec.source, records)))
                if isinstance(o.spec, SourceSpec)
                else o
                for o in vertex.operators
            ),
        )
        for vertex in graph.vertices
    )
    return replace(graph, vertices=vertices)


def _cut(source: Any, records: int) -> Any:
    match source:
        case CollectionSource():
            return CollectionSource(source.values[:records], source.scalars)
        case ScriptedSource():
            each = max(1, records // max(1, len(source.lanes)))
            lanes = [lane[:each] for lane in source.lanes]
            return ScriptedSource(lanes, source.schema, source._at_once)
    return source
