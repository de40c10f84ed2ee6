"""Each kind of trouble in each operation of the storage, for a while: a job with its checkpoints in
files goes on, says what failed and why, and completes others once the trouble is over.

    operation    is met by
    write        the files that tasks write for a checkpoint, and its manifest
    move         their being put in place
    remove       checkpoints that are not retained, and what was left of failed ones
    list, info   the same, and the start of an attempt
    read         a restore

Hanging is `hosts/test_hung_uploads` (files of tasks) and `hosts/test_storage_hangs` (manifests,
removals), a file that is lost or altered `chaos/test_damaged_checkpoints`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from strom import JobStatus
from strom.checkpoint.file_storage import FileStorage
from strom.engine.hosts.simulator import Simulation, SimulationPlan
from strom.testing.equivalence import Ways, check_shared, checkpointed, compare
from strom.testing.faulty_filesystem import Faults, FaultyFileSystem
from strom.testing.probes import CollectProbe

WORDS = [f"w{i * i % 17}" for i in range(600)]


def build(env: Any) -> Any:
    pairs = env.from_collection(WORDS).map(lambda w: (w, 1)).key_by(lambda p: p[0])
    return pairs.reduce(lambda a, b: (a[0], a[1] + b[1]))


def expected() -> list[Any]:
    counts: dict[str, int] = {}
    found = []
    for word in WORDS:
        counts[word] = counts.get(word, 0) + 1
        found.append((word, counts[word]))
    return found


class Outage(Faults):
    """From the first completed checkpoint on, so many calls go wrong, one after the other."""

    def __init__(self, seed: int, kind: Any, call: Any, calls: int, lasts: int) -> None:
        super().__init__(seed, 0.0, (kind,), (call,), nth=range(calls, calls + lasts))


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("call", ["write", "move", "remove", "list", "info", "read"])
def test_for_a_while(call: str, at_once: int) -> None:
    """Denied (read-only, or no right), full, and no answer in time."""
    failed = troubled = 0
    for seed, kind in enumerate(("denied", "full", "timeout")):
        lasts = 4 if call == "remove" else 12  # there are few of these, and the last is to go well
        faults = Outage(seed, kind, call, 3 + 4 * seed, lasts)
        filesystem = FaultyFileSystem(MemoryFileSystem(), faults, object_store=False)
        root = f"/troubles-{uuid4().hex}"
        storage = FileStorage(filesystem, root, "job", pause=lambda seconds: None)
        config = checkpointed(Ways(batch_size=8), 2)
        checkpoint = replace(
            config.checkpoint, retained=2, tolerable_failures=99, max_concurrent=at_once
        )
        probe = CollectProbe(build)
        plan = SimulationPlan(seed=seed, crashes=1, crash_after_checkpoints=1)
        graph = probe.graph(replace(config, checkpoint=checkpoint))
        result = Simulation(graph, plan, storage).run()
        where = f"{call} {kind}, {at_once} at once"
        assert result.outcome is not None
        assert result.outcome.status is JobStatus.FINISHED, f"{where}: {result.outcome.error}"
        troubled += faults.failed > 0
        faults.stop()
        published = {op: list(values.values()) for op, values in result.published.items()}
        compare(where, expected(), probe.output(published))
        check_shared(where, storage)
        figures = result.outcome.metrics["checkpoints"]
        failed += figures["failed"]
        assert figures["completed"] > 0
    assert troubled, "nothing went wrong"
    if call in ("write", "move"):
        assert failed, "and no checkpoint failed of it"
