"""`manifest`: how large the manifest of a large job's checkpoint is, and how long it takes.

Only the manifest: no job runs, and no state is written. Each subtask of one operator has so many
states, small ones in one file, each of them in so many layers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from strom.checkpoint.handles import FileHandle, KeyedHandle, OperatorSnapshot, SubtaskSnapshot
from strom.checkpoint.manifest import Manifest, OperatorShape, decode, encode
from strom.core.ids import CheckpointId, OperatorId, TaskId, VertexId
from strom.state.key_groups import range_for

OPERATOR = OperatorId("0123456789abcdef0123456789abcdef")
CHECKSUM = "0123456789abcdef"
TYPES = {"format": "columns", "types": '{"value":"int64"}'}


def lines(subtasks: int, states: int, layers: int, groups: int) -> Iterator[dict[str, Any]]:
    """One line. `groups`: key groups."""
    manifest = manifest_of(subtasks, states, layers, groups)
    start = time.perf_counter()
    data = encode(manifest)
    encoded = time.perf_counter()
    read = decode(data, "manifest")
    decoded = time.perf_counter()
    assert read == manifest, "a manifest that is read is what was written"
    yield {
        "name": "manifest",
        "subtasks": subtasks,
        "states": states,
        "layers": layers,
        "key_groups": groups,
        "bytes": len(data),
        "bytes_per_layer": round(len(data) / (subtasks * states * layers)),
        "encode_s": round(encoded - start, 3),
        "decode_s": round(decoded - encoded, 3),
    }


def manifest_of(subtasks: int, states: int, layers: int, groups: int) -> Manifest:
    """Of a job with one operator."""
    shape = OperatorShape(OPERATOR, "Sum(value)", subtasks, groups, "sum")
    parts = tuple(_subtask(i, subtasks, states, layers, groups) for i in range(subtasks))
    return Manifest("job", "Job", CheckpointId(1000), 0, (shape,), parts)


def _subtask(index: int, subtasks: int, states: int, layers: int, groups: int) -> SubtaskSnapshot:
    mine = range_for(index, subtasks, groups)
    rows = tuple((group, 10 * i, 10) for i, group in enumerate(range(mine.first, mine.last + 1)))
    keyed = tuple(
        KeyedHandle(
            f"state-{state}",
            "value",
            FileHandle(
                f"{1000 - layer}-{OPERATOR}-12345678-{index}-0.pack",
                10_000,
                CHECKSUM,
                shared=True,
                offset=state * 10_000,
            ),
            rows,
            dict(TYPES),
            "delta" if layer else "base",
        )
        for state in range(states)
        for layer in range(layers)
    )
    return SubtaskSnapshot(TaskId(VertexId(OPERATOR), index), (OperatorSnapshot(OPERATOR, keyed),))
