"""What a snapshot takes of memory, and gives back."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import psutil
from strom import ValueStateDescriptor
from strom.checkpoint.snapshot_io import write_subtask
from strom.checkpoint.storage import open_storage
from strom.core.ids import CheckpointId, KeyGroupRange, OperatorId, TaskId, VertexId
from strom.state.memory import MemoryKeyedStateBackend


def test_what_arrow_took_for_a_snapshot_is_given_back(tmp_path: Path) -> None:
    """Not only freed: Arrow would keep it for the thread that wrote the snapshot."""
    state = MemoryKeyedStateBackend(KeyGroupRange(0, 7), 8)
    values = state.get_bulk_state(ValueStateDescriptor("value")).fetch(())
    values.update(dict.fromkeys(range(200_000), "x" * 400))
    storage = open_storage(str(tmp_path), "job")
    found: list[int] = []

    def write() -> None:
        frozen = state.snapshot()
        before = psutil.Process().memory_info().rss
        part = (OperatorId("op"), frozen, None)
        write_subtask(storage, CheckpointId(1), TaskId(VertexId("v"), 0), [part])
        found.append(psutil.Process().memory_info().rss - before)

    thread = Thread(target=write)
    thread.start()
    thread.join()
    assert found[0] < 100 << 20
