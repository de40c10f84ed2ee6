"""Which partitions there are, and who reads them: in the coordinator, asked by the readers.

    first question         every partition of the topics becomes a split, from where `start` says
    each interval          new partitions become splits, from their first record
    restore, each COMPARE  the topics must be those that the offsets are of: one that was deleted
                           and made anew has another id
    snapshot               the partitions known so far, the ids of their topics, and the splits
                           nobody has asked for yet

Which subtask reads which partition: `offsets.owner_of`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ...api.connectors.base import EnumeratorContext, SplitEnumerator
from ...core.clock import Clock
from ...core.errors import ConnectorError
from .cluster import ClusterClient
from .offsets import KafkaOffsetsInitializer, KafkaSplit, KafkaTopicPartition, owner_of

log = logging.getLogger("strom")

DISCOVERY: Final = timedelta(minutes=5)
"""How often new partitions are looked for, unless the user says."""

COMPARE: Final = timedelta(seconds=5)
"""How often, at most, the ids of topics are looked at while a source that discovers runs."""

_COMPARE_S: Final = 1.0
"""How long that may take: all sources of a job wait meanwhile."""

_FIRST: Final = KafkaOffsetsInitializer.earliest()
"""Where partitions begin that appear while the job runs: none of their records is missed."""


@dataclass(frozen=True)
class Discovery:
    """What to look for, and how often: `interval_ms` None is once.

    only: these partitions of the topics; None: all. stop: None reads for ever."""

    topics: tuple[str, ...]
    pattern: str | None
    only: frozenset[KafkaTopicPartition] | None
    start: KafkaOffsetsInitializer
    stop: KafkaOffsetsInitializer | None
    interval_ms: int | None


@dataclass(frozen=True)
class EnumeratorState:
    """`known`: partitions that are, or were, somebody's split; None before the first look, which
    `start` is for. `waiting`: splits not given yet. `topic_ids`: of the topics of `known`, as far
    as the cluster tells them; checkpoints of earlier versions have none."""

    known: tuple[KafkaTopicPartition, ...] | None
    waiting: tuple[KafkaSplit, ...]
    topic_ids: tuple[tuple[str, str], ...] = ()


class KafkaEnumerator(SplitEnumerator):
    """`client`: makes a client; called at the first question, and kept until `close`."""

    def __init__(
        self,
        context: EnumeratorContext,
        discovery: Discovery,
        client: Callable[[], ClusterClient],
        clock: Clock,
        restored: EnumeratorState | None,
    ) -> None:
        self._context = context
        self._discovery = discovery
        self._make_client = client
        self._clock = clock
        self._client: ClusterClient | None = None
        known = None if restored is None else restored.known
        self._known = None if known is None else set(known)
        """None until partitions have been looked for, in this or a former attempt."""
        self._waiting = list(restored.waiting if restored is not None else ())
        self._topic_ids = dict(restored.topic_ids if restored is not None else ())
        self._restored = known is not None
        """Whether offsets of a checkpoint are to be read from that nobody has looked at yet."""
        self._next_look = 0
        """When to look for new partitions (ms)."""
        self._next_compare = 0
        """When to look at the ids of topics (ms)."""
        self._unanswered = False
        """Whether the last look at them failed."""

    def next_splits(self, subtask: int) -> Sequence[KafkaSplit] | None:
        self._look()
        mine = [split for split in self._waiting if self._owner(split) == subtask]
        self._waiting = [split for split in self._waiting if self._owner(split) != subtask]
        if mine or self._discovery.interval_ms is not None:
            return mine
        return None

    def snapshot(self) -> EnumeratorState:
        known = None if self._known is None else tuple(sorted(self._known))
        return EnumeratorState(known, tuple(self._waiting), tuple(sorted(self._topic_ids.items())))

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _look(self) -> None:
        """For partitions, if it is time to. The first look must find what it looks for; a later one
        that fails is repeated, and the partitions known are read meanwhile."""
        interval, now = self._discovery.interval_ms, self._clock.now_ms()
        first = self._known is None
        self._compare(now)
        if not first and (interval is None or now < self._next_look):
            return
        try:
            self._find(self._discovery.start if first else _FIRST)
        except ConnectorError as error:
            if first:
                raise
            log.warning("source '%s' looks for new partitions: %s", self._context.operator, error)
        self._next_look = self._clock.now_ms() + (interval or 0)

    def _compare(self, now: int) -> None:
        """The topics known with the cluster's, if it is time to. Raises ConnectorError if one is
        another: its offsets mean other records. After a restore there must be an answer, which the
        readers wait for; later, a look that fails is repeated."""
        due = min(self._next_compare, self._next_look)
        if not self._known or (self._discovery.interval_ms is not None and now < due):
            return
        topics = sorted({partition.topic for partition in self._known})
        try:
            found = self._asked.topic_ids(topics, None if self._restored else _COMPARE_S)
            self._unanswered = False
        except ConnectorError as error:
            if self._restored:
                raise
            if not self._unanswered:
                log.warning("source '%s' looks at its topics: %s", self._context.operator, error)
            self._unanswered, found = True, {}
        for topic in topics:
            if self._restored and self._discovery.stop is None and topic not in found:
                raise ConnectorError(
                    f"Kafka topic '{topic}' of the checkpoint does not exist any more: was it "
                    "deleted? Start without the checkpoint to read other topics, or one made anew"
                )
            self._identify(topic, found.get(topic))
        self._restored = False
        self._next_compare = self._clock.now_ms() + _milliseconds(COMPARE)

    def _identify(self, topic: str, now: str | None) -> None:
        if now is None:
            return
        was = self._topic_ids.setdefault(topic, now)
        if was != now:
            raise ConnectorError(
                f"Kafka topic '{topic}' was deleted and made anew (its id was {was} and is {now}): "
                "the offsets of this job are of the topic that was, and would pass over records of "
                "the new one. Start without the checkpoint, to read the new topic from its "
                "beginning"
            )

    @property
    def _asked(self) -> ClusterClient:
        if self._client is None:
            self._client = self._make_client()
        return self._client

    def _find(self, start: KafkaOffsetsInitializer) -> None:
        wanted = self._discovery
        client = self._asked
        found = client.partitions(wanted.topics, wanted.pattern)
        if wanted.only is not None:
            missing = sorted(map(str, wanted.only.difference(found)))
            if missing:
                raise ConnectorError(f"Kafka has no partitions {missing}: its topics are smaller")
            found = sorted(wanted.only)
        known = self._known or set()
        new = [partition for partition in found if partition not in known]
        # Before the offsets: a topic made anew in between is found out.
        ids = client.topic_ids(sorted({partition.topic for partition in new}))
        begins = client.offsets(start, new)
        ends = {} if wanted.stop is None else client.offsets(wanted.stop, new)
        self._waiting += [KafkaSplit(*p, begins[p], ends.get(p)) for p in new]
        self._known = known.union(new)
        for topic, topic_id in ids.items():
            if topic_id is not None:
                self._topic_ids.setdefault(topic, topic_id)

    def _owner(self, split: KafkaSplit) -> int:
        return owner_of(split.topic, split.partition, self._context.parallelism)


def asks_every_ms(interval_ms: int | None) -> int | None:
    """How often readers ask, for new partitions to be found each `interval_ms`, and a topic made
    anew within COMPARE."""
    return None if interval_ms is None else min(interval_ms, _milliseconds(COMPARE))


def _milliseconds(time: timedelta) -> int:
    return round(time.total_seconds() * 1000)
