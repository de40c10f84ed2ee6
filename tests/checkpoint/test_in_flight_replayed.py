"""What was on its way, at another parallelism, in other deals, on edges that are others now."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, Final

import pytest
from in_flight_kit import EDGE, NO, manifest_of, waiting
from strom.checkpoint.in_flight import Place, Waiting, write_in_flight
from strom.checkpoint.manifest import Manifest, OperatorShape
from strom.checkpoint.storage import CheckpointStorage, MemoryStorage
from strom.core.batch import Batch, ObjectBatch
from strom.core.elements import StreamStatus, Watermark
from strom.core.errors import UnfitStateError
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
from strom.engine.task.replay import replay_of
from strom.operators.time.valve import WatermarkValve


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
