"""Reads partitions in turns, in columns, in one subtask.

    broker --> librdkafka's threads --> a queue a partition --kernel--> columns --> Emit
                                        │
                                        └ was empty: wake the task

Each partition has its own queue, so a batch is one partition's, in order of offsets. The library
fetches ahead, up to `queued.max.messages.kbytes` a partition, and stops there: a task held up by
backpressure takes nothing, and nothing piles up. Partitions are assigned here, by offsets of our
own; no consumer group assigns them, but the group named `group.id` gets the offsets of each
completed checkpoint, for those who watch it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ...api.connectors.base import Emit, NeedSplit, Polled, ReaderContext, SourceReader, Wait
from ...core.batch import ObjectBatch, concat
from ...core.errors import ConnectorError
from . import librdkafka as lib
from .message_kernels import describe, destroy
from .offsets import KafkaSplit
from .records import MALFORMED, Messages, RecordDecoder
from .settings import KafkaProperties

log = logging.getLogger("strom")

IDLE_MS: Final = 100
"""The library's own news (errors, statistics) is asked for so often while there is no record."""

AHEAD_KB: Final = 65_536
"""What a reader may have fetched and not emitted, all its first partitions together."""

LEAST_KB: Final = 1024
"""The same for one of many partitions."""

LAG_MS: Final = 1000
"""How often the lag is reported."""

FAREWELL_MS: Final = 1000
"""How long the group's coordinator may take, at the end, to hear of the last offsets."""

_EOF: Final = "_PARTITION_EOF"
_LOST: Final = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"})
_NO_TOPIC: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})
_REFUSED: Final = frozenset(
    {
        "_AUTHENTICATION",
        "_FATAL",
        "_SSL",
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
    }
)
"""Errors that waiting does not mend."""

_DAMAGED: Final = frozenset({"_BAD_COMPRESSION", "_BAD_MSG", "_NOT_IMPLEMENTED", "INVALID_MSG"})
"""Of a partition's records: they are in the log and cannot be read. The library passes over some
of them and reads on, and asks for others for ever."""

_WARN_EVERY_MS: Final = 10_000


@dataclass
class _Held:
    """A partition being read, and its queue of the library."""

    split: KafkaSplit
    queue: int


