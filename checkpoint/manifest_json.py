"""Handles out of JSON. Nothing is trusted: each field is checked for presence and type. Into JSON:
`manifest_text`."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, NoReturn, TypeVar, cast, get_args

from ..core.errors import CorruptCheckpointError
from ..core.ids import OperatorId, TaskId, VertexId
from ..state.increments import Layer
from ..state.stored_files import StoredState
from .handles import (
    DatabaseHandle,
    FileHandle,
    InFlightHandle,
    KeyedHandle,
    OperatorHandle,
    OperatorSnapshot,
    SubtaskSnapshot,
)
from .names import check_handle_path

T = TypeVar("T")

_LOCAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PREFIX = re.compile(r"[0-9a-f]{4}")

Json = dict[str, Any]


class Reader:
    """A JSON object and where it is from; each method reads one field or raises
    CorruptCheckpointError naming file and field."""

    __slots__ = ("value", "where")

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise CorruptCheckpointError(f"{where}: found {type(value).__name__}, expected object")
        self.value: Json = value
        self.where = where

    def text(self, name: str) -> str:
        return self._get(name, str)

    def integer(self, name: str) -> int:
        return self._get(name, int)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """`default`: of a field that may be absent."""
        if default is not None and name not in self.value:
            return default
        return self._get(name, bool)

    def items(self, name: str) -> list[Any]:
        return self._get(name, list)

    def record(self, name: str) -> Reader:
        return Reader(self._get(name, dict), f"{self.where}: {name}")

    def record_or_none(self, name: str) -> Reader | None:
        return None if self.value.get(name, 0) is None else self.record(name)

    def records(self, name: str) -> list[Reader]:
        return [
            Reader(item, f"{self.where}: {name}[{index}]")
            for index, item in enumerate(self.items(name))
        ]

    def texts(self, name: str) -> dict[str, str]:
        """An object whose values are all text."""
        found: Json = self._get(name, dict)
        for key, value in found.items():
            if not isinstance(value, str):
                self.fail(f"'{name}.{key}' is {type(value).__name__}, expected str")
        return found

    def fail(self, why: str) -> NoReturn:
        raise CorruptCheckpointError(f"{self.where}: {why}")

    def _get(self, name: str, kind: type[T]) -> T:
        if name not in self.value:
            self.fail(f"field '{name}' is missing")
        value = self.value[name]
        if type(value) is not kind:
            self.fail(f"field '{name}' is {type(value).__name__}, expected {kind.__name__}")
        return value


def bytes_from_json(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CorruptCheckpointError(f"{where}: bad base64: {error}") from error


def subtask(reader: Reader) -> SubtaskSnapshot:
    task = TaskId(VertexId(reader.text("vertex")), reader.integer("subtask"))
    return SubtaskSnapshot(
        task,
        tuple(_operator(o) for o in reader.records("operators")),
        _in_flight(reader.record("in_flight")) if "in_flight" in reader.value else None,
    )


def _in_flight(reader: Reader) -> InFlightHandle:
    edges = reader.items("edges")
    if not all(isinstance(edge, str) for edge in edges):
        reader.fail(f"names of edges are {edges!r}, expected texts")
    return InFlightHandle(_file(reader.record("file")), tuple(edges))


def _operator(reader: Reader) -> OperatorSnapshot:
    state = reader.record_or_none("operator_state")
    return OperatorSnapshot(
        OperatorId(reader.text("operator")),
        tuple(_keyed(keyed) for keyed in reader.records("keyed")),
        None if state is None else OperatorHandle(_file(state)),
        _database(reader.record("database")) if "database" in reader.value else None,
    )


def _database(reader: Reader) -> DatabaseHandle:
    hidden = reader.record_or_none("hidden")
    return DatabaseHandle(
        tuple((_local_name(one), _file(one)) for one in reader.records("files")),
        tuple(_stored_state(one) for one in reader.records("states")),
        None if hidden is None else _file(hidden),
    )


def _local_name(reader: Reader) -> str:
    """What a file is called in a folder that is made for it: nothing that leads out of it."""
    name = reader.text("name")
    if _LOCAL.fullmatch(name) is None:
        reader.fail(f"{name!r} is no name of a database's file")
    return name


def _stored_state(reader: Reader) -> StoredState:
    prefix = reader.text("prefix")
    if _PREFIX.fullmatch(prefix) is None:
        reader.fail(f"{prefix!r} is no prefix of a state: 4 hex digits")
    return StoredState(
        reader.text("name"), reader.text("kind"), bytes.fromhex(prefix), reader.texts("layout")
    )


def _keyed(reader: Reader) -> KeyedHandle:
    groups = []
    for group in reader.items("groups"):
        if not (isinstance(group, list) and [type(n) for n in group] == [int, int, int]):
            reader.fail(f"key group entry {group!r} is not (key group, first row, rows)")
        groups.append((group[0], group[1], group[2]))
    return KeyedHandle(
        reader.text("name"),
        reader.text("kind"),
        _file(reader.record("file")),
        tuple(groups),
        dict(reader.texts("metadata")),
        _layer(reader),
    )


def _layer(reader: Reader) -> Layer:
    """Format 2 knows no layers."""
    found = reader.text("layer") if "layer" in reader.value else "whole"
    for layer in get_args(Layer):
        if layer == found:
            return cast(Layer, layer)
    reader.fail(f"unknown layer '{found}'")


def _file(reader: Reader) -> FileHandle:
    inline = reader.text("inline") if "inline" in reader.value else None
    shared = "shared" in reader.value and reader.flag("shared")
    offset = reader.integer("offset") if "offset" in reader.value else None
    if offset is not None and offset < 0:
        reader.fail(f"a file's part cannot begin at {offset}")
    return FileHandle(
        check_handle_path(reader.text("path"), reader.where, shared),
        reader.integer("size"),
        reader.text("checksum"),
        None if inline is None else bytes_from_json(inline, reader.where),
        shared,
        offset,
    )
