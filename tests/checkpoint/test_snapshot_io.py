"""Snapshots to files and back, at other parallelisms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.checkpoint import uploads
from strom.checkpoint.cancellation import Cancellation, UnwantedError
from strom.checkpoint.manifest import Manifest, OperatorShape
from strom.checkpoint.snapshot_io import group_offsets, read_operator, write_subtask
from strom.checkpoint.storage import CheckpointStorage, MemoryStorage, open_storage
from strom.core.errors import CorruptCheckpointError, StateError
from strom.core.ids import EVEN, Deal, TaskId
from strom.state.backend import KEY_GROUP, KeyedSnapshot, OperatorStateTable, StateTable
from strom.state.key_groups import range_for
from strom.state.operator_state import OperatorStateSnapshot

MAX = 16


class Tables(KeyedSnapshot):
    def __init__(self, *tables: StateTable) -> None:
        self._tables = tables

    def tables(self) -> Iterable[StateTable]:
        return self._tables


def keyed_table(name: str, groups: list[int], kind: str = "value") -> StateTable:
    columns = {
        KEY_GROUP: pa.array(groups, pa.int32()),
        "key": pa.array(range(len(groups)), pa.int64()),
        "value": pa.array([f"{name}-{g}" for g in groups]),
    }
    return StateTable(name, kind, pa.table(columns), {"face": "test"})


def operator_state(**tables: tuple[str, list[bytes]]) -> OperatorStateSnapshot:
    found = [OperatorStateTable(n, mode, tuple(i)) for n, (mode, i) in tables.items()]  # type: ignore[arg-type]
    return OperatorStateSnapshot(found, {}, {})


def take(
    storage: CheckpointStorage,
    keyed: list[KeyedSnapshot | None],
    operator: list[OperatorStateSnapshot | None] | None = None,
) -> Manifest:
    """One operator `op` in as many subtasks as there are snapshots."""
    states = operator or [None] * len(keyed)
    subtasks = tuple(
        write_subtask(storage, 1, TaskId("v", i), [("op", k, o)])
        for i, (k, o) in enumerate(zip(keyed, states, strict=True))
    )
    manifest = Manifest("job", "Job", 1, 0, (OperatorShape("op", "Op", len(keyed), MAX),), subtasks)
    storage.publish(manifest)
    return storage.load(1)


def test_group_offsets() -> None:
    assert group_offsets(keyed_table("s", [2, 2, 5, 9, 9, 9]).data) == (
        (2, 0, 2),
        (5, 2, 1),
        (9, 3, 3),
    )
    assert group_offsets(keyed_table("s", []).data) == ()


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.integers(0, MAX - 1), max_size=40),
    st.integers(1, 5),
    st.integers(1, 5),
)
def test_every_row_is_restored_once_by_the_owner_of_its_group(
    groups: list[int], before: int, after: int
) -> None:
    storage = MemoryStorage("job")
    owners = [range_for(i, before, MAX) for i in range(before)]
    parts = [sorted(g for g in groups if g in owner) for owner in owners]
    manifest = take(storage, [Tables(keyed_table("s", part)) for part in parts])
    restored: list[int] = []
    for subtask in range(after):
        tables, operator = read_operator(storage, manifest, "op", subtask, after, MAX)
        assert operator == []
        for table in tables:
            found = table.data.column(KEY_GROUP).to_pylist()
            assert found == sorted(found)
            assert all(g in range_for(subtask, after, MAX) for g in found)
            restored += found
    assert sorted(restored) == sorted(groups)


@pytest.mark.parametrize("after", [(0, 1), (0, 15), (0, 3, 4, 12), EVEN])
def test_rows_go_to_whoever_has_their_group_in_any_deal(after: Deal) -> None:
    """Key groups are stored by number, whoever had them."""
    storage = MemoryStorage("job")
    parts = range(5), range(5, MAX)
    manifest = take(storage, [Tables(keyed_table("s", [*part])) for part in parts])
    subtasks = len(after) or 2
    found = []
    for subtask in range(subtasks):
        tables, _ = read_operator(storage, manifest, "op", subtask, subtasks, MAX, deal=after)
        mine = [group for t in tables for group in t.data.column(KEY_GROUP).to_pylist()]
        owned = range_for(subtask, subtasks, MAX, after)
        assert mine == list(range(owned.first, owned.last + 1))
        found += mine
    assert found == list(range(MAX))


def test_same_parallelism_gives_back_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "SMALL", 0)
    storage = open_storage(str(tmp_path), "job")
    first, second = keyed_table("a", [0, 3, 7]), keyed_table("b", [7], "timers")
    manifest = take(storage, [Tables(first, second), Tables(keyed_table("a", [8]))])
    tables, _ = read_operator(storage, manifest, "op", 0, 2, MAX)
    assert [(t.name, t.kind, t.metadata) for t in tables] == [
        ("a", "value", {"face": "test"}),
        ("b", "timers", {"face": "test"}),
    ]
    assert tables[0].data.equals(first.data)
    # Any Arrow tool can open a file.
    paths = sorted(tmp_path.rglob("op-*.arrow"))
    assert len(paths) == 3
    assert pa.ipc.open_file(pa.memory_map(str(paths[0]))).read_all().equals(first.data)


def test_files_without_own_groups_are_not_read(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), "job")
    low, high = keyed_table("s", [0, 7]), keyed_table("s", [8, 15])
    manifest = take(storage, [Tables(low), Tables(high)])
    for path in tmp_path.rglob("op-*-1-0.arrow"):
        path.unlink()
    assert len(read_operator(storage, manifest, "op", 0, 2, MAX)[0]) == 1
    with pytest.raises(CorruptCheckpointError, match="missing"):
        read_operator(storage, manifest, "op", 1, 2, MAX)


def test_operator_state_is_redistributed() -> None:
    storage = MemoryStorage("job")
    states = [
        operator_state(list=("split", [b"a", b"b", b"c"]), all=("union", [b"u0"])),
        operator_state(list=("split", [b"d"]), all=("union", [b"u1"])),
    ]
    manifest = take(storage, [None, None], states)
    shares = [read_operator(storage, manifest, "op", i, 3, MAX)[1] for i in range(3)]
    lists = [item for share in shares for t in share if t.name == "list" for item in t.items]
    assert lists == [b"a", b"b", b"c", b"d"]
    unions = [t.items for share in shares for t in share if t.name == "all"]
    assert unions == [(b"u0", b"u1")] * 3


def test_deferred_items_are_in_the_files() -> None:
    storage = MemoryStorage("job")
    table = OperatorStateTable("commits", "split", ())
    snapshot = OperatorStateSnapshot([table], {"commits": [lambda: [1, 2]]}, {})
    manifest = take(storage, [None], [snapshot])
    (found,) = read_operator(storage, manifest, "op", 0, 1, MAX)[1]
    assert len(found.items) == 2


def test_empty_states_and_unknown_operators_leave_nothing() -> None:
    storage = MemoryStorage("job")
    manifest = take(storage, [Tables(keyed_table("s", []))], [operator_state(x=("union", []))])
    assert list(manifest.files()) == []
    assert read_operator(storage, manifest, "op", 0, 1, MAX) == ([], [])
    assert read_operator(storage, manifest, "new", 0, 1, MAX) == ([], [])


def test_another_max_parallelism_is_refused_with_both_values() -> None:
    storage = MemoryStorage("job")
    manifest = take(storage, [Tables(keyed_table("s", [1]))])
    with pytest.raises(StateError, match=r"'op'.*max_parallelism 16, the job has 32"):
        read_operator(storage, manifest, "op", 0, 1, 32)
    # Operator state alone does not depend on it.
    other = MemoryStorage("job")
    manifest = take(other, [None], [operator_state(x=("union", [b"1"]))])
    assert len(read_operator(other, manifest, "op", 0, 1, 32)[1]) == 1


def test_unsorted_tables_are_refused() -> None:
    with pytest.raises(
        StateError, match=r"operator 'op', subtask 0, state 's'.*row 1 has 3 after 5"
    ):
        take(MemoryStorage("job"), [Tables(keyed_table("s", [5, 3]))])
    bare = StateTable("s", "value", pa.table({"x": [1]}))
    with pytest.raises(StateError, match=KEY_GROUP):
        take(MemoryStorage("job"), [Tables(bare)])


def test_offsets_beyond_the_file_and_foreign_files_are_refused() -> None:
    storage = MemoryStorage("job")
    manifest = take(storage, [Tables(keyed_table("s", [1, 2]))])
    (handle,) = manifest.subtasks[0].operators[0].keyed
    long = replace(handle, groups=((1, 0, 9),))
    with pytest.raises(CorruptCheckpointError, match=r"rows 0\.\.9, the file has 2 rows"):
        read_operator(storage, with_keyed(manifest, long), "op", 0, 1, MAX)
    foreign = replace(handle, file=storage.write_file(1, "x.arrow", b"not arrow"))
    with pytest.raises(CorruptCheckpointError, match="not an Arrow IPC file"):
        read_operator(storage, with_keyed(manifest, foreign), "op", 0, 1, MAX)


def with_keyed(manifest: Manifest, handle: object) -> Manifest:
    snapshot = manifest.subtasks[0]
    operator = replace(snapshot.operators[0], keyed=(handle,))
    return replace(manifest, subtasks=(replace(snapshot, operators=(operator,)),))


def test_a_large_table_keeps_its_offsets() -> None:
    groups = np.sort(np.random.default_rng(0).integers(0, MAX, 50_000)).tolist()
    storage = MemoryStorage("job")
    manifest = take(storage, [Tables(keyed_table("s", groups))])
    parts = [read_operator(storage, manifest, "op", i, 5, MAX)[0][0].data for i in range(5)]
    assert pa.concat_tables(parts).equals(keyed_table("s", groups).data)


def test_a_cancelled_task_writes_no_more_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is given up after the first file: the second stays unwritten, the first is
    removed, and nothing else is written either."""
    monkeypatch.setattr(uploads, "SMALL", 0)
    storage = open_storage(str(tmp_path), "job")
    cancellation = Cancellation()

    class CancelledBehindFirst(Tables):
        def tables(self):  # type: ignore[no-untyped-def]
            yield from list(super().tables())[:1]
            assert len(list((tmp_path / "job" / "chk-1").iterdir())) == 1
            cancellation.cancel()
            yield from list(super().tables())[1:]

    tables = CancelledBehindFirst(keyed_table("a", [1]), keyed_table("b", [2]))
    part = ("op", tables, operator_state(o=("split", [b"x"])))
    with pytest.raises(UnwantedError, match="given up"):
        write_subtask(storage, 1, TaskId("v", 0), [part], cancellation)
    assert list((tmp_path / "job" / "chk-1").iterdir()) == []
