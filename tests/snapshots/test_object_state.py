"""Open state of keys and values that are objects, as state pickles them."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
import strom
from strom import JobStatus, ValueStateDescriptor
from strom.checkpoint.manifest import Manifest, OperatorShape
from strom.checkpoint.snapshot_io import write_subtask
from strom.checkpoint.storage import open_storage
from strom.cli.answers import say_json
from strom.core.errors import StateError
from strom.core.ids import CheckpointId, KeyGroupRange, OperatorId, TaskId, VertexId
from strom.snapshots.pickles import described, text_of
from strom.state.backend import AccColumn
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.pickling import dumps

OPERATOR = OperatorId("op")

KEYS = {
    "dataclasses": [KeyGroupRange(0, 5), KeyGroupRange(0, 6), KeyGroupRange(1, 5)],
    "named tuples": [SplitResult("a", "b", "c", "d", "e"), SplitResult("a", "b", "c", "d", "x")],
    "enums": [JobStatus.RUNNING, JobStatus.FINISHED],
}


def taken(values: dict[Any, Any], folder: Path) -> str:
    """A checkpoint of a value state with these."""
    backend = MemoryKeyedStateBackend(KeyGroupRange(0, 127), 128)
    state = backend.get_state(ValueStateDescriptor("s"))
    for key, value in values.items():
        backend.set_current_key(key)
        state.update(value)
    return written(backend, folder)


def written(backend: MemoryKeyedStateBackend, folder: Path) -> str:
    """A checkpoint of this state."""
    storage = open_storage(str(folder), "job")
    n = CheckpointId(1)
    part = write_subtask(
        storage, n, TaskId(VertexId("v"), 0), [(OPERATOR, backend.snapshot(), None)]
    )
    storage.publish(Manifest("job", "Job", n, 0, (OperatorShape(OPERATOR, "Op", 1, 128),), (part,)))
    return str(folder / "job" / "chk-1")


def test_objects_of_one_class_are_told_apart() -> None:
    for kind in ("dataclasses", "named tuples"):
        one, other = [described(dumps(key, "a key")) for key in KEYS[kind][:2]]
        assert one != other
    assert text_of(dumps(KeyGroupRange(0, 5), "a key")).endswith("KeyGroupRange(first=0, last=5)")


@pytest.mark.parametrize("kind", KEYS)
def test_one_of_several_keys_is_set(kind: str, tmp_path: Path) -> None:
    keys = KEYS[kind]
    path = taken({key: n for n, key in enumerate(keys)}, tmp_path)
    edits = strom.state.open(path).edit().set("op", "s", keys[0], 100)
    edited = edits.remove("op", "s", keys[1]).save(str(tmp_path / "edited"))
    values = strom.state.open(edited).table("op", "s").column("value").to_pylist()
    assert sorted(values) == sorted([100, *range(2, len(keys))])


@pytest.mark.parametrize("kind", KEYS)
def test_sound_keys_are_no_damage(kind: str, tmp_path: Path) -> None:
    found = strom.state.open(taken(dict.fromkeys(KEYS[kind], 1), tmp_path)).verify()
    assert found.ok, found.problems
    assert found.unchecked


@pytest.mark.parametrize("kind", KEYS)
def test_sound_keys_of_tables_are_no_damage(kind: str, tmp_path: Path) -> None:
    """Where the column may be of bytes as well as of pickles."""
    backend = MemoryKeyedStateBackend(KeyGroupRange(0, 127), 128)
    keys = backend.object_keys("op")
    table = backend.table("t", pa.schema([("k", keys.kind)]), [AccColumn("n", "int64")]).table()
    table.slots(pa.RecordBatch.from_arrays([keys.column(KEYS[kind])], names=["k"]))
    found = strom.state.open(written(backend, tmp_path)).verify()
    assert found.ok, found.problems
    assert found.unchecked


def test_times_of_a_zone_are_read(tmp_path: Path) -> None:
    times = [dt.datetime(2026, 7, 1, hour, tzinfo=ZoneInfo("Europe/Berlin")) for hour in (2, 3)]
    assert "ZoneInfo(key=" in text_of(dumps(times[0], "a key"))
    snapshot = strom.state.open(taken({time: time for time in times}, tmp_path))
    found = snapshot.table("op", "s")
    for column in ("key", "value"):
        assert found.schema.field(column).type == pa.timestamp("us", "UTC")
        assert sorted(found.column(column).to_pylist()) == times
    verified = snapshot.verify()
    assert (verified.problems, verified.unchecked) == ([], [])
    edits = snapshot.edit().set("op", "s", times[0], 7).max_parallelism(7)
    edited = strom.state.open(edits.save(str(tmp_path / "edited")))
    assert edited.verify().unchecked == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "No/Such", "a/../b", "", 7])
def test_other_zones_are_named_and_not_looked_for(name: Any) -> None:
    zone = Zone(name)
    assert "ZoneInfo" in text_of(pickle.dumps(zone))


class Zone:
    """Pickled as a zone of that name."""

    def __init__(self, name: Any) -> None:
        self._name = name

    def __reduce__(self) -> Any:
        return ZoneInfo._unpickle, (self._name, True)  # type: ignore[attr-defined]


def test_a_new_operator_has_the_max_parallelism_of_the_others(tmp_path: Path) -> None:
    data = pa.table({"k": [1], "v": [1]})
    edits = strom.state.open(taken({1: 1}, tmp_path)).edit()
    path = edits.value("new", "t", data, key="k", value="v").save(str(tmp_path / "more"))
    assert {one.max_parallelism for one in strom.state.open(path).operators} == {128}


@pytest.mark.parametrize("column", ["__key_group", "namespace", "k"])
def test_only_numbers_of_a_table_are_set(column: str, tmp_path: Path) -> None:
    data = pa.table({"k": ["a", "b"], "n": [1, 2]})
    edits = strom.state.write().table("u", "g", data, keys="k", columns=["n"])
    path = edits.save(str(tmp_path / "one"))
    with pytest.raises(StateError, match=r"has no columns .* to set, only \['n'\]"):
        strom.state.open(path).edit().set("u", "g", "a", {column: 0})


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    say_json({"v": [float("nan"), float("-inf"), 1.5]})
    text = capsys.readouterr().out
    assert json.loads(text, parse_constant=pytest.fail) == {"v": ["NaN", "-Infinity", 1.5]}
