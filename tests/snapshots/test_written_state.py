"""Savepoints made from tables and from other savepoints: jobs start from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import strom
from open_state_kit import filled, push
from open_state_kit import taken as taken_of
from strom import (
    JobConfig,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    RuntimeContext,
    StateTtlConfig,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    count,
    sum_,
)
from strom.benchmarks.states import HOUR
from strom.benchmarks.states import SCHEMA as STATE_SCHEMA
from strom.benchmarks.states import records as state_records
from strom.checkpoint.folder_storage import open_folder
from strom.checkpoint.snapshot_io import read_operator
from strom.connectors.datagen import DataGenSource
from strom.core.errors import StateError
from strom.core.ids import OperatorId
from strom.snapshots import Edits
from strom.testing import OperatorHarness
from strom.testing.operator_harness import OperatorSnapshotTables

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
FIRST = [("a", 1), ("b", 2), ("a", 3), ("c", 10)]
SECOND = [("a", 100), ("b", 100), ("d", 100)]


def environment(**config: Any) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(
        JobConfig(restart=strom.NoRestart(), **config)
    )


def records(env: StreamExecutionEnvironment, rows: list[tuple[str, int]]) -> Any:
    table = pa.table(list(zip(*rows, strict=True)), schema=SCHEMA)
    return env.from_collection(table.to_pylist(), SCHEMA).uid("in")


class Remember(KeyedProcessFunction):
    """The sum in a value, all values in a list, how often each came in a map."""

    ttl: Any = None

    def open(self, runtime_context: RuntimeContext) -> None:
        total = ValueStateDescriptor("total")
        if self.ttl is not None:
            total.enable_time_to_live(self.ttl)
        self.total = runtime_context.get_state(total)
        self.all = runtime_context.get_list_state(ListStateDescriptor("all"))
        self.times = runtime_context.get_map_state(MapStateDescriptor("times"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.total.update((self.total.value() or 0) + value.v)
        self.all.add(value.v)
        self.times.put(value.v, (self.times.get(value.v) or 0) + 1)
        yield value.k, self.total.value(), list(self.all.get()), dict(self.times.items())


class RememberForADay(Remember):
    ttl = StateTtlConfig.new_builder(timedelta(days=1)).build()


def remembered(
    rows: list[tuple[str, int]], function: Any = Remember, uid: str = "remember", **config: Any
) -> dict[str, Any]:
    env = environment(**config)
    stream = records(env, rows).key_by("k").process(function()).uid(uid)
    return {k: rest for k, *rest in stream.execute_and_collect()}


def taken(tmp_path: Path, rows: list[tuple[str, int]] = FIRST, **config: Any) -> str:
    """The last checkpoint of a job that has read these."""
    env = environment(**config)
    env.enable_checkpointing(timedelta(hours=1), storage=str(tmp_path / "taken"))
    list(records(env, rows).key_by("k").process(Remember()).uid("remember").execute_and_collect())
    return str(next((tmp_path / "taken").iterdir()))


def edited(tmp_path: Path, **config: Any) -> Edits:
    """Of such a checkpoint, without the places of source and sink: other records are to come."""
    edits = strom.state.open(taken(tmp_path, **config)).edit()
    return edits.drop("in").drop("Sink: Collect")


# --- from tables ------------------------------------------------------------------------------


def frames(tmp_path: Path) -> dict[str, Any]:
    table = pa.table({"who": ["a", "b", "z"], "sum": [7, 8, 9]})
    path = tmp_path / "sums.parquet"
    pq.write_table(table, path)
    return {"arrow": table, "polars": pl.DataFrame(table), "path": str(path)}


@pytest.mark.parametrize("kind", ["arrow", "polars", "path"])
def test_a_value_from_any_frame(tmp_path: Path, kind: str) -> None:
    data = frames(tmp_path)[kind]
    path = str(tmp_path / "savepoint")
    strom.state.write().value("remember", "total", data, key="who", value="sum").save(path)
    assert strom.state.open(path).verify().ok
    assert remembered(SECOND, parallelism=2, restore_from=path) == {
        "a": [107, [100], {100: 1}],
        "b": [108, [100], {100: 1}],
        "d": [100, [100], {100: 1}],
    }


def test_lists_and_maps_from_tables(tmp_path: Path) -> None:
    data = pa.table({"k": ["b", "a", "a"], "e": [5, 6, 7], "n": [1, 2, 3]})
    path = str(tmp_path / "savepoint")
    written = strom.state.write(max_parallelism=64)
    written.list("remember", "all", data, key="k", value="e")
    written.map("remember", "times", data, key="k", map_key="e", value="n").save(path)
    found = remembered(SECOND, max_parallelism=64, parallelism=3, restore_from=path)
    assert found["a"] == [100, [6, 7, 100], {6: 2, 7: 3, 100: 1}]
    assert found["b"] == [100, [5, 100], {5: 1, 100: 1}]


def test_a_value_that_expires_from_a_table(tmp_path: Path) -> None:
    path = str(tmp_path / "savepoint")
    data = pa.table({"k": ["a"], "v": [5]})
    written = strom.state.write()
    written.value("remember", "total", data, key="k", value="v", stamp="processing").save(path)
    assert remembered(SECOND, RememberForADay, restore_from=path)["a"][0] == 105


def sums(rows: list[tuple[str, int]], **config: Any) -> dict[str, tuple[int, int]]:
    env = environment(**config)
    stream = records(env, rows).key_by("k").aggregate(n=count(), total=sum_("v")).uid("sums")
    return {row.k: (row.n, row.total) for row in stream.execute_and_collect()}


def test_a_built_in_aggregate_from_a_table(tmp_path: Path) -> None:
    data = pl.DataFrame({"k": ["a", "c"], "n": [4, 5], "total": [40, 50], "any": [True, True]})
    columns = {"rows": "n", "a1_value": "total", "a1_mark": "any"}
    like = pa.schema(
        {
            "__key_group": pa.int32(),
            "namespace": pa.int64(),
            "key.k": pa.string(),
            "acc.rows": pa.int64(),
            "acc.a1_value": pa.int64(),
            "acc.a1_mark": pa.bool_(),
        }
    )
    path = str(tmp_path / "savepoint")
    written = strom.state.write()
    written.table("sums", "groups", data, keys="k", columns=columns, like=like).save(path)
    assert sums(SECOND, parallelism=2, restore_from=path) == {
        "a": (5, 140),
        "b": (1, 100),
        "d": (1, 100),
    }
    with pytest.raises(StateError, match="it would have the columns"):
        written.table("sums", "groups", data, keys="k", columns={"rows": "n"}, like=like)


def test_several_columns_are_a_tuple_as_key_and_a_row_as_value(tmp_path: Path) -> None:
    data = pa.table({"k": ["a"], "n": [1], "x": [2], "y": ["z"]})
    path = str(tmp_path / "savepoint")
    strom.state.write().value("o", "s", data, key=["k", "n"], value=["x", "y"]).save(path)
    snapshot = strom.state.open(path)
    assert snapshot.verify().ok
    assert snapshot.table("o", "s").to_pylist() == [
        {"key": {"f0": "a", "f1": 1}, "namespace": None, "value": {"x": 2, "y": "z"}}
    ]


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    data = pa.table({"k": ["a", "a"], "v": [1, 2]})
    with pytest.raises(StateError, match=r"state 's': keys are there twice in the columns \['k'\]"):
        strom.state.write().value("o", "s", data, key="k", value="v")
    with pytest.raises(StateError, match="there is no column 'w' in the data, only"):
        strom.state.write().list("o", "s", data, key="k", value="w")
    two = pa.table({"k": ["a", "b"], "v": [1, None]})
    with pytest.raises(StateError, match="row 1 has no value"):
        strom.state.write().value("o", "s", two, key="k", value="v")
    with pytest.raises(strom.ConfigurationError, match="cannot be written from a int"):
        strom.state.write().value("o", "s", 5, key="k", value="v")
    strom.state.write().save(str(tmp_path / "there"))
    with pytest.raises(strom.ConfigurationError, match="give a new folder"):
        strom.state.write().save(str(tmp_path / "there"))


# --- from other savepoints ----------------------------------------------------------------------


def test_keys_are_set_and_removed(tmp_path: Path) -> None:
    edits = edited(tmp_path)
    edits.set("remember", "total", "a", 1000).set("remember", "total", "d", 5)
    edits.remove("remember", "total", "c").remove("remember", "all", "b")
    edits.set("remember", "all", "a", [7, 8]).set("remember", "times", "a", {9: 9})
    edits.set("remember", "times", "b", 77, map_key=2).remove("remember", "times", "c", map_key=10)
    path = edits.save(str(tmp_path / "edited"))
    snapshot = strom.state.open(path)
    assert snapshot.verify().problems == []
    assert snapshot.savepoint
    assert remembered([*SECOND, ("c", 1)], parallelism=2, restore_from=path) == {
        "a": [1100, [7, 8, 100], {9: 9, 100: 1}],
        "b": [102, [100], {2: 77, 100: 1}],
        "c": [1, [10, 1], {1: 1}],
        "d": [105, [100], {100: 1}],
    }


def test_a_value_of_another_type_makes_pickles_of_the_others(tmp_path: Path) -> None:
    edits = edited(tmp_path).set("remember", "total", "a", 1.5).set("remember", "all", "z", ["x"])
    path = edits.save(str(tmp_path / "edited"))
    found = remembered([*SECOND, ("z", 1)], restore_from=path)
    assert [found["a"][0], found["b"][0], found["z"][1]] == [101.5, 102, ["x", 1]]


def test_saved_as_it_is_there_is_no_difference(tmp_path: Path) -> None:
    """But for the subtasks that lists of sources and sinks were in."""
    snapshot = strom.state.open(taken(tmp_path, parallelism=2))
    again = strom.state.open(snapshot.edit().save(str(tmp_path / "again")))
    assert again.verify().ok
    assert [one.uid for one in again.operators] == ["in", "remember", None]
    found = snapshot.diff(again)
    assert found.states == ()
    assert [note for note in found.notes if "parallelism 2 is now 1" not in note] == []


def test_dropped_and_renamed(tmp_path: Path) -> None:
    edits = edited(tmp_path).drop("remember", "all").rename("remember", "again")
    path = edits.save(str(tmp_path / "edited"))
    assert remembered(SECOND, uid="again", restore_from=path)["a"] == [
        104,
        [100],
        {1: 1, 3: 1, 100: 1},
    ]
    with pytest.raises(StateError, match="no operator 'remember'"):
        edits.drop("remember")
    with pytest.raises(StateError, match="has no state 'none' to drop"):
        edits.drop("again", "none")


@pytest.mark.parametrize("most", [1, 5, 1000])
def test_another_max_parallelism(tmp_path: Path, most: int) -> None:
    path = edited(tmp_path).max_parallelism(most).save(str(tmp_path / "edited"))
    assert strom.state.open(path).verify().ok
    config = {"max_parallelism": most, "parallelism": min(most, 3)}
    assert remembered(SECOND, restore_from=path, **config) == {
        "a": [104, [1, 3, 100], {1: 1, 3: 1, 100: 1}],
        "b": [102, [2, 100], {2: 1, 100: 1}],
        "d": [100, [100], {100: 1}],
    }


def test_edits_of_what_is_not_there_are_refused(tmp_path: Path) -> None:
    edits = edited(tmp_path)
    with pytest.raises(StateError, match="has nothing under 'nobody' to remove"):
        edits.remove("remember", "total", "nobody")
    with pytest.raises(StateError, match=r"has nothing under \('a', True\) to remove"):
        edits.remove("remember", "times", "a", map_key=True)  # 1 is there
    with pytest.raises(StateError, match="has no keyed state 'none', only"):
        edits.set("remember", "none", "a", 1)
    with pytest.raises(StateError, match="None is no value"):
        edits.set("remember", "total", "a", None)
    with pytest.raises(StateError, match="give a dict, or map_key"):
        edits.set("remember", "times", "a", 1)
    with pytest.raises(strom.ConfigurationError, match="from 1 to 32768"):
        edits.max_parallelism(0)


# --- states of operators ------------------------------------------------------------------------


def aggregated(rows: list[tuple[str, int]], storage: Path | None, **config: Any) -> Any:
    env = environment(**config)
    if storage is not None:
        env.enable_checkpointing(timedelta(hours=1), storage=str(storage))
    stream = records(env, rows).key_by("k").aggregate(n=count(), total=sum_("v")).uid("sums")
    return {row.k: (row.n, row.total) for row in stream.execute_and_collect()}


def test_single_keys_of_a_built_in_aggregate(tmp_path: Path) -> None:
    aggregated(FIRST, tmp_path / "taken")
    edits = strom.state.open(str(next((tmp_path / "taken").iterdir()))).edit()
    edits.drop("in").drop("Sink: Collect").set("sums", "groups", "a", {"a1_value": 50})
    edits.set("sums", "groups", "d", {"rows": 9, "a1_value": 70, "a1_mark": True})
    path = edits.remove("sums", "groups", "b").max_parallelism(77).save(str(tmp_path / "edited"))
    assert strom.state.open(path).verify().ok
    found = aggregated(SECOND, None, parallelism=2, max_parallelism=77, restore_from=path)
    assert found == {"a": (3, 150), "b": (1, 100), "d": (10, 170)}
    with pytest.raises(StateError, match=r"a new key needs all columns, not without \['a1_mark', "):
        edits.set("sums", "groups", "e", {"a1_value": 1})
    with pytest.raises(StateError, match=r"has no columns \['none'\]"):
        edits.set("sums", "groups", "a", {"none": 1})


def test_single_keys_that_are_objects(tmp_path: Path) -> None:
    """Windows over columns whose key a function makes: tables of codes, pickles in snapshots."""

    def window_sums(**settings: Any) -> OperatorHarness:
        source = DataGenSource(state_records, 1, schema=STATE_SCHEMA)
        keyed = environment().from_source(source).with_event_time("t")
        windows = keyed.key_by(lambda row: (row.k, 7)).window(TumblingEventTimeWindows.of(HOUR))
        return OperatorHarness.of(windows.sum("v"), **settings)

    def pushed(harness: OperatorHarness, keys: list[int]) -> None:
        columns = [keys, [10] * len(keys), [1] * len(keys)]
        push(harness, pa.RecordBatch.from_arrays(list(map(pa.array, columns)), schema=STATE_SCHEMA))

    harness = window_sums()
    pushed(harness, [1, 2, 3, 2])
    path = taken_of(harness, tmp_path)
    harness.close()
    snapshot = strom.state.open(path)
    assert (snapshot.verify().problems, snapshot.verify().unchecked) == ([], [])
    (info,) = [s for s in snapshot.operator("operator").states if s.kind == "table"]
    table = snapshot.table("operator", info.name)
    key = table.column_names[1]
    assert sorted(one["f0"] for one in table.column(key).to_pylist()) == [1, 2, 3]
    rest = [name for name in table.column_names if name not in ("namespace", key)]
    model = next(one for one in table.to_pylist() if one[key]["f0"] == 1)
    number = next(name for name in rest if model[name] == 10)
    space, new = model["namespace"], {name: model[name] for name in rest}
    edits = snapshot.edit()
    edits.set("operator", info.name, (1, 7), {number: 50}, namespace=space)
    edits.set("operator", info.name, (4, 7), {**new, number: 70}, namespace=space)
    edits.remove("operator", info.name, (3, 7))
    edited = edits.max_parallelism(77).save(str(tmp_path / "edited"))
    again = strom.state.open(edited)
    assert again.verify().ok
    assert sorted(
        (one[key]["f0"], one[number]) for one in again.table("operator", info.name).to_pylist()
    ) == [(1, 50), (2, 20), (4, 70)]
    storage, manifest = open_folder(edited)
    keyed, items = read_operator(storage, manifest, OperatorId("operator"), 0, 1, 77)
    tables = OperatorSnapshotTables(tuple(keyed), tuple(items))
    harness = window_sums(max_parallelism=77, restored=tables)
    pushed(harness, [4, 3])
    harness.watermark(2**60)
    found = sorted(row.v for row in harness.outputs())
    harness.close()
    assert found == [10, 20, 50, 80]


def test_kept_rows_whose_key_cannot_be_told_are_not_hashed_anew(tmp_path: Path) -> None:
    harness = filled("top_n", 2)
    path = taken_of(harness, tmp_path)
    harness.close()
    edits = strom.state.open(path).edit()
    with pytest.raises(StateError, match=r"cannot be told from its 2 rows: say keys=\{'rows': "):
        edits.max_parallelism(9)
    with pytest.raises(StateError, match=r"the columns \['row.c1'\] are not the key"):
        edits.max_parallelism(9, keys={"rows": ["row.c1"]})
    moved = edits.max_parallelism(9, keys={"rows": ["row.c0"]}).save(str(tmp_path / "moved"))
    assert strom.state.open(moved).verify().problems == []


def test_key_groups_that_are_not_equally_far_are_not_cut_anew(tmp_path: Path) -> None:
    harness = filled("slices", 5)
    harness.watermark(10)
    path = taken_of(harness, tmp_path)
    harness.close()
    edits = strom.state.open(path).edit()
    table = edits._keyed("operator", "progress")
    at = table.data.schema.get_field_index("row.watermark")
    marks = table.data.column(at).to_pylist()
    uneven = table.data.set_column(at, "row.watermark", pa.array([marks[0] - 1, *marks[1:]]))
    edits._operators["operator"].keyed["progress"] = replace(table, data=uneven)
    with pytest.raises(StateError, match="have got to different points"):
        edits.max_parallelism(9)
