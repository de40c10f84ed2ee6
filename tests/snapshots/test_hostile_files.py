"""Snapshots that somebody damaged, or made to do harm: named errors, and nothing of them runs."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import pickle
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import strom
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from open_state_kit import rewritten
from strom import Row
from strom.checkpoint.snapshot_io import to_ipc_file
from strom.checkpoint.storage import checksum
from strom.core.errors import CheckpointError, CorruptCheckpointError
from strom.snapshots.descriptions import UnreadableError
from strom.snapshots.pickles import described, text_of
from strom.snapshots.values import arrow_of


def made(tmp_path: Path, values: Any = (1, 2, 3)) -> str:
    data = pa.table({"k": [f"key {n}" for n in range(len(values))], "v": values})
    path = str(tmp_path / "savepoint")
    return strom.state.write().value("op", "s", data, key="k", value="v").save(path)


def file_of(path: str) -> Path:
    return next(Path(path).glob("*.arrow"))


def replaced(path: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Another file, with size and checksum as they must be for it."""
    file = file_of(path)
    data = to_ipc_file(change(pa.ipc.open_file(file.read_bytes()).read_all()))
    file.write_bytes(data)

    def fix(body: Any) -> None:
        handle = body["subtasks"][0]["operators"][0]["keyed"][0]["file"]
        handle["size"], handle["checksum"] = data.size, checksum(data)

    rewritten(path, fix)


class Bomb:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


# --- damage -------------------------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_a_flipped_bit_anywhere_is_found(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = made(tmp_path_factory.mktemp("flip"))
    name = data.draw(st.sampled_from([file_of(path).name, "manifest.json"]))
    file = Path(path) / name
    content = bytearray(file.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    before = strom.state.open(path).table("op", "s")
    file.write_bytes(content)
    found = ""
    try:
        snapshot = strom.state.open(path)
        table = snapshot.table("op", "s")
    except CheckpointError as error:
        found = str(error)
    if found:
        assert path in found
    else:  # white space of the manifest
        assert table.equals(before)
        assert snapshot.verify().ok


def test_truncated_and_missing(tmp_path: Path) -> None:
    path = made(tmp_path)
    file = file_of(path)
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])
    snapshot = strom.state.open(path)
    with pytest.raises(CorruptCheckpointError, match=rf"{file.name}: expected {len(whole)} bytes"):
        snapshot.table("op", "s")
    assert file.name in snapshot.verify().problems[0]
    file.unlink()
    assert "missing" in strom.state.open(path).verify().problems[0]
    manifest = Path(path) / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-10])
    with pytest.raises(CorruptCheckpointError, match="not JSON"):
        strom.state.open(path)


# --- manifests that lie -------------------------------------------------------------------------


def keyed(body: Any) -> Any:
    return body["subtasks"][0]["operators"][0]["keyed"][0]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda b: keyed(b)["file"].update(path="../../secret"), "leaves the checkpoint's folder"),
        (lambda b: keyed(b)["file"].update(path="/etc/passwd"), "leaves the checkpoint's folder"),
        (lambda b: keyed(b).update(groups=[[0, 0, 10**9]]), "not those of the manifest"),
        (
            lambda b: keyed(b)["metadata"].update(value="pickle"),
            "column 'value' of 'pickle' is int",
        ),
        (lambda b: keyed(b).update(metadata={}), "no encoding is recorded"),
        (lambda b: b.update(operators=[]), "has state but no shape"),
        (lambda b: b["operators"][0].update(max_parallelism=0), "expected 1 to 32768"),
        (lambda b: b["operators"][0].update(max_parallelism=10**12), "expected 1 to 32768"),
        (lambda b: b["operators"][0].update(max_parallelism=3), "not within 0 to 2"),
        (lambda b: b.pop("subtasks"), "'subtasks' is missing"),
        (lambda b: b["subtasks"].append(5), "expected object"),
    ],
)
def test_a_manifest_that_lies(tmp_path: Path, change: Callable[[Any], Any], found: str) -> None:
    path = made(tmp_path)
    rewritten(path, change)
    with pytest.raises(CorruptCheckpointError, match=found):
        strom.state.open(path).table("op", "s")


