"""What was on its way, to a file of a checkpoint and back, at any parallelism."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from strom.checkpoint.cancellation import Cancellation, UnwantedError
from strom.checkpoint.handles import SubtaskSnapshot
from strom.checkpoint.in_flight import Item, Place, Waiting, read_in_flight, write_in_flight
from strom.checkpoint.manifest import Manifest, OperatorShape, decode, encode
from strom.checkpoint.storage import CheckpointStorage, MemoryStorage, open_storage
from strom.core.batch import Batch, ColumnBatch, ObjectBatch
from strom.core.elements import StreamStatus, Watermark
from strom.core.errors import CorruptCheckpointError, StateError, UnfitStateError
from strom.core.ids import EVEN, CheckpointId, Deal, OperatorId, TaskId, VertexId
from strom.core.keys import FunctionKey
from strom.engine.exchange.partitioners import make_selector
from strom.engine.graph.model import (
    Broadcast,
    ChainedOperator,
    Custom,
    Forward,
    Global,
    InnerEdge,
    JobEdge,
    KeyGroups,
    Partitioner,
    Rebalance,
    Rescale,
    Shuffle,
)
from strom.engine.task.in_flight import captured, element_of, item_of
from strom.engine.task.replay import replay_of
from strom.operators.time.valve import WatermarkValve
from strom.snapshots import open as open_snapshot
from strom.testing.probes import CollectProbe

EDGE = "map>window:0"
STAMPS = np.array([5, 6], dtype=np.int64)
NO = Cancellation("nobody's")


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


def waiting(place: Place, elements: Any) -> Waiting:
    return place, [captured(element) for element in elements]


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


def manifest_of(handles: dict[TaskId, Any], parallelism: int, deal: Deal = EVEN) -> Manifest:
    return Manifest(
        "job",
        "a job",
        CheckpointId(3),
        0,
        (OperatorShape(OperatorId("window"), "Window", parallelism, 128, deal=deal),),
        tuple(SubtaskSnapshot(task, (), handle) for task, handle in handles.items()),
    )


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


# --- at another parallelism --------------------------------------------------------------------


def key(value: Any) -> Any:
    return value % 7


def modulo(key: int, parallelism: int) -> int:
    return key % parallelism


PARTITIONERS: list[Partitioner] = [
    KeyGroups(FunctionKey(key)),
    Custom(modulo, FunctionKey(key)),
    Rebalance(),
    Rescale(),
    Shuffle(),
    Global(),
]


def deal_at(turn: int, parallelism: int) -> Deal:
    """Even at every other turn, else another one at each."""
    cuts = random.Random(turn).sample(range(1, 128), parallelism - 1)
    return (0, *sorted(cuts)) if turn % 2 else EVEN


def recorded(
    partitioner: Partitioner, storage: CheckpointStorage, seed: int, rng: random.Random
) -> tuple[Manifest, int]:
    """Numbers on their way from each source to each subtask, some sent and some not, and how many
    there are."""
    sources, former = rng.randint(1, 3), rng.randint(1, 3)
    sent: dict[tuple[int, int], list[Waiting]] = {}
    selectors = [
        make_selector(
            partitioner, former, subtask=s, max_parallelism=128, deal=deal_at(seed, former)
        )
        for s in range(sources)
    ]
    count = 0
    for s in range(sources):
        lanes: dict[tuple[int, bool], list[Batch]] = {}
        for unsent in (False, True):
            for _ in range(rng.randint(0, 3)):
                numbers = list(range(count, count := count + rng.randint(1, 9)))
                for target, part in selectors[s].split(ObjectBatch(numbers)):
                    lanes.setdefault((target, unsent), []).append(part)
        for target in range(former):
            for unsent in (False, True):
                found = lanes.get((target, unsent), [])
                elements: list[Any] = [*([] if unsent else [StreamStatus(True)]), *found]
                owner = (0, s) if unsent else (1, target)
                place = Place(EDGE, s, target, unsent)
                sent.setdefault(owner, []).append(waiting(place, elements))
    handles = {}
    for (side, subtask), parts in sent.items():
        task = TaskId(VertexId("window" if side else "map"), subtask)
        handles[task] = write_in_flight(storage, CheckpointId(3), task, parts, NO)
    return manifest_of(handles, former, deal_at(seed, former)), count


@pytest.mark.parametrize("partitioner", PARTITIONERS, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("seed", range(6))
def test_each_record_is_replayed_once_and_where_it_belongs(
    partitioner: Partitioner, seed: int
) -> None:
    """They are restored at every parallelism from 1 to 4, and in other deals of key groups; then
    what is left half-way is saved and restored once more."""
    rng = random.Random(seed)
    storage: CheckpointStorage = MemoryStorage("job")
    manifest, count = recorded(partitioner, storage, seed, rng)
    for now in range(1, 5):
        deal = deal_at(seed // 2, now)
        check(partitioner, storage, manifest, now, deal, count)
        half, left = half_way(partitioner, storage, manifest, now, deal, rng)
        again = MemoryStorage("job")
        kept = {
            task: write_in_flight(again, CheckpointId(3), task, parts, NO)
            for task, parts in left.items()
        }
        for later in range(1, 4):
            then = manifest_of(kept, now, deal)
            check(partitioner, again, then, later, deal_at(seed // 3, later), count, half)


def shape_of(manifest: Manifest) -> OperatorShape:
    (shape,) = manifest.operators
    return shape


NOW: Final[dict[str, Partitioner]] = {
    "KeyGroups": KeyGroups(FunctionKey(key)),
    "Forward by key": Forward(FunctionKey(key)),
    "Forward": Forward(),
    "Custom": Custom(modulo, FunctionKey(key)),
    "Rebalance": Rebalance(),
    "Global": Global(),
}
"""What an edge may have become in another program, or by another plan. `Forward`: also within a
chain."""


@pytest.mark.parametrize("now", NOW.values(), ids=NOW)
@pytest.mark.parametrize("then", PARTITIONERS, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("seed", range(4))
def test_an_edge_that_is_another_one_now(then: Partitioner, now: Partitioner, seed: int) -> None:
    """Whatever it was, each record comes once, with its key where keys count, also where as many
    subtasks have the same key groups as before."""
    storage = MemoryStorage("job")
    manifest, count = recorded(then, storage, seed, random.Random(seed))
    shape = shape_of(manifest)
    for chained in (False, True) if isinstance(now, Forward) else (False,):
        for parallelism in range(1, 4):
            deal = shape.deal if parallelism == shape.parallelism else EVEN
            how: Any = {"job_id": "another", "chained": chained}
            check(now, storage, manifest, parallelism, deal, count, **how)


def test_what_was_on_its_way_to_one_subtask_cannot_be_broadcast() -> None:
    """What is broadcast itself no barrier overtakes: of such edges event times alone are there."""
    storage = MemoryStorage("job")
    manifest, _ = recorded(Rebalance(), storage, 0, random.Random(0))
    with pytest.raises(UnfitStateError, match=r"checkpoint 3 .*map>window:0.*from a savepoint"):
        replay_of(deployed(Broadcast(), manifest, 0, 1, job_id="another"), storage)
    task = TaskId(VertexId("window"), 0)
    times = [waiting(Place(EDGE, 0, 0, False), [StreamStatus(True), Watermark(9)])]
    handle = write_in_flight(storage, CheckpointId(3), task, times, NO)
    (lane,) = replay_of(deployed(Broadcast(), manifest_of({task: handle}, 1), 0, 1), storage).lanes
    assert not lane.has_records


def deployed(
    partitioner: Partitioner,
    manifest: Manifest,
    subtask: int,
    parallelism: int,
    deal: Deal = EVEN,
    job_id: str = "job",
    chained: bool = False,
) -> Any:
    """The task that has the edge as an input, or, `chained`, within it."""
    edge = JobEdge(4, VertexId("map"), VertexId("window"), partitioner, port=1)
    operators: tuple[ChainedOperator, ...] = ()
    if chained:
        assert isinstance(partitioner, Forward)
        inner = InnerEdge(1, key=partitioner.key)
        operators = (
            ChainedOperator(OperatorId("map"), "Map", None, (inner,)),
            ChainedOperator(OperatorId("window"), "Window", None),
        )
    return SimpleNamespace(
        job_id=job_id,
        label="Window (1/1)",
        restore=manifest,
        input_edges=() if chained else (edge,),
        edge_names={4: EDGE},
        task=TaskId(VertexId("window"), subtask),
        vertex=SimpleNamespace(
            parallelism=parallelism, max_parallelism=128, deal=deal, operators=operators
        ),
    )


def check(
    partitioner: Partitioner,
    storage: Any,
    manifest: Manifest,
    now: int,
    deal: Deal,
    count: int,
    already: frozenset[int] = frozenset(),
    **how: Any,
) -> None:
    """`how`: as of `deployed`."""
    seen: list[int] = []
    rule = partitioner
    if isinstance(rule, Forward) and rule.key is not None:
        rule = KeyGroups(rule.key)
    # the user's rule counts where it may have been another one: at another parallelism
    by_rule = isinstance(rule, Custom) and (
        "job_id" not in how or now != shape_of(manifest).parallelism
    )
    selector = make_selector(rule, now, max_parallelism=128, deal=deal)
    for subtask in range(now):
        replay = replay_of(deployed(partitioner, manifest, subtask, now, deal, **how), storage)
        assert all(
            (lane.node, lane.port) == ((1, 0) if how.get("chained") else (0, 1))
            for lane in replay.lanes
        )
        assert not (
            isinstance(rule, Global) and subtask and any(lane.has_records for lane in replay.lanes)
        )
        lanes: dict[int, list[int]] = {}
        while (item := replay.poll()) is not None:
            lane, element = item
            if isinstance(element, ObjectBatch):
                lanes.setdefault(lane, []).extend(element.values)
                if by_rule or isinstance(rule, KeyGroups):
                    assert [at for at, _ in selector.split(element)] == [subtask]
        for numbers in lanes.values():
            assert numbers == sorted(numbers), "a channel keeps its order"
        seen += [n for numbers in lanes.values() for n in numbers]
    assert sorted(seen) == sorted(set(range(count)) - already)


def half_way(
    partitioner: Partitioner,
    storage: Any,
    manifest: Manifest,
    now: int,
    deal: Deal,
    rng: random.Random,
) -> tuple[frozenset[int], dict[TaskId, list[Waiting]]]:
    """What was handled when another checkpoint overtook, and what that has."""
    handled: set[int] = set()
    left: dict[TaskId, list[Waiting]] = {}
    for subtask in range(now):
        replay = replay_of(deployed(partitioner, manifest, subtask, now, deal), storage)
        rest = None
        for _ in range(rng.randint(0, 6)):
            item = replay.poll()
            if item is not None and isinstance(item[1], ObjectBatch):
                done = rng.randint(0, len(item[1]))
                handled |= set(item[1].values[:done])
                if done < len(item[1]):
                    rest = item[0], item[1].slice(done, len(item[1]) - done)
                    break
        left[TaskId(VertexId("window"), subtask)] = replay.waiting(subtask, rest)
    return frozenset(handled), left


def test_event_time_is_held_where_some_channels_are_not_known() -> None:
    storage = MemoryStorage("job")
    task = TaskId(VertexId("window"), 0)
    parts = [
        waiting(Place(EDGE, 0, 0, False), [StreamStatus(True), Watermark(9), ObjectBatch([1])])
    ]
    handle = write_in_flight(storage, CheckpointId(3), task, parts, NO)
    for former, holds in ((1, False), (2, True)):
        manifest = manifest_of({task: handle}, former)
        replay = replay_of(deployed(KeyGroups(FunctionKey(key)), manifest, 0, 1), storage)
        told = []
        while (item := replay.poll()) is not None:
            if isinstance(item[1], Watermark):
                told += replay.valve.on_watermark(item[0], item[1].timestamp)
        assert told == ([] if holds else [Watermark(9)])


@pytest.mark.parametrize("now", [1, 2, 3])
@pytest.mark.parametrize(
    ("partitioner", "others"),
    [(Forward(), True), (Rescale(), True), (Rebalance(), False), (Shuffle(), False)],
    ids=lambda one: type(one).__name__ if not isinstance(one, bool) else "",
)
def test_event_time_is_that_of_all_where_each_had_heard_of_only_some(
    partitioner: Partitioner, others: bool, now: int
) -> None:
    """Subtask 1 was far behind the other two: of its records, or those on their way to it, any
    subtask may have got some."""
    storage, handles = MemoryStorage("job"), {}
    for target, time in enumerate((90, 10, 80)):
        task = TaskId(VertexId("window"), target)
        waits: list[Any] = [StreamStatus(True), Watermark(time), ObjectBatch([target])]
        parts = [waiting(Place(EDGE, target, target, False), waits)]
        handles[task] = write_in_flight(storage, CheckpointId(3), task, parts, NO)
    seen, told = [], []
    for subtask in range(now):
        replay = replay_of(deployed(partitioner, manifest_of(handles, 3), subtask, now), storage)
        while (item := replay.poll()) is not None:
            lane, element = item
            match element:
                case Watermark(timestamp):
                    replay.valve.on_watermark(lane, timestamp)
                case ObjectBatch():
                    seen += element.values
        told.append(replay.valve.watermark)
    assert sorted(seen) == [0, 1, 2]
    assert told == ([10] * now if others else {1: [10], 2: [80, 10], 3: [90, 10, 80]}[now])


def test_a_valve_goes_on_where_another_one_was() -> None:
    valve = WatermarkValve(2, 50)
    assert valve.on_watermark(0, 40) == []
    assert valve.on_watermark(1, 60) == []
    valve.validate()
    assert valve.on_watermark(0, 55) == [Watermark(55)]
    assert valve.on_status(0, False) == [Watermark(60)]
    valve.validate()


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
