"""Checkpoints of each format that this strom reads, written when it was the newest: they restore
for ever, at another parallelism, and the output is that of a job that was never stopped. That of
format 9 is unaligned, with records in flight."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from golden_job import build
from strom.core.config import JobConfig
from strom.engine.hosts.simulator import Simulation, SimulationPlan
from strom.testing.equivalence import Ways, checkpointed, compare, run_local
from strom.testing.probes import CollectProbe

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(("version", "checkpoint"), [(2, 1), (9, 1)])
def test_a_golden_checkpoint_is_restored(tmp_path: Path, version: int, checkpoint: int) -> None:
    shutil.copytree(GOLDEN / f"format-{version}", tmp_path, dirs_exist_ok=True)
    folder = tmp_path / "golden" / f"chk-{checkpoint}"
    assert json.loads((folder / "manifest.json").read_text())["format"] == version
    config = replace(checkpointed(Ways(batch_size=256), 3), restore_from=str(folder))
    probe = CollectProbe(build)
    result = Simulation(probe.graph(config), SimulationPlan(seed=1)).run()
    assert result.outcome is not None
    assert result.outcome.error is None
    published = {op: list(values.values()) for op, values in result.published.items()}
    whole = run_local(build, JobConfig(parallelism=1))
    compare("restored", whole, probe.output(published))
