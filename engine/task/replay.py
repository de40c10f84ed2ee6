"""What a restored checkpoint had on its way to a task: it comes before anything new.

    by key               of all subtasks, the records whose keys are this subtask's now
    by the user's rule   the same, at another parallelism
    all to one subtask   all, for the first subtask
    else                 what was on its way to the subtasks that this one stands for: i mod p

That is as the two operators are connected now: how they were then nobody has written down. Only the
job itself knows, which was connected as it is: what was on its way to a subtask by key is that
subtask's, if all have the key groups that they had. By key are forward edges, too, whose records
are where their keys are. Where the two operators are in one chain, it goes to the second one.

Each channel that there was is a *lane*: a stream of its own with its own event time, which begins
with where the channel's had been. Lanes are read one after the other, the oldest first: what was on
its way already at an earlier restore comes before what came behind it from a source.

Where an edge leads from one subtask to only some, event time counts of all channels that it had,
not only of those whose records come here: who sends may have got what was with others, splits of a
source or records on their way, and a former channel here knows nothing of how far they had been.
Over any other edge each subtask had heard all senders.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter

from ...checkpoint.in_flight import Item, Made, Place, Waiting, read_in_flight
from ...checkpoint.ipc_files import FilesFrom
from ...checkpoint.manifest import Manifest, OperatorShape
from ...core.batch import Batch, ColumnBatch, ObjectBatch
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Element, StreamStatus, Watermark
from ...core.errors import UnfitStateError
from ...core.ids import OperatorId
from ...operators.time.valve import WatermarkValve
from ..exchange.partitioners import Selector, make_selector
from ..graph.edge_names import chained_names, target_of
from ..graph.model import Broadcast, Custom, Forward, Global, KeyGroups, Partitioner, Rescale
from .deployment import TaskDeployment
from .in_flight import captured, element_of

RECORDS = ("columns", "objects")
"""Kinds of items that are no event time."""

Times = tuple[int, bool]
"""The watermark of a channel, and whether it is active."""


@dataclass
class Lane:
    """One former channel. `edge`: its name; `node`, `port`: the operator of the chain, and its
    input, that it leads to. Its event time counts at the head only: behind that it is told by who
    comes before. `items`: what is left of it, opened or not."""

    edge: str
    node: int
    port: int
    items: deque[Item | Element] = field(default_factory=deque)

    @property
    def has_records(self) -> bool:
        return any(
            item.kind in RECORDS
            if isinstance(item, Item)
            else isinstance(item, (ColumnBatch, ObjectBatch))
            for item in self.items
        )


class Replay:
    """The lanes of one task, read to their end once. Those that have no records left are made one
    by edge, with the event time that they come to: else each restore that is followed by another
    one before its end would add to them."""

    def __init__(self, lanes: Iterable[Lane] = (), holds: bool = False) -> None:
        """`holds`: nothing is known of the event time of some channels, so none is told."""
        self.lanes = _without_quiet(lanes)
        self.valve = WatermarkValve(len(self.lanes) + holds)
        """Over the lanes."""
        self._at = 0
        """The lane that is being read; those before it are at their end."""

    @property
    def over(self) -> bool:
        return self._at == len(self.lanes)

    def poll(self) -> tuple[int, Element] | None:
        """The next element and its lane; None at the end."""
        while not self.over:
            items = self.lanes[self._at].items
            if items:
                item = items.popleft()
                return self._at, element_of(item) if isinstance(item, Item) else item
            self._at += 1
        return None

    def waiting(self, target: int, rest: tuple[int, Batch] | None) -> list[Waiting]:
        """What a checkpoint that overtakes has of it: all that is not handled yet, and before it
        where each lane's event time is. `rest`: the lane of a batch of which a part is left, and
        that part."""
        found: list[tuple[str, list[Made]]] = []
        ended: dict[str, list[Times]] = {}
        for at, lane in enumerate(self.lanes):
            if not lane.items and (rest is None or rest[0] != at):
                ended.setdefault(lane.edge, []).append(self.valve.channel(at))
                continue
            made = event_time(self.valve.channel(at))
            if rest is not None and rest[0] == at:
                made.append(captured(rest[1]))
            made += [_as_it_is(i) if isinstance(i, Item) else captured(i) for i in lane.items]
            found.append((lane.edge, made))
        found += [(edge, event_time(_together(times))) for edge, times in ended.items()]
        return [
            (Place(edge, at - len(found), target, False), made)
            for at, (edge, made) in enumerate(found)
        ]


def event_time(times: Times) -> list[Made]:
    """What brings a new channel to there."""
    watermark, active = times
    made: list[Made] = [captured(StreamStatus(True))]
    if MIN_TIMESTAMP < watermark < MAX_TIMESTAMP:
        made.append(captured(Watermark(watermark)))
    if not active:
        made.append(captured(StreamStatus(False)))
    return made


def _as_it_is(item: Item) -> Made:
    return lambda: item


def _together(times: Iterable[Times]) -> Times:
    """What several channels come to: as a valve has it."""
    known = list(times)
    active = [watermark for watermark, is_active in known if is_active]
    return (min(active), True) if active else (max(watermark for watermark, _ in known), False)


def _without_quiet(lanes: Iterable[Lane]) -> list[Lane]:
    """The lanes, those without records as one of each edge."""
    loud: list[Lane] = []
    quiet: dict[str, list[Lane]] = {}
    for lane in lanes:
        if lane.has_records:
            loud.append(lane)
        elif lane.items:
            quiet.setdefault(lane.edge, []).append(lane)
    merged = []
    for same in quiet.values():
        watermark, active = _together(map(_times, same))
        items: deque[Item | Element] = deque([StreamStatus(active), Watermark(watermark)])
        merged.append(replace(same[0], items=items))
    return [*merged, *loud]


def _times(lane: Lane) -> Times:
    """Where a lane without records comes to."""
    valve = WatermarkValve(1)
    for item in lane.items:
        match element_of(item) if isinstance(item, Item) else item:
            case Watermark(timestamp):
                valve.on_watermark(0, timestamp)
            case StreamStatus(active):
                valve.on_status(0, active)
    return valve.channel(0)


class _Sharing:
    """What of one edge into the task is its own."""

    def __init__(
        self,
        name: str,
        node: int,
        port: int,
        partitioner: Partitioner,
        d: TaskDeployment,
        manifest: Manifest,
    ) -> None:
        shape = manifest.shape(OperatorId(target_of(name)))
        self.node = node
        self.port = port
        self._mine, self._now = d.task.subtask, d.vertex.parallelism
        self._former = self._now if shape is None else shape.parallelism
        self._to_first = isinstance(partitioner, Global)
        """Whether all of it is the first subtask's."""
        self._pointwise = isinstance(partitioner, (Forward, Rescale))
        """Whether event time counts of all of it."""
        self._selector: Selector | None = None
        """Of what was on its way to all former subtasks."""
        if isinstance(partitioner, Forward) and partitioner.key is not None:
            partitioner = KeyGroups(partitioner.key)
        by_record = isinstance(partitioner, (KeyGroups, Custom))
        if by_record and not self._as_before(partitioner, d, shape):
            self._selector = make_selector(
                partitioner,
                self._now,
                max_parallelism=d.vertex.max_parallelism,
                deal=d.vertex.deal,
            )

    def _as_before(
        self, partitioner: Partitioner, d: TaskDeployment, shape: OperatorShape | None
    ) -> bool:
        """Whether records are with the subtasks that they were with."""
        assert d.restore is not None
        own = d.restore.job_id == d.job_id and (shape is None or shape.deal == d.vertex.deal)
        return self._former == self._now and (own or not isinstance(partitioner, KeyGroups))

    def takes(self, target: int) -> bool:
        """Whether something that was on its way to a former subtask may count for this one."""
        if self._to_first:
            return self._mine == 0
        return self._selector is not None or self._pointwise or self._stands_for(target)

    def _stands_for(self, target: int) -> bool:
        return target % self._now == self._mine

    @property
    def targets(self) -> set[int]:
        """All such subtasks."""
        return {target for target in range(self._former) if self.takes(target)}

    def share(self, target: int, items: Iterable[Item]) -> Iterator[Item | Element]:
        """What counts for this subtask of what was on its way to that one. Whole channels stay
        closed until they are read."""
        whole = not self._pointwise or self._stands_for(target)
        for item in items:
            if self._selector is None:
                if whole or item.kind not in RECORDS:
                    yield item
                continue
            element = element_of(item)
            if not isinstance(element, (ColumnBatch, ObjectBatch)):
                yield element
            elif (part := dict(self._selector.split(element)).get(self._mine)) is not None:
                yield part


