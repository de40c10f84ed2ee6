"""A manifest as JSON text, written piece by piece: members in the order of their names, no white
space, ASCII alone. That is the canonical encoding of which the manifest has a checksum, so that it
is made once, as what is hashed and as what is stored.

Of ten thousand subtasks a manifest has tens of thousands of handles. As dicts, which `json` then
sorts and encodes twice, they took most of the CPU time of a checkpoint's coordinator, in one call
during which nothing else in its process ran. Types are those that the handles declare: what reads
manifests (`manifest_json`) checks each of them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted

from .handles import (
    DatabaseHandle,
    FileHandle,
    InFlightHandle,
    KeyedHandle,
    OperatorSnapshot,
    SubtaskSnapshot,
)


def record(members: Mapping[str, str]) -> str:
    """An object of values that are texts already.

    >>> record({"b": "1", "a": "[]"})
    '{"a":[],"b":1}'
    """
    return "{" + ",".join([f"{quoted(n)}:{members[n]}" for n in sorted(members)]) + "}"


def items(texts: Iterable[str]) -> str:
    """A list of values that are texts already."""
    return "[" + ",".join(texts) + "]"


def flag(value: bool) -> str:
    return "true" if value else "false"


def content(data: bytes) -> str:
    """Bytes as a text value."""
    return f'"{base64.b64encode(data).decode("ascii")}"'


def subtask_text(snapshot: SubtaskSnapshot) -> str:
    in_flight = snapshot.in_flight
    head = "{" if in_flight is None else f'{{"in_flight":{_in_flight(in_flight)},'
    operators = items([_operator(one) for one in snapshot.operators])
    task = snapshot.task
    return (
        f'{head}"operators":{operators},"subtask":{task.subtask},"vertex":{quoted(task.vertex)}}}'
    )


def _in_flight(handle: InFlightHandle) -> str:
    edges = items([quoted(edge) for edge in handle.edges])
    return f'{{"edges":{edges},"file":{_file(handle.file)}}}'


def _operator(snapshot: OperatorSnapshot) -> str:
    database, state = snapshot.database, snapshot.operator_state
    head = "{" if database is None else f'{{"database":{_database(database)},'
    keyed = items([_keyed(one) for one in snapshot.keyed])
    stored = "null" if state is None else _file(state.file)
    operator = quoted(snapshot.operator)
    return f'{head}"keyed":{keyed},"operator":{operator},"operator_state":{stored}}}'


def _keyed(handle: KeyedHandle) -> str:
    groups = ",".join([f"[{group},{first},{rows}]" for group, first, rows in handle.groups])
    return (
        f'{{"file":{_file(handle.file)},"groups":[{groups}],"kind":{quoted(handle.kind)},'
        f'"layer":{quoted(handle.layer)},"metadata":{_texts(handle.metadata)},'
        f'"name":{quoted(handle.name)}}}'
    )


def _database(handle: DatabaseHandle) -> str:
    states = [
        f'{{"kind":{quoted(one.kind)},"layout":{_texts(one.layout)},"name":{quoted(one.name)},'
        f'"prefix":"{one.prefix.hex()}"}}'
        for one in handle.states
    ]
    files = items([_file(file, f'"name":{quoted(name)},') for name, file in handle.files])
    hidden = "null" if handle.hidden is None else _file(handle.hidden)
    return f'{{"files":{files},"hidden":{hidden},"states":{items(states)}}}'


def _file(handle: FileHandle, name: str = "") -> str:
    """`name`: as a member, of a file that has one."""
    inline, offset = handle.inline, handle.offset
    held = "" if inline is None else f'"inline":{content(inline)},'
    begins = "" if offset is None else f'"offset":{offset},'
    shared = '"shared":true,' if handle.shared else ""
    return (
        f'{{"checksum":{quoted(handle.checksum)},{held}{name}{begins}'
        f'"path":{quoted(handle.path)},{shared}"size":{handle.size}}}'
    )


def _texts(values: Mapping[str, str]) -> str:
    return _encoded(tuple(values.items()))


@lru_cache(maxsize=1024)
def _encoded(values: tuple[tuple[str, str], ...]) -> str:
    """All subtasks say the same of a state."""
    return record({name: quoted(value) for name, value in values})
