"""Jobs that start from an edited checkpoint: what its sinks had prepared and not published is
published, and what comes then is, too, whatever number their checkpoints have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import strom
from strom import ReduceFunction, Row
from strom.checkpoint.storage import open_storage
from strom.core.job_status import JobStatus
from strom.engine.hosts.driver import new_job_id
from strom.engine.hosts.simulator import Simulation, SimulationPlan
from strom.testing.equivalence import Ways, checkpointed, compare, run_local
from strom.testing.probes import CollectProbe
from strom.testing.scripted import ScriptedSource

ROWS = [Row("k", "v")(n % 5, n) for n in range(200)]


class Sum(ReduceFunction):
    def reduce(self, a: Any, b: Any) -> Any:
        return Row("k", "v")(a.k, a.v + b.v)


def build(env: Any) -> Any:
    rows = env.from_source(ScriptedSource([ROWS])).uid("rows")
    return rows.key_by(lambda row: row.k).reduce(Sum()).uid("sums")


@pytest.mark.parametrize("stop", [2, 3, 4])
def test_checkpoints_of_the_next_job_do_not_pass_for_those_of_the_first(
    tmp_path: Path, stop: int
) -> None:
    storage = open_storage(str(tmp_path), new_job_id())
    config = checkpointed(Ways(), 2)
    probe = CollectProbe(build)
    plan = SimulationPlan(seed=stop, stop_after_checkpoint=stop)
    first = Simulation(probe.graph(config), plan, storage).run()
    assert first.outcome is None
    assert first.last_checkpoint is not None
    point = tmp_path / storage.job_id / f"chk-{first.last_checkpoint}"
    edited = strom.state.open(str(point)).edit().save(str(tmp_path / "edited"))
    goes_on = CollectProbe(build)
    started = replace(config, restore_from=edited)
    second = Simulation(goes_on.graph(started), SimulationPlan(seed=stop)).run()
    assert second.outcome is not None
    assert second.outcome.status is JobStatus.FINISHED, second.outcome.error
    published: dict[Any, dict[str, Any]] = {}
    for result in (first, second):
        for operator, values in result.published.items():
            known = published.setdefault(operator, {})
            assert all(known[key] == values[key] for key in known.keys() & values.keys())
            known.update(values)
    found = probe.output({operator: list(some.values()) for operator, some in published.items()})
    compare("from the edited checkpoint", run_local(build, strom.JobConfig()), found)
    assert strom.state.open(edited).checkpoint_id == first.last_checkpoint
