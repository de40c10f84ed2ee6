"""The manifest: what a checkpoint consists of. A checkpoint exists once its manifest does.

JSON, so that a person or another tool can read it. The manifest carries a checksum over its own
content (in a canonical encoding, so white space does not matter) besides those of the data files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final

import xxhash

from ..core.errors import CheckpointFormatError, ConfigurationError, CorruptCheckpointError
from ..core.ids import EVEN, CheckpointId, Deal, OperatorId
from ..state.key_groups import check_deal
from . import manifest_json
from .handles import FileHandle, OperatorSnapshot, SubtaskSnapshot
from .manifest_text import content, flag, items, record, subtask_text
from .names import shared_by

FORMAT_VERSION: Final = 9
"""3: files that checkpoints share, and layers of state. 4: files of local databases. 5: files that
hold several small ones. 6: lists, maps, timers and what expires in local databases. 7: entries, and
tables with values or of objects in them. 8: keys of columns of any type in them, and tables tell
which of their rows do not count. 9: what barriers overtook."""

UNEVEN_VERSION: Final = 10
"""Of those in which key groups are dealt unevenly: the files of a local database hold key groups
that were another subtask's before, and who does not know of deals would take them for current."""

READ_VERSIONS: Final = (2, 3, 4, 5, 6, 7, 8, 9, 10)

_BODY: Final = b'{"body":'
"""How a manifest begins that `encode` wrote."""


@dataclass(frozen=True)
class OperatorShape:
    """How an operator was run when the checkpoint was taken. `uid`: for people and tools to name it
    by; what it is matched by is its id. `deal`: of the key groups to its subtasks."""

    operator: OperatorId
    name: str
    parallelism: int
    max_parallelism: int
    uid: str | None = None
    deal: Deal = EVEN


@dataclass(frozen=True)
class Manifest:
    """A complete checkpoint. `enumerators`: pickled state of each source's enumerator.
    `savepoint`: it belongs to whoever asked for it, not to the job. `stopped`: nothing was to come
    behind it, though the sources had more: the job ends with it, as with a `terminal` one.
    `stopped_with`: where the savepoint is that it was stopped with, None: nobody wrote it down.
    `epoch`: in which it was published (`epochs`), 0: nobody knows."""

    job_id: str
    job_name: str
    checkpoint_id: CheckpointId
    timestamp_ms: int
    operators: tuple[OperatorShape, ...]
    subtasks: tuple[SubtaskSnapshot, ...]
    enumerators: Mapping[OperatorId, bytes] = field(default_factory=dict)
    terminal: bool = False
    savepoint: bool = False
    stopped: bool = False
    stopped_with: str | None = None
    epoch: int = 0

    def shape(self, operator: OperatorId) -> OperatorShape | None:
        return next((s for s in self.operators if s.operator == operator), None)

    def snapshots(self, operator: OperatorId) -> list[OperatorSnapshot]:
        """Those of the operator's subtasks, in order of their index."""
        found = [
            (subtask.task.subtask, snapshot)
            for subtask in self.subtasks
            for snapshot in subtask.operators
            if snapshot.operator == operator
        ]
        return [snapshot for _, snapshot in sorted(found, key=lambda pair: pair[0])]

    def files(self) -> Iterator[FileHandle]:
        """Every data file."""
        for subtask in self.subtasks:
            yield from subtask.files

    @property
    def size(self) -> int:
        """Bytes of all data files."""
        return sum(handle.size for handle in self.files())

    @property
    def shared(self) -> frozenset[str]:
        """Names of the shared files that it needs."""
        return frozenset([handle.path for handle in self.files() if handle.shared])

    @property
    def new_size(self) -> int:
        """Bytes of the data files that this checkpoint wrote itself."""
        mine = self.checkpoint_id
        files = (f for f in self.files() if not f.shared or shared_by(f.path) == mine)
        return sum(handle.size for handle in files)


def unmatched(manifest: Manifest, operators: Iterable[OperatorId]) -> list[OperatorId]:
    """Operators with state in the checkpoint that are not among the job's `operators`.

    Restoring without them loses their state: the caller raises StateError unless that is allowed.
    """
    known = set(operators)
    return [operator for operator in stateful(manifest) if operator not in known]


def edges_in_flight(manifest: Manifest) -> frozenset[str]:
    """Names of the edges on which something was on its way."""
    handles = (subtask.in_flight for subtask in manifest.subtasks)
    return frozenset(edge for one in handles if one is not None for edge in one.edges)


def stateful(manifest: Manifest) -> list[OperatorId]:
    """Operators that the checkpoint holds state of, in order of their ids."""
    with_files = {
        snapshot.operator
        for subtask in manifest.subtasks
        for snapshot in subtask.operators
        if snapshot.keyed or snapshot.database or snapshot.operator_state is not None
    }
    return sorted(with_files | set(manifest.enumerators))


