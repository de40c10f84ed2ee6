"""Collect, print and discard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from strom.api.connectors.base import Sink, SinkWriter, WriterContext
from strom.api.connectors.builtin_sinks import CollectSink, DiscardSink, PrintSink
from strom.core.batch import ObjectBatch
from strom.core.clock import VirtualClock
from strom.core.row import Row


class Client:
    """The publishing side: a key seen before is dropped."""

    def __init__(self) -> None:
        self.published: dict[str, Any] = {}

    def publish(self, key: str, value: Any) -> None:
        self.published.setdefault(key, value)

    @property
    def records(self) -> list[Any]:
        return [record for values in self.published.values() for record in values]

    def writer(
        self,
        sink: Sink,
        subtask: int = 0,
        of: int = 1,
        attempt: int = 0,
        checkpointing: bool = True,
    ) -> SinkWriter:
        return sink.create_writer(
            WriterContext(
                "out",
                "id",
                "job",
                subtask,
                of,
                attempt,
                VirtualClock(),
                self.publish,
                checkpointing,
            )
        )


def prepared(writer: SinkWriter, checkpoint: int) -> list[Any]:
    committables = writer.prepare_commit(checkpoint)
    assert not callable(committables)
    return list(committables)


def test_collect_publishes_when_the_checkpoint_is_complete() -> None:
    client = Client()
    writer = client.writer(CollectSink(), subtask=2)
    writer.write(ObjectBatch([1, 2]))
    first = prepared(writer, 1)
    writer.write(ObjectBatch([3]))
    assert client.records == []
    writer.commit(first)
    assert client.published == {"2-1": [1, 2]}
    writer.commit(prepared(writer, 2))
    assert client.published == {"2-1": [1, 2], "2-2": [3]}
    assert prepared(writer, 3) == []


def test_collect_is_exactly_once_over_a_crash_between_checkpoint_and_commit() -> None:
    #  write 1 2 | chk 1 complete | commit | write 3 | crash ; restore from 1 | write 3 | chk 2
    client = Client()
    writer = client.writer(CollectSink())
    writer.write(ObjectBatch([1, 2]))
    checkpointed = prepared(writer, 1)
    writer.commit(checkpointed)
    writer.write(ObjectBatch([3]))

    again = client.writer(CollectSink(), subtask=1, of=2, attempt=1)
    again.recover(checkpointed)
    again.write(ObjectBatch([3]))
    again.commit(prepared(again, 2))
    assert client.records == [1, 2, 3]


def test_collect_without_checkpoints_publishes_at_once_in_every_attempt() -> None:
    client = Client()
    for attempt in (0, 1):
        writer = client.writer(CollectSink(), attempt=attempt, checkpointing=False)
        writer.write(ObjectBatch([1]))
        writer.write(ObjectBatch([2]))
        assert prepared(writer, 1) == []
    assert client.records == [1, 2, 1, 2]
    assert list(client.published) == sorted(client.published)


def test_a_published_list_is_not_the_batchs_own() -> None:
    client = Client()
    batch = ObjectBatch([1], np.array([5]))
    client.writer(CollectSink(), checkpointing=False).write(batch)
    client.records.append(2)
    client.published["0-0-000000000000"].append(3)
    assert batch.values == [1]


@pytest.mark.parametrize(
    ("identifier", "subtask", "of", "prefix"),
    [("", 0, 1, ""), ("id", 0, 1, "id> "), ("", 1, 2, "2> "), ("id", 1, 2, "id:2> ")],
)
def test_print_prefixes(
    capsys: pytest.CaptureFixture[str], identifier: str, subtask: int, of: int, prefix: str
) -> None:
    writer = Client().writer(PrintSink(identifier), subtask, of)
    writer.write(ObjectBatch([Row(a=1), "x"]))
    assert prepared(writer, 1) == []
    writer.commit([])
    assert capsys.readouterr().out == f"{prefix}Row(a=1)\n{prefix}x\n"


def test_discard(capsys: pytest.CaptureFixture[str]) -> None:
    client = Client()
    writer = client.writer(DiscardSink())
    writer.write(ObjectBatch([1]))
    writer.commit(prepared(writer, 1))
    assert (client.records, capsys.readouterr().out) == ([], "")
