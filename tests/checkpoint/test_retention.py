"""How many checkpoints lie on the storage at any time: those retained, and the one being made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from strom import WatermarkStrategy
from strom.checkpoint.epochs import epoch_of
from strom.checkpoint.file_storage import FileStorage
from strom.checkpoint.names import MANIFEST
from strom.connectors.datagen import DataGenSource
from strom.core.job_status import JobStatus
from strom.engine.hosts.simulator import Simulation, SimulationPlan
from strom.testing.equivalence import Ways, checkpointed
from strom.testing.faulty_filesystem import Faults, FaultyFileSystem
from strom.testing.probes import CollectProbe


def build(env: Any) -> Any:
    numbers = DataGenSource(lambda start, n: list(range(start, start + n)), 600, block=16)
    stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
    return {"numbers": stream.key_by(lambda n: n % 7).reduce(lambda a, b: a + b)}


@pytest.mark.parametrize("slow", [0, 3000], ids=["quick", "slow"])
@pytest.mark.parametrize("retained", [1, 2, 3])
def test_never_more_than_retained_and_one(retained: int, slow: int) -> None:
    """Listed before each call of the filesystem. `slow`: publishing and deleting come up to so many
    ms late, while checkpoints go on."""
    inner = MemoryFileSystem()
    home = f"/retention-{uuid4().hex}/job"
    most_complete = most = seen = 0

    def look(call: str, path: str) -> None:
        nonlocal most_complete, most, seen
        files = [file.removeprefix(f"{home}/") for file in inner.find(home)]
        names = [file.split("/") for file in files if epoch_of(file) is None]
        folders = {folder for folder, _ in names if folder.startswith("chk-")}
        complete = {folder for folder, name in names if name == MANIFEST}
        most, most_complete = max(most, len(folders)), max(most_complete, len(complete))
        seen += 1

    filesystem = FaultyFileSystem(inner, Faults(delay=look))
    storage = FileStorage(filesystem, home.rpartition("/")[0], "job", pause=lambda seconds: None)
    config = checkpointed(Ways(batch_size=8), 2)
    config = replace(config, checkpoint=replace(config.checkpoint, retained=retained))
    plan = SimulationPlan(seed=retained, crashes=1, crash_window=500, slow_workers=slow)
    result = Simulation(CollectProbe(build).graph(config), plan, storage).run()
    assert result.outcome is not None
    assert result.outcome.status is JobStatus.FINISHED, result.outcome.error
    assert seen > 30
    assert most_complete == retained + 1, "the new one is complete before the oldest goes"
    assert most == retained + 1
    assert len(storage.list()) == retained
