"""What was on its way, to a file of a checkpoint and back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from in_flight_kit import EDGE, NO, manifest_of, waiting
from strom.checkpoint.cancellation import Cancellation, UnwantedError
from strom.checkpoint.in_flight import Item, Place, read_in_flight, write_in_flight
from strom.checkpoint.manifest import decode, encode
from strom.checkpoint.storage import MemoryStorage, open_storage
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.elements import StreamStatus, Watermark
from strom.core.errors import CorruptCheckpointError, StateError
from strom.core.ids import CheckpointId, TaskId, VertexId
from strom.engine.task.in_flight import captured, element_of, item_of
from strom.snapshots import open as open_snapshot
from strom.testing.probes import CollectProbe

STAMPS = np.array([5, 6], dtype=np.int64)


def columns(*values: Any) -> ColumnBatch:
    return ColumnBatch(pa.record_batch({"v": pa.array(values)}))


ELEMENTS = [
    columns(1, 2, 3),
    ColumnBatch(pa.record_batch({"d": pa.array(["x", "y"]).dictionary_encode()}), STAMPS),
    columns("a", None).slice(1, 1),
    ColumnBatch(pa.record_batch({"n": pa.array([], pa.int32())})),
    ObjectBatch([{"a": 1}, (2, "b")], STAMPS),
    ObjectBatch([]),
    Watermark(-5),
    StreamStatus(False),
    StreamStatus(True),
]


def said(element: Any) -> Any:
    """An element as something that can be compared."""
    match element:
        case ColumnBatch():
            stamps = None if element.timestamps is None else element.timestamps.tolist()
            return element.data.schema.to_string(), element.data.to_pylist(), stamps
        case ObjectBatch():
            return (
                element.values,
                None if element.timestamps is None else element.timestamps.tolist(),
            )
    return element


def test_elements_come_back_as_they_were() -> None:
    storage = MemoryStorage("job")
    places = [Place(EDGE, 0, 1, False), Place(EDGE, 0, 1, True), Place("other>x:1", -2, 1, False)]
    handle = write_in_flight(
        storage,
        CheckpointId(3),
        TaskId(VertexId("v"), 1),
        [waiting(p, ELEMENTS) for p in places],
        NO,
    )
    assert handle is not None
    assert handle.edges == (EDGE, "other>x:1")
    found = dict(read_in_flight(storage, CheckpointId(3), handle, lambda place: True))
    assert list(found) == places
    for items in found.values():
        assert [said(element_of(item)) for item in items] == [said(one) for one in ELEMENTS]
    wanted = dict(read_in_flight(storage, CheckpointId(3), handle, lambda place: place.unsent))
    assert list(wanted) == [places[1]]


def test_nothing_leaves_no_file() -> None:
    empty = [waiting(Place(EDGE, 0, 0, False), []), (Place(EDGE, 1, 0, False), [lambda: None])]
    task = TaskId(VertexId("v"), 0)
    assert write_in_flight(MemoryStorage("job"), CheckpointId(1), task, empty, NO) is None


def test_objects_are_as_they_were_though_somebody_changes_them() -> None:
    record = {"n": 1}
    made = captured(ObjectBatch([record]))
    record["n"] = 2
    item = made()
    assert item is not None
    assert said(element_of(item)) == ([{"n": 1}], None)


def test_a_given_up_checkpoint_leaves_no_file(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), "job")
    over = Cancellation("checkpoint 1, of which task v[0] wrote,")
    over.cancel()
    one = [waiting(Place(EDGE, 0, 0, False), ELEMENTS)]
    with pytest.raises(UnwantedError, match="checkpoint 1"):
        write_in_flight(storage, CheckpointId(1), TaskId(VertexId("v"), 0), one, over)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_manifests_tell_of_it_and_count_its_file() -> None:
    storage = MemoryStorage("job")
    task = TaskId(VertexId("window"), 0)
    one = [waiting(Place(EDGE, 0, 0, False), ELEMENTS)]
    handle = write_in_flight(storage, CheckpointId(3), task, one, NO)
    assert handle is not None
    manifest = manifest_of({task: handle, TaskId(VertexId("window"), 1): None}, 2)
    again = decode(encode(manifest), "manifest.json")
    assert again == manifest
    assert list(again.files()) == [handle.file]
    assert again.size == handle.file.size == again.subtasks[0].size
    damaged = encode(manifest).replace(b'"edges":["map>window:0"]', b'"edges":[7]')
    with pytest.raises(CorruptCheckpointError, match="altered"):
        decode(damaged, "manifest.json")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"a": [1]}), "expected columns"),
        (None, "unknown kinds of records in flight \\['frob'\\]"),
    ],
)
def test_bad_files_are_told(table: pa.Table | None, message: str) -> None:
    storage = MemoryStorage("job")
    task = TaskId(VertexId("v"), 0)
    odd: Any = Item("frob", 1)  # type: ignore[arg-type]
    made = write_in_flight(
        storage, CheckpointId(1), task, [(Place(EDGE, 0, 0, False), [lambda: odd])], NO
    )
    assert made is not None
    if table is not None:
        from strom.checkpoint.transfers import INLINE
        from strom.checkpoint.uploads import Uploads

        with Uploads(storage, CheckpointId(1), INLINE, NO) as uploads:
            made = replace(made, file=uploads.table("x.arrow", table).result())
    with pytest.raises(CorruptCheckpointError, match=message):
        list(read_in_flight(storage, CheckpointId(1), made, lambda place: True))


@pytest.mark.parametrize(
    "item",
    [
        Item("columns", 3, b"nonsense"),
        Item("columns", 4, item_of(columns(1, 2, 3)).data),
        Item("objects", 1, item_of(ObjectBatch([1, 2])).data),
        Item("objects", 2, item_of(ObjectBatch([1, 2])).data, pa.py_buffer(b"1234")),
    ],
)
def test_items_that_are_not_what_they_say_are_told(item: Item) -> None:
    with pytest.raises(CorruptCheckpointError, match="records in flight"):
        element_of(item)


# --- whole jobs --------------------------------------------------------------------------------


def unaligned_checkpoint(tmp_path: Path) -> Path:
    """Of a job whose buffers are full."""
    from strom.core.config import CheckpointConfig
    from strom.engine.hosts.simulator import Simulation, SimulationPlan
    from strom.testing.equivalence import CRAMPED, Ways, checkpointed

    def build(env: Any) -> Any:
        return env.from_collection(list(range(400))).key_by(lambda n: n % 5).map(lambda n: n)

    plain = checkpointed(Ways(), 2)
    for seed in range(20):
        storage = open_storage(str(tmp_path / str(seed)), f"job{seed}")
        config = replace(
            plain,
            exchange=CRAMPED,
            checkpoint=CheckpointConfig(
                interval=timedelta(milliseconds=1), unaligned=True, retained=2
            ),
        )
        graph = CollectProbe(build).graph(config)
        plan = SimulationPlan(seed=seed, stop_after_checkpoint=2)
        result = Simulation(graph, plan, storage).run()
        if result.last_checkpoint is not None and result.outcome is None:
            manifest = storage.load(result.last_checkpoint)
            if any(one.in_flight is not None for one in manifest.subtasks):
                return tmp_path / str(seed) / f"job{seed}" / f"chk-{result.last_checkpoint}"
    raise AssertionError("no checkpoint overtook anything")


def test_open_state_shows_it_and_refuses_to_edit_it(tmp_path: Path) -> None:
    snapshot = open_snapshot(str(unaligned_checkpoint(tmp_path)))
    table = snapshot.in_flight()
    assert table.num_rows
    assert set(table.column("kind").to_pylist()) >= {"status"}
    assert snapshot.verify().ok
    with pytest.raises(StateError, match=r"unaligned checkpoint.*take a savepoint"):
        snapshot.edit()


def test_damage_of_it_is_found(tmp_path: Path) -> None:
    folder = unaligned_checkpoint(tmp_path)
    victim = next(folder.rglob("*in-flight*"))
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 0xFF
    victim.write_bytes(bytes(data))
    found = open_snapshot(str(folder)).verify()
    assert not found.ok
    assert victim.name in found.problems[0]
