"""Checkpoints of every kind of state, read from their files alone."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest
import strom
from open_state_kit import MAX, TIME_MS, filled, push, rows_of, taken
from strom.benchmarks.states import STATES, records
from strom.core.errors import StateError
from strom.core.ids import CheckpointId
from strom.snapshots import Snapshot
from strom.state.hashing import stable_hash
from strom.state.stored import KEY_GROUP

KEYS = 60

PER_GROUP = {"layout", "layouts", "progress", "rolling", "__window_progress"}
"""States of key groups, not of keys."""

KEY = ("key", "k", "k0", "c0")
"""What the column of the key is called."""


@pytest.mark.parametrize("name", STATES)
def test_every_state_is_read_back(name: str, tmp_path: Path) -> None:
    harness = filled(name, KEYS)
    path = taken(harness, tmp_path)
    held = {table.name: table for table in harness.keyed_state.snapshot().tables()}
    items = {t.name: len(t.items) for t in harness.operator_state.snapshot().tables() if t.items}
    harness.close()
    if name == "broadcast_join":
        items = {"table": 1}  # which is in one checkpoint only
    snapshot = strom.state.open(path)
    (operator,) = snapshot.operators
    keyed = {one.name: one for one in operator.states if one.key_groups is not None}
    assert keyed.keys() == held.keys()
    assert {one.name: one.rows for one in operator.states if one.key_groups is None} == items
    wanted = set(records(0, KEYS).column("k").to_pylist())
    for state, info in keyed.items():
        raw = snapshot.table(operator.id, state, raw=True)
        assert raw.equals(held[state].data)
        assert (info.rows, info.kind) == (raw.num_rows, held[state].kind)
        assert info.key_groups == len(set(raw.column(KEY_GROUP).to_pylist()))
        shown = snapshot.table(operator.id, state)
        assert not any(one.startswith(("key.", "acc.", "num.")) for one in shown.column_names)
        if state in PER_GROUP:
            continue
        key = next(one for one in KEY if one in shown.column_names)
        assert set(shown.column(key).to_pylist()) == wanted
    for state in items:
        assert snapshot.table(operator.id, state).num_rows == items[state]
    verified = snapshot.verify()
    assert (verified.problems, verified.unchecked) == ([], [])
    assert verified.rows == sum(info.rows for info in operator.states)
    check_moved(snapshot, tmp_path)


def check_moved(first: Snapshot, tmp_path: Path) -> None:
    """It moves to another max parallelism and back."""
    there = first.edit().max_parallelism(50).save(str(tmp_path / "there"))
    moved = strom.state.open(there)
    assert moved.verify().ok
    back = moved.edit().max_parallelism(MAX).save(str(tmp_path / "back"))
    again = strom.state.open(back)
    assert again.verify().ok
    assert not first.diff(again)
    for state in moved.operators[0].states:
        table = moved.table("operator", state.name, key_groups=True)
        groups = table.column(KEY_GROUP).to_pylist() if state.key_groups is not None else []
        if state.name in PER_GROUP:
            assert set(groups) == set(range(50))
        elif groups:
            key = next(one for one in KEY if one in table.column_names)
            assert groups == [stable_hash(one) % 50 for one in table.column(key).to_pylist()]


def test_what_is_shown_is_what_the_records_say(tmp_path: Path) -> None:
    data = records(0, KEYS).to_pylist()
    values = {one["k"]: one["v"] for one in data}
    for name in ("aggregate", "row_state", "row_state_ttl", "row_timers", "row_reduce", "sessions"):
        harness = filled(name, KEYS)
        if name in ("aggregate", "row_state"):
            push(harness, records(0, 10))  # ten keys come again
        snapshot = strom.state.open(taken(harness, tmp_path, name))
        harness.close()
        match name:
            case "aggregate":
                table = snapshot.table("operator", "groups")
                twice = {one["k"] for one in data[:10]}
                assert {row["k"]: (row["rows"], row["a1_value"]) for row in table.to_pylist()} == {
                    k: (2, 2 * v) if k in twice else (1, v) for k, v in values.items()
                }
            case "row_state" | "row_state_ttl":
                table = snapshot.table("operator", "latest")
                assert (
                    dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
                    == values
                )
                assert ("processing_stamp" in table.column_names) == (name == "row_state_ttl")
            case "row_timers":
                assert set(
                    snapshot.table("operator", "__event_timers")["timestamp"].to_pylist()
                ) == {2**60}
            case "row_reduce":
                table = snapshot.table("operator", "__reduced")
                assert {row["key"]: row["value"] for row in table.to_pylist()} == {
                    one["k"]: one for one in data
                }
            case "sessions":
                starts = {one["k"]: one["t"] for one in data}
                table = snapshot.table("operator", "sessions")
                assert {row["k0"]: row["start"] for row in table.to_pylist()} == starts


def test_what_is_told_of_a_snapshot(tmp_path: Path) -> None:
    harness = filled("broadcast_state_by_key", KEYS)
    path = taken(harness, tmp_path, name="Rules")
    harness.close()
    for place in (path, f"file://{path}", str(tmp_path / "job")):
        snapshot = strom.state.open(place)
        assert (snapshot.job_id, snapshot.job_name, snapshot.checkpoint_id) == ("job", "Job", 1)
        assert snapshot.time.timestamp() * 1000 == TIME_MS
        assert not snapshot.savepoint
        operator = snapshot.operator("Rules")
        assert (operator.id, operator.uid, operator.max_parallelism) == ("operator", None, MAX)
        assert [(one.name, one.kind, one.rows) for one in operator.states] == [
            ("latest", "value", KEYS),
            ("rules", "broadcast", KEYS),
        ]
        assert snapshot.bytes == sum(one.bytes for one in operator.states)
    with pytest.raises(StateError, match="there is no operator 'none', only"):
        snapshot.operator("none")
    with pytest.raises(
        StateError, match=r"operator 'Rules' has no state 'none', only \['latest', "
    ):
        snapshot.table("Rules", "none")
    with pytest.raises(strom.ConfigurationError, match="there is no complete checkpoint"):
        strom.state.open(str(tmp_path / "nothing"))


def test_polars_and_duckdb(tmp_path: Path) -> None:
    harness = filled("broadcast_state_by_key", KEYS)
    snapshot = strom.state.open(taken(harness, tmp_path, name='My "Rules"'))
    harness.close()
    frame = snapshot.polars("operator", "latest")
    assert isinstance(frame, pl.DataFrame)
    key, value = frame["key"][0], frame["value"][0]
    query = f"SELECT value FROM state.latest WHERE key = {key}"
    assert snapshot.sql(query).to_pylist() == [{"value": value}]
    long = 'state."My ""Rules"".latest"'
    joined = f"SELECT count(*) AS n FROM {long} l JOIN state.RULES r ON l.key = r.map_key"
    assert snapshot.sql(joined).to_pylist() == [{"n": KEYS}]
    connection = duckdb.connect()
    assert snapshot.duckdb(connection) is connection
    assert connection.sql("SELECT sum(value) FROM state.latest").fetchall() == [
        (frame["value"].sum(),)
    ]
    with pytest.raises(StateError, match=r"There are the views .*latest"):
        snapshot.sql("SELECT * FROM state.none")


def test_states_alike_in_name_have_views_with_their_operators(tmp_path: Path) -> None:
    data = pa.table({"k": [1], "v": [1]})
    written = strom.state.write()
    for uid in ("one", "two"):
        written.value(uid, "latest", data, key="k", value="v")
    written.value("two", "Other", data, key="k", value="v").save(str(tmp_path / "s"))
    snapshot = strom.state.open(str(tmp_path / "s"))
    assert [one.uid for one in snapshot.operators] == ["one", "two"]
    count = "SELECT count(*) AS n FROM state."
    for view in ('"one.latest"', '"two.latest"', "other"):
        assert snapshot.sql(count + view).to_pylist() == [{"n": 1}]
    with pytest.raises(StateError):
        snapshot.sql(count + "latest")


def test_a_difference(tmp_path: Path) -> None:
    harness = filled("row_state", KEYS)
    before = strom.state.open(taken(harness, tmp_path, "before"))
    row = records(0, 1).to_pylist()[0]
    changed = pa.RecordBatch.from_pylist([{**row, "v": -1}, {**row, "k": 5, "v": 6}])
    push(harness, changed)
    after = strom.state.open(taken(harness, tmp_path, "after"))
    harness.close()
    (one,) = before.diff(after).states
    assert (one.operator, one.state, one.added, one.removed, one.changed) == (
        "Op",
        "latest",
        1,
        0,
        1,
    )
    assert one.before.select(["key", "value"]).to_pylist() == [{"key": row["k"], "value": row["v"]}]
    assert rows_of(one.after.select(["key", "value"])) == sorted(
        map(repr, [{"key": row["k"], "value": -1}, {"key": 5, "value": 6}])
    )
    assert after.diff(before).states[0].removed == 1
    assert not before.diff(before.path)


def test_subtasks_that_encoded_otherwise_are_one_table(tmp_path: Path) -> None:
    """One subtask had whole numbers only, the other one texts, too."""
    from strom.checkpoint.manifest import Manifest, OperatorShape
    from strom.checkpoint.snapshot_io import write_subtask
    from strom.checkpoint.storage import open_storage
    from strom.core.ids import KeyGroupRange, TaskId
    from strom.state.descriptors import ValueStateDescriptor
    from strom.state.memory import MemoryKeyedStateBackend

    storage = open_storage(str(tmp_path), "job")
    owned = KeyGroupRange(0, 63), KeyGroupRange(64, 127)
    parts, wanted = [], {}
    for subtask, groups in enumerate(owned):
        backend = MemoryKeyedStateBackend(groups, MAX)
        state = backend.get_state(ValueStateDescriptor("s"))
        keys = [n for n in range(100) if stable_hash(n) % MAX in groups]
        for number in keys:
            backend.set_current_key(number)
            wanted[number] = number if subtask == 0 or number % 2 else f"text {number}"
            state.update(wanted[number])
        part = [("op", backend.snapshot(), None)]
        parts.append(write_subtask(storage, CheckpointId(1), TaskId("v", subtask), part))
    shape = OperatorShape("op", "Op", 2, MAX)
    storage.publish(Manifest("job", "Job", CheckpointId(1), TIME_MS, (shape,), tuple(parts)))
    snapshot = strom.state.open(str(tmp_path / "job"))
    assert snapshot.verify().ok
    table = snapshot.table("op", "s")
    assert table.column_names == ["key", "namespace", "value", "value_text"]
    assert dict(zip(table["key"].to_pylist(), table["value_text"].to_pylist(), strict=True)) == {
        key: repr(value) for key, value in wanted.items()
    }