def replay_of(d: TaskDeployment, storage: FilesFrom) -> Replay:
    """What the task starts with. CorruptCheckpointError, what partitioners raise, and
    UnfitStateError for records that would have to be broadcast: no barrier overtakes what is, so
    another program had another edge there, and each was on its way to one subtask."""
    if d.restore is None or all(one.in_flight is None for one in d.restore.subtasks):
        return Replay()
    shares = {
        name: _Sharing(name, inner.target, inner.port, Forward(inner.key), d, d.restore)
        for name, inner in chained_names(d.vertex).items()
    }
    for edge in d.input_edges:
        name = d.edge_names[edge.id]
        shares[name] = _Sharing(name, 0, edge.port, edge.partitioner, d, d.restore)
    found = sorted(_found(d.restore, storage, shares), key=itemgetter(0))
    lanes: dict[tuple[str, int, int], Lane] = {}
    for place, items in found:
        sharing = shares[place.edge]
        one = Lane(place.edge, sharing.node, sharing.port)
        lanes.setdefault(place[:3], one).items.extend(items)
    broadcast = {d.edge_names[e.id] for e in d.input_edges if isinstance(e.partitioner, Broadcast)}
    for lane in lanes.values():
        if lane.edge in broadcast and lane.has_records:
            raise UnfitStateError(_why_unfit(d.label, d.restore, lane.edge))
    known = {(place.edge, place.target) for place, _ in found if not place.unsent}
    needed = {
        (name, target)
        for name, sharing in shares.items()
        if not sharing.node
        for target in sharing.targets
    }
    return Replay(lanes.values(), holds=not needed <= known)


def _why_unfit(label: str, manifest: Manifest, edge: str) -> str:
    return (
        f"task {label}: checkpoint {manifest.checkpoint_id} is unaligned, and holds records that "
        f"were on their way to one subtask each ({edge}), where the program broadcasts now. Start "
        "from a savepoint, which holds none"
    )


def _found(
    manifest: Manifest, storage: FilesFrom, shares: Mapping[str, _Sharing]
) -> Iterator[tuple[Place, list[Item | Element]]]:
    """What is this task's, file by file, so that no more than one is in memory with what others
    get."""

    def wanted(place: Place) -> bool:
        return place.edge in shares and shares[place.edge].takes(place.target)

    for subtask in manifest.subtasks:
        handle = subtask.in_flight
        if handle is not None and not shares.keys().isdisjoint(handle.edges):
            read = read_in_flight(storage, manifest.checkpoint_id, handle, wanted)
            for place, items in read:
                yield place, list(shares[place.edge].share(place.target, items))
