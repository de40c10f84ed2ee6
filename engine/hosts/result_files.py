"""The format of what coordinators write down of a job's collected results (`result_log`). Pure.

    results-<epoch>-<coordinator>-<checkpoint>-<count>            the last one's checkpoint: `end`
    results-<epoch>-<coordinator>-<checkpoint>-<count>-<merge>    put together of several

    magic | length of the index, 8 bytes | index, JSON | values, one behind the other | checksum

A value is the bytes that the job's client unpickles; nobody else does. The checksum (xxh64 of all
before it, 16 hex digits) tells a file that is torn or was altered by accident; whoever can write
there can have the client run what it likes, as with the job's checkpoints.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...checkpoint.storage import checksum
from ...core.errors import CorruptCheckpointError
from ...core.ids import OperatorId
from ..exchange.pickling import Parcel

MAGIC: Final = b"strom-results-1\n"

PREFIX: Final = "results-"

END: Final = 1 << 62
"""Greater than any checkpoint's number."""

_NAME: Final = re.compile(r"results-(\d+)-(\d+)-(\d+|end)-(\d+)(?:-\d+)?")

_DIGITS: Final = 16


@dataclass(frozen=True, order=True)
class Coordinator:
    """Who wrote a file. `number`: greater than that of those before it. `epoch`: its own in the
    job's checkpoints (`checkpoint.epochs`), which tells it from one that was taken for dead;
    coordinators that keep checkpoints in memory all begin with the same."""

    epoch: int
    number: int


@dataclass(frozen=True)
class Result:
    """A published value. `data`: as of a `Parcel`."""

    operator: OperatorId
    key: str
    data: bytes


@dataclass(frozen=True)
class Share:
    """What there is of one coordinator: so many results. `began`: the checkpoint that the job went
    back to with it, 0: to the beginning; None: the tasks ran on."""

    count: int
    began: int | None = None


@dataclass(frozen=True)
class ResultFile:
    """`start`: so many results this coordinator has written down before `results`. `began`: as of
    its `Share`. `before`: what counts of those before it, each as far as it went on from them.
    `lost`: why more of theirs may be missing; None: nothing is."""

    start: int
    before: Mapping[Coordinator, Share]
    results: Sequence[Result]
    began: int | None = None
    lost: str | None = None


@dataclass(frozen=True, order=True)
class Place:
    """Of a file among those of its coordinator. `checkpoint`: the one that is published behind it;
    `END`: none is. `count`: how many results the coordinator has written down with it: where the
    publication is tried again there may be several of one checkpoint, and none replaces another
    that holds anything else."""

    checkpoint: int
    count: int


def file_name(by: Coordinator, place: Place, merge: int = 0) -> str:
    """`merge`: the number of that in which it was put together, 0: of none. Each has a name that
    nothing else ever had: a write that hung, and comes through late, replaces none of these."""
    last = "end" if place.checkpoint == END else str(place.checkpoint)
    name = f"{PREFIX}{by.epoch}-{by.number}-{last}-{place.count}"
    return f"{name}-{merge}" if merge else name


def named(name: str) -> tuple[Coordinator, Place] | None:
    """Who wrote a file, and its place; None: it is no such file."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    epoch, number, last, count = found.groups()
    checkpoint = END if last == "end" else int(last)
    return Coordinator(int(epoch), int(number)), Place(checkpoint, int(count))


def sealed_result(operator: OperatorId, key: str, value: Any) -> Result:
    """Of what a task has published."""
    data = value.data if isinstance(value, Parcel) else pickle.dumps(value, protocol=5)
    return Result(operator, key, data)


def encode(file: ResultFile) -> bytes:
    before = [[w.epoch, w.number, s.count, s.began] for w, s in sorted(file.before.items())]
    index = [[str(one.operator), one.key, len(one.data)] for one in file.results]
    known = {"start": file.start, "began": file.began, "before": before, "lost": file.lost}
    head = json.dumps({**known, "results": index}).encode()
    values = [one.data for one in file.results]
    data = b"".join([MAGIC, len(head).to_bytes(8, "big"), head, *values])
    return data + checksum(data).encode()


def decode(name: str, data: bytes) -> ResultFile:
    """CorruptCheckpointError for what was not written so."""
    body, said = data[:-_DIGITS], data[-_DIGITS:]
    if not body.startswith(MAGIC) or checksum(body).encode() != said:
        raise CorruptCheckpointError(f"{name} is torn, or was altered")
    at = len(MAGIC) + 8
    end = at + int.from_bytes(body[len(MAGIC) : at], "big")
    head: dict[str, Any] = json.loads(body[at:end])
    results, at = [], end
    for operator, key, size in head["results"]:
        results.append(Result(OperatorId(operator), key, body[at : at + size]))
        at += size
    before = {Coordinator(e, number): Share(*share) for e, number, *share in head["before"]}
    return ResultFile(head["start"], before, results, head["began"], head["lost"])
