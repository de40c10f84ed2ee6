"""The equivalence harness: one pipeline, run every way it may be run, gives one output.

    whole        local host, parallelism 1, no checkpoints            the reference
    checkpointed local host, parallelism 2, checkpoints all the time
    crashed      simulator, parallelism 2, a random task crashes after each of several checkpoints
    rescaled     simulator, parallelism 2, stopped after a checkpoint; its checkpoint continued at 3
    ray          Ray actors, parallelism 2, checkpoints (when asked for)

Outputs are compared as multisets: the order across parallel subtasks is nobody's promise.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from ..api.data_stream import DataStream
from ..api.environment import StreamExecutionEnvironment
from ..checkpoint.storage import open_storage
from ..core.config import CheckpointConfig, ExponentialDelayRestart, JobConfig
from ..core.ids import OperatorId
from ..engine.graph.model import JobGraph
from ..engine.hosts.driver import new_job_id
from ..engine.hosts.simulator import Simulation, SimulationPlan, SimulationResult

Build = Callable[[StreamExecutionEnvironment], DataStream]
"""Writes the pipeline into the environment and returns the stream whose records are compared."""

RESTART = ExponentialDelayRestart(initial=timedelta(milliseconds=20), maximum=timedelta(seconds=1))


@dataclass(frozen=True)
class Ways:
    """How much of each way to run."""

    seeds: Sequence[int] = range(4)
    crashes: int = 3
    checkpoint_interval: timedelta = timedelta(milliseconds=5)
    batch_size: int = 7
    ray: bool = False


class Difference(AssertionError):
    """A way of running gave another output; the message names the way and what differs."""


def assert_equivalent(
    build: Build, expected: Iterable[Any] | None = None, ways: Ways | None = None
) -> list[Any]:
    """Run `build` every way; raises Difference. Returns the reference output.

    `expected`: what the output must be, when known independently of the engine.
    """
    ways = ways or Ways()
    reference = run_local(build, JobConfig(parallelism=1))
    if expected is not None:
        compare("whole, against the expected output", list(expected), reference)
    config = _config(ways, 2)
    compare("local, checkpointed", reference, run_local(build, config))
    for seed in ways.seeds:
        plan = SimulationPlan(seed=seed, crash_after_checkpoints=ways.crashes)
        compare(f"crashed, seed {seed}", reference, run_simulated(build, config, plan))
        compare(f"rescaled, seed {seed}", reference, run_rescaled(build, ways, seed))
    if ways.ray:
        compare("ray", reference, run_local(build, config, host="ray"))
    return reference


def compare(way: str, expected: Sequence[Any], found: Sequence[Any]) -> None:
    """Raise Difference unless both are the same multiset."""
    want, got = Counter(map(_canonical, expected)), Counter(map(_canonical, found))
    if want == got:
        return
    missing, extra = list((want - got).elements()), list((got - want).elements())
    raise Difference(
        f"{way}: {len(found)} records, expected {len(expected)}; "
        f"{len(missing)} missing, for instance {sorted(missing)[:5]}; "
        f"{len(extra)} unexpected, for instance {sorted(extra)[:5]}"
    )


def run_local(build: Build, config: JobConfig, host: str = "local") -> list[Any]:
    """The output on a real host."""
    env = StreamExecutionEnvironment.get_execution_environment(config, host=host)
    with build(env).execute_and_collect("equivalence") as results:
        return list(results)


def run_simulated(build: Build, config: JobConfig, plan: SimulationPlan) -> list[Any]:
    """The output in the simulator."""
    graph, sink = job_of(build, config)
    result = Simulation(graph, plan).run()
    if result.outcome is None or result.outcome.status.value != "FINISHED":
        error = None if result.outcome is None else result.outcome.error
        raise Difference(f"seed {plan.seed}: the job did not finish: {error}")
    return _values(result, sink)


def run_rescaled(build: Build, ways: Ways, seed: int) -> list[Any]:
    """Stop at parallelism 2 after checkpoint 1, 2 or 3 and go on at parallelism 3; if the job is
    over before, its output is that of the first part alone."""
    with tempfile.TemporaryDirectory() as folder:
        graph, sink = job_of(build, _config(ways, 2, folder))
        storage = open_storage(folder, new_job_id())
        plan = SimulationPlan(seed=seed, stop_after_checkpoint=1 + seed % 3)
        first = Simulation(graph, plan, storage).run()
        if first.outcome is not None and first.outcome.status.value == "FINISHED":
            return _values(first, sink)
        assert first.last_checkpoint is not None
        point = Path(folder) / storage.job_id / f"chk-{first.last_checkpoint}"
        config = replace(_config(ways, 3, folder), restore_from=str(point))
        graph, sink = job_of(build, config)
        second = Simulation(graph, SimulationPlan(seed=seed)).run()
        if second.outcome is None or second.outcome.status.value != "FINISHED":
            error = None if second.outcome is None else second.outcome.error
            raise Difference(f"seed {seed}: the rescaled job did not finish: {error}")
        merged = {**first.published.get(sink, {}), **second.published.get(sink, {})}
        return [value for values in merged.values() for value in values]


def job_of(build: Build, config: JobConfig) -> tuple[JobGraph, OperatorId]:
    """The job graph that collects the output of `build`, and the collecting operator's id."""
    from ..api.builtin_sinks import CollectSink

    env = StreamExecutionEnvironment.get_execution_environment(config)
    build(env).sink_to(CollectSink()).name("Sink: Collect").uid("collect")
    graph = env.get_job_graph("equivalence")
    operators = [o for v in graph.vertices for o in v.operators]
    return graph, next(o.operator_id for o in operators if isinstance(_sink(o.spec), CollectSink))


def _sink(spec: Any) -> Any:
    return getattr(spec, "sink", None)


def _config(ways: Ways, parallelism: int, storage: str | None = None) -> JobConfig:
    return JobConfig(
        parallelism=parallelism,
        batch_size=ways.batch_size,
        checkpoint=CheckpointConfig(
            interval=ways.checkpoint_interval, storage=storage, retained=2, tolerable_failures=100
        ),
        restart=RESTART,
    )


def _values(result: SimulationResult, sink: OperatorId) -> list[Any]:
    return [value for values in result.published.get(sink, {}).values() for value in values]


def _canonical(value: Any) -> str:
    return repr(tuple(value)) if isinstance(value, tuple) else repr(value)