def encode(manifest: Manifest) -> bytes:
    """As JSON text: the body in its canonical encoding, and the checksum of that."""
    body = _body_text(manifest).encode("ascii")
    uneven = any(shape.deal for shape in manifest.operators)
    version = UNEVEN_VERSION if uneven else FORMAT_VERSION
    return b"".join((_BODY, body, _rest(xxhash.xxh64_hexdigest(body), version)))


def _body_text(manifest: Manifest) -> str:
    members = {
        "job_id": quoted(manifest.job_id),
        "job_name": quoted(manifest.job_name),
        "checkpoint_id": str(manifest.checkpoint_id),
        "timestamp_ms": str(manifest.timestamp_ms),
        "terminal": flag(manifest.terminal),
        "savepoint": flag(manifest.savepoint),
        "stopped": flag(manifest.stopped),
        "operators": items([_shape_text(shape) for shape in manifest.operators]),
        "subtasks": items([subtask_text(one) for one in manifest.subtasks]),
        "enumerators": record({o: content(state) for o, state in manifest.enumerators.items()}),
    }
    if manifest.stopped_with is not None:
        members["stopped_with"] = quoted(manifest.stopped_with)
    if manifest.epoch != 0:
        members["epoch"] = str(manifest.epoch)
    return record(members)


def _shape_text(shape: OperatorShape) -> str:
    members = {
        "operator": quoted(shape.operator),
        "name": quoted(shape.name),
        "parallelism": str(shape.parallelism),
        "max_parallelism": str(shape.max_parallelism),
    }
    if shape.uid is not None:
        members["uid"] = quoted(shape.uid)
    if shape.deal:
        members["deal"] = items(map(str, shape.deal))
    return record(members)


def decode(data: bytes, where: str) -> Manifest:
    """From JSON text. `where` names the file in the CorruptCheckpointError of a bad one, and in the
    CheckpointFormatError of one that another strom wrote."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpointError(
            f"{where}: not JSON ({len(data)} bytes, torn or truncated?): {error}"
        ) from error
    reader = manifest_json.Reader(document, where)
    version = reader.integer("format")
    if version not in READ_VERSIONS:
        raise CheckpointFormatError(
            f"{where}: written in checkpoint format {version}, this strom reads formats "
            f"{READ_VERSIONS[0]} to {READ_VERSIONS[-1]}: go on with the version of strom that "
            "wrote it, or start anew"
        )
    expected, body = reader.text("checksum"), reader.record("body")
    found = expected if _as_encoded(data, expected, version) else _checksum(body.value)
    if found != expected:
        raise CorruptCheckpointError(
            f"{where}: the manifest was altered: checksum {found}, recorded is {expected}"
        )
    return _from_body(body)


def _from_body(body: manifest_json.Reader) -> Manifest:
    return Manifest(
        job_id=body.text("job_id"),
        job_name=body.text("job_name"),
        checkpoint_id=CheckpointId(body.integer("checkpoint_id")),
        timestamp_ms=body.integer("timestamp_ms"),
        operators=tuple(_shape(shape) for shape in body.records("operators")),
        subtasks=tuple(manifest_json.subtask(s) for s in body.records("subtasks")),
        enumerators={
            OperatorId(operator): manifest_json.bytes_from_json(text, body.where)
            for operator, text in body.texts("enumerators").items()
        },
        terminal=body.flag("terminal"),
        savepoint=body.flag("savepoint", default=False),
        stopped=body.flag("stopped", default=False),
        stopped_with=body.text("stopped_with") if "stopped_with" in body.value else None,
        epoch=body.integer("epoch") if "epoch" in body.value else 0,
    )


def _shape(reader: manifest_json.Reader) -> OperatorShape:
    return OperatorShape(
        OperatorId(reader.text("operator")),
        reader.text("name"),
        reader.integer("parallelism"),
        reader.integer("max_parallelism"),
        reader.text("uid") if "uid" in reader.value else None,
        _deal(reader) if "deal" in reader.value else EVEN,
    )


def _deal(reader: manifest_json.Reader) -> Deal:
    found = tuple(reader.items("deal"))
    try:
        if not all(type(first) is int for first in found):
            raise ConfigurationError(f"found {found}, expected integers")
        check_deal(found, reader.integer("parallelism"), reader.integer("max_parallelism"))
    except ConfigurationError as error:
        raise CorruptCheckpointError(f"{reader.where}: field 'deal': {error}") from error
    return found


def _as_encoded(data: bytes, checksum: str, version: int) -> bool:
    """Whether it is what `encode` wrote, byte by byte: its body then need not be encoded again."""
    rest = _rest(checksum, version)
    if not (data.startswith(_BODY) and data.endswith(rest)):
        return False
    body = memoryview(data)[len(_BODY) : len(data) - len(rest)]
    return bool(xxhash.xxh64_hexdigest(body) == checksum)


def _rest(checksum: str, version: int) -> bytes:
    """What comes behind the body."""
    return f',"checksum":{quoted(checksum)},"format":{version}}}'.encode("ascii")


def _checksum(body: Any) -> str:
    """Of a body in whatever encoding it was read."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return str(xxhash.xxh64_hexdigest(canonical.encode()))