def test_keys_in_wrong_groups_are_found(tmp_path: Path) -> None:
    path = made(tmp_path)

    def swapped(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("key")
        keys = table.column("key").to_pylist()
        return table.set_column(at, "key", pa.array(keys[1:] + keys[:1], pa.large_string()))

    replaced(path, swapped)
    (problem,) = strom.state.open(path).verify().problems
    assert "by the hash of key it belongs in" in problem
    assert file_of(path).name in problem


def test_groups_that_are_not_sorted_are_found(tmp_path: Path) -> None:
    path = made(tmp_path)
    replaced(path, lambda table: table.take([2, 1, 0]))
    with pytest.raises(CorruptCheckpointError, match="is not ascending"):
        strom.state.open(path).table("op", "s")
    assert "is not ascending" in strom.state.open(path).verify().problems[0]


def test_offsets_beyond_the_data_are_found(tmp_path: Path) -> None:
    path = made(tmp_path)

    def wild(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("key")
        offsets = pa.array([0, 10**9, 10, 15], pa.int64()).buffers()[1]
        keys = pa.Array.from_buffers(pa.large_string(), 3, [None, offsets, pa.py_buffer(b"a" * 15)])
        return table.set_column(at, "key", keys)

    replaced(path, wild)
    with pytest.raises(CorruptCheckpointError, match=file_of(path).name):
        strom.state.open(path).table("op", "s")


# --- pickles ------------------------------------------------------------------------------------


def with_pickles(tmp_path: Path, pickles: list[bytes]) -> str:
    path = made(tmp_path, [f"text {n}" for n in range(len(pickles))])

    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("value")
        return table.set_column(at, "value", pa.array(pickles, pa.large_binary()))

    rewritten(path, lambda body: keyed(body)["metadata"].update(value="pickle"))
    replaced(path, change)
    return path


def test_a_pickle_bomb_is_shown_and_never_run(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    bomb = pickle.dumps(Bomb(touched), protocol=5)
    path = with_pickles(tmp_path, [bomb, pickle.dumps(5)])
    snapshot = strom.state.open(path)
    table = snapshot.table("op", "s")
    assert set(table.column("value_text").to_pylist()) == {f"posix.system('touch {touched}')", "5"}
    assert bomb in table.column("value").to_pylist()
    snapshot.verify()
    snapshot.sql("SELECT * FROM state.s")
    assert not snapshot.diff(path)
    snapshot.edit().set("op", "s", "key 1", 7).max_parallelism(9).save(str(tmp_path / "edited"))
    assert not touched.exists()
    snapshot.table("op", "s", unpickle=True)  # whoever asks for it gets it
    assert touched.exists()


def test_a_small_pickle_that_describes_a_huge_value_stays_small(tmp_path: Path) -> None:
    value: Any = [0]
    for _ in range(30):
        value = [value, value]  # 2**30 zeros
    snapshot = strom.state.open(with_pickles(tmp_path, [pickle.dumps(value)]))
    (text,) = snapshot.table("op", "s").column("value_text").to_pylist()
    assert len(text) < 2000


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=10))
def test_any_bytes_are_a_description_or_unreadable(noise: bytes, tail: bytes) -> None:
    whole = pickle.dumps({"a": [1, (2.5, None)], "b": {3}}, protocol=5)
    for data in (noise, whole[: len(noise)] + tail, whole[:5] + noise + whole[5:]):
        with contextlib.suppress(UnreadableError):
            described(data)
        assert isinstance(text_of(data), str)
        arrow_of([data])


class Point:
    def __init__(self, x: int, y: float) -> None:
        self.x, self.y = x, y


ZONE = dt.timezone(dt.timedelta(hours=2))
NUMBER = uuid.UUID(int=7)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1, None, 2**62], [1, None, 2**62]),
        ([[1], [], None, [2, 3]], [[1], [], None, [2, 3]]),
        ([(1, "a"), (2, None)], [{"f0": 1, "f1": "a"}, {"f0": 2, "f1": None}]),
        ([{"a": 1}, {"b": 2, "c": 3}], [[("a", 1)], [("b", 2), ("c", 3)]]),
        ([{1}, set()], [[1], []]),
        ([Row(a=1, b="x")], [{"a": 1, "b": "x"}]),
        ([Point(1, 2.5), Point(3, 4.5)], [{"x": 1, "y": 2.5}, {"x": 3, "y": 4.5}]),
        ([dt.date(2020, 1, 2)], [dt.date(2020, 1, 2)]),
        ([dt.datetime(2020, 1, 2, 3)], [dt.datetime(2020, 1, 2, 3)]),
        ([dt.datetime(2020, 1, 2, 3, tzinfo=ZONE)], [dt.datetime(2020, 1, 2, 1, tzinfo=dt.UTC)]),
        ([dt.timedelta(1, 2, 3)], [dt.timedelta(1, 2, 3)]),
        ([Decimal("1.50")], [Decimal("1.50")]),
        ([NUMBER], [str(NUMBER)]),
        ([1, "a"], None),
        ([1, 1.0], None),
        ([2**70], None),
        ([[1, "a"]], None),
        ([object()], None),
    ],
)
def test_values_of_one_shape_are_columns(values: list[Any], shown: list[Any] | None) -> None:
    column = arrow_of([pickle.dumps(value, protocol=5) for value in values])
    assert (None if column is None else column.to_pylist()) == shown


def test_what_is_said_twice_is_there_twice() -> None:
    when, number = dt.date(2020, 1, 2), NUMBER
    column = arrow_of([pickle.dumps([when, when], 5), pickle.dumps([], 5)])
    assert column is not None
    assert column.to_pylist() == [[when, when], []]
    column = arrow_of([pickle.dumps([number, number], 5)])
    assert column is not None
    assert column.to_pylist() == [[str(number)] * 2]
    point = pickle.dumps(Point(1, 2), protocol=5)
    assert text_of(point) == f"{__name__}.Point(x=1, y=2)"