class KafkaReader(SourceReader):
    """See the module. `commits`: whether the group hears of completed checkpoints."""

    can_pause = True

    def __init__(
        self,
        context: ReaderContext,
        properties: KafkaProperties,
        decoder: RecordDecoder,
        commits: bool,
        asks_every_ms: int | None,
    ) -> None:
        self.asks_every_ms = asks_every_ms
        self._context = context
        self._properties = properties
        self._decoder = decoder
        self._commits = commits
        self._trouble: str | None = None
        """What the library said that waiting does not mend."""
        self._warned_at: int | None = None
        self._opened: lib.Client | None = None
        """Made with the first splits: how much it may fetch ahead depends on their number."""
        self._of = lib.library()
        self._timestamp_of = lib.address("rd_kafka_message_timestamp")
        self._destroy = lib.address("rd_kafka_message_destroy")
        self._messages = np.zeros(context.batch_size, dtype=np.int64)
        self._held: deque[_Held] = deque()
        """The one whose turn it is first."""
        self._paused: frozenset[str] = frozenset()
        """Partitions that wait for slower ones."""
        self._ready: deque[Emit] = deque()
        """Splits with nothing to read."""
        self._read: list[KafkaSplit] = []
        """Those that were read to their stop."""
        self._snapshots: deque[tuple[Sequence[KafkaSplit], int]] = deque()
        """What `snapshot` returned, and how many splits were read by then."""
        self._committed: list[tuple[str, int, int]] = []
        """What the group was told last."""
        self._served_at = 0
        self._lag_at = 0

    def add_splits(self, splits: Sequence[KafkaSplit]) -> None:
        if self._opened is None:
            self._opened = self._connect(len(splits))
        for split in splits:
            if split.is_read:
                self._ready.append(Emit(ObjectBatch([]), split.split_id, finished=True))
                continue
            topic = split.topic.encode()
            queue = self._of.rd_kafka_queue_get_partition(
                self._client.handle, topic, split.partition
            )
            # Before the assignment: what comes for it stays in its own queue.
            self._of.rd_kafka_queue_forward(queue, None)
            self._client.on_data(queue, self._context.wake)
            self._held.append(_Held(split, queue))
            with lib.Partitions([(split.topic, split.partition, split.position)]) as assigned:
                self._call(self._of.rd_kafka_incremental_assign, assigned, split)

    def poll(self) -> Polled:
        if self._ready:
            return self._ready.popleft()
        now = self._context.clock.now_ms()
        if self._opened is None:
            return NeedSplit()
        if now >= self._served_at + IDLE_MS:
            self._serve(now)
        if not self._held:
            return NeedSplit()
        for _ in range(len(self._held)):
            held = self._held[0]
            self._held.rotate(-1)
            if held.split.split_id in self._paused:
                continue
            emitted = self._take(held)
            if emitted is not None:
                return emitted
        self._serve(now)
        return Wait(now + IDLE_MS)

    def pause(self, split_ids: frozenset[str]) -> None:
        """What the library has fetched of them stays in their queues."""
        self._paused = split_ids

    def snapshot(self) -> Sequence[KafkaSplit]:
        splits = sorted((h.split for h in self._held), key=lambda s: (s.topic, s.partition))
        if self._commits:
            self._snapshots.append((splits, len(self._read)))
        return splits

    def notify_checkpoint_complete(self, checkpoint_id: int, splits: Sequence[KafkaSplit]) -> None:
        if not self._commits or self._opened is None:
            return
        read = self._read_by(splits)
        durable = [*self._read[:read], *splits]
        del self._read[:read]
        self._snapshots = deque((known, n - read) for known, n in self._snapshots)
        if not durable:
            return
        self._committed = [(s.topic, s.partition, s.position) for s in durable]
        with lib.Partitions(self._committed) as offsets:
            code = self._of.rd_kafka_commit(self._client.handle, offsets, 1)
        if code:
            log.warning("%s: offsets are not committed: %s", self._who, lib.text_of(code))

    def _read_by(self, splits: Sequence[KafkaSplit]) -> int:
        """How many splits had been read when `splits` was the snapshot: all, if that was taken
        after the end, when this reader is asked no more."""
        for at, (known, read) in enumerate(self._snapshots):
            if known is splits:
                for _ in range(at + 1):
                    self._snapshots.popleft()
                return read
        return 0 if self._held else len(self._read)

    def close(self) -> None:
        while self._held:
            self._let_go(self._held.popleft().queue)
        if self._opened is None:
            return
        if self._committed:
            self._commit_before_leaving()
        self._opened.close()
        self._opened = None

    def _connect(self, partitions: int) -> lib.Client:
        share = max(LEAST_KB, AHEAD_KB // max(1, partitions))
        defaults = {"queued.max.messages.kbytes": str(share)}
        properties = self._properties.with_defaults(defaults)
        return lib.Client(lib.CONSUMER, properties, self._on_error, self._on_log)

    @property
    def _client(self) -> lib.Client:
        assert self._opened is not None, "no splits yet"
        return self._opened

    def _commit_before_leaving(self) -> None:
        """The last commit may be on its way still, and goes with the client."""
        queue = self._of.rd_kafka_queue_new(self._client.handle)
        with lib.Partitions(self._committed) as offsets:
            self._of.rd_kafka_commit_queue(self._client.handle, offsets, queue, None, None)
        event = self._of.rd_kafka_queue_poll(queue, FAREWELL_MS)
        if event:
            self._of.rd_kafka_event_destroy(event)
        self._of.rd_kafka_queue_destroy(queue)

    # --- records ---------------------------------------------------------------------------

    def _take(self, held: _Held) -> Emit | None:
        """What the partition's queue holds, up to a batch; None: nothing."""
        room = self._messages
        found = self._of.rd_kafka_consume_batch_queue(held.queue, 0, room.ctypes.data, len(room))
        if found <= 0:
            return None
        try:
            return self._made(held, Messages(*describe(room, found, self._timestamp_of), room))
        finally:
            destroy(room, found, self._destroy)

    def _made(self, held: _Held, messages: Messages) -> Emit | None:
        """Records up to the first error, or the stop, as a batch. An error stands behind the
        records of its partition that came before it, and ends what is looked at: what the library
        puts behind it are errors, or ends of the partition, too, unless it has gone on reading."""
        split, stop = held.split, held.split.stop
        batches: list[Emit] = []
        for first, last in messages.runs():
            part = messages.slice(first, last)
            if stop is not None:
                part = part.before(stop)
            if len(part):
                batches.append(self._decoded(part, split))
                split = replace(split, position=part.last_offset + 1)
            if stop is not None and len(part) < last - first:
                split = replace(split, position=stop)
            if last < len(messages) and not split.is_read:
                split = self._on_message_error(split, messages, last)
            if split.is_read:
                break
        held.split = split
        finished = split.is_read
        if finished:
            self._release(held)
            self._read.append(split)
        if not batches and not finished:
            return None
        return _joined(batches, split.split_id, finished)

    def _decoded(self, messages: Messages, split: KafkaSplit) -> Emit:
        emit = self._decoder.decode(messages, split)
        if emit.side:
            self._context.count(MALFORMED, sum(len(records) for _, records in emit.side))
        return emit

    def _on_message_error(self, split: KafkaSplit, messages: Messages, at: int) -> KafkaSplit:
        """Where reading goes on behind an error; raises ConnectorError if it cannot."""
        name, offset = lib.name_of(int(messages.errors[at])), int(messages.offsets[at])
        behind = split.stop is not None and offset >= split.stop
        if name == _EOF or (name in _DAMAGED and behind):
            return replace(split, position=max(split.position, offset))
        said = self._of.rd_kafka_message_errstr(int(messages.addresses[at])) or b""
        self._judge(name, said.decode(errors="replace"), split)
        return split

    def _release(self, held: _Held) -> None:
        self._held.remove(held)
        split = held.split
        with lib.Partitions([(split.topic, split.partition, 0)]) as partitions:
            self._call(self._of.rd_kafka_incremental_unassign, partitions, split)
        self._let_go(held.queue)

    def _let_go(self, queue: int) -> None:
        self._client.on_data(queue, None)
        self._of.rd_kafka_queue_destroy(queue)

    def _call(self, function: Any, partitions: Any, split: KafkaSplit) -> None:
        try:
            lib.check(function(self._client.handle, partitions))
        except lib.Failure as error:
            raise ConnectorError(f"cannot read Kafka partition {split.split_id}: {error}") from None

    # --- what the library says -------------------------------------------------------------

    def _serve(self, now: int) -> None:
        """Its callbacks, and errors that are no partition's. Raises what waiting does not mend."""
        self._served_at = now
        while message := self._of.rd_kafka_consumer_poll(self._client.handle, 0):
            one = np.array([message], dtype=np.int64)
            errors, *_ = describe(one, 1, self._timestamp_of)
            said = (self._of.rd_kafka_message_errstr(message) or b"").decode(errors="replace")
            destroy(one, 1, self._destroy)
            if not errors[0]:
                raise ConnectorError(
                    f"{self._who}: a Kafka record came of no partition that is read"
                )
            self._judge(lib.name_of(int(errors[0])), said, None)
        if self._trouble is not None:
            raise ConnectorError(self._trouble)
        if now >= self._lag_at + LAG_MS:
            self._lag_at = now
            self._report_lag()

    def _judge(self, name: str, said: str, split: KafkaSplit | None) -> None:
        """Raises ConnectorError for what waiting does not mend; else the library tries again."""
        where = "" if split is None else f" partition {split.split_id}"
        said = self._properties.without_secrets(said)
        if name in _LOST and split is not None:
            raise ConnectorError(
                f"Kafka{where} no longer has the records from offset {split.position} on ({said}): "
                "they expired, or the topic was made anew. Start without the checkpoint, from "
                "offsets that exist; or set the property auto.offset.reset to earliest or latest "
                "to go on without the lost records"
            )
        if name in _DAMAGED and split is not None:
            raise ConnectorError(
                f"Kafka{where} has records behind offset {split.position} that cannot be read: "
                f"{said} ({name}). Restore the log from a replica that is whole; or delete the "
                "records (kafka-delete-records) and set the property auto.offset.reset to "
                "earliest, to go on without them"
            )
        if name in _NO_TOPIC:
            raise ConnectorError(self._gone(where, said))
        if name in _REFUSED:
            raise ConnectorError(f"Kafka refuses to be read{where}: {said} ({name})")
        self._warn(f"{said} ({name})")

    def _on_error(self, code: int, reason: str) -> None:
        name = lib.name_of(code)
        reason = self._properties.without_secrets(reason)
        if name in _REFUSED:
            self._trouble = (
                f"the Kafka cluster '{self._properties.get('bootstrap.servers')}' refuses this "
                f"client: {reason} ({name}); look at the credentials"
            )
        elif name == "UNKNOWN_TOPIC_OR_PART":
            # Said once `topic.metadata.propagation.max.ms` have passed: it is no broker's start.
            self._trouble = self._gone(" topic", reason)
        else:
            self._warn(f"{reason} ({name})")

    @staticmethod
    def _gone(where: str, said: str) -> str:
        return f"Kafka{where} does not exist any more ({said}): was the topic deleted?"

    def _warn(self, text: str) -> None:
        """Brokers that are away come back; it is said now and then that they are."""
        now = self._context.clock.now_ms()
        if self._warned_at is None or now >= self._warned_at + _WARN_EVERY_MS:
            self._warned_at = now
            log.warning("%s: Kafka: %s; trying again", self._who, text)

    def _on_log(self, level: int, text: str) -> None:
        # Errors come to `_on_error`. A warning (4, as in syslog) says that records are passed over
        # as the property auto.offset.reset wants it.
        how = logging.WARNING if level == 4 else logging.DEBUG
        log.log(how, "%s: librdkafka: %s", self._who, self._properties.without_secrets(text))

    @property
    def _who(self) -> str:
        return f"source '{self._context.operator}', subtask {self._context.subtask}"

    def _report_lag(self) -> None:
        """Records between the position and the end of each partition, as the last fetch saw it."""
        total = 0
        for held in self._held:
            split = held.split
            found = lib.watermarks(self._client.handle or 0, split.topic, split.partition)
            if found is not None:
                lag = max(0, (found[1] if split.stop is None else split.stop) - split.position)
                self._context.gauge(f"lag.{split.split_id}", float(lag))
                total += lag
        self._context.gauge("pending_records", float(total))


def _joined(batches: list[Emit], split_id: str, finished: bool) -> Emit:
    """One Emit for several of one split: errors between records are rare."""
    if not batches:
        return Emit(ObjectBatch([]), split_id, finished)
    if len(batches) == 1:
        return replace(batches[0], finished=finished)
    whole = concat([emit.batch for emit in batches if len(emit.batch)] or [batches[0].batch])
    return Emit(whole, split_id, finished, [each for emit in batches for each in emit.side])
