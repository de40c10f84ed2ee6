"""Small files of a task are one file, of which handles name parts."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strom.checkpoint import packing
from strom.checkpoint.cancellation import Cancellation, UnwantedError
from strom.checkpoint.handles import FileHandle, OperatorHandle, OperatorSnapshot, SubtaskSnapshot
from strom.checkpoint.manifest import Manifest, OperatorShape, decode, encode
from strom.checkpoint.packing import ALIGNMENT, SMALL, SMALL_SHARED, Packing
from strom.checkpoint.shared_files import SharedFiles
from strom.checkpoint.storage import MemoryStorage, checksum, open_storage
from strom.checkpoint.transfers import INLINE, TransferPool, Transfers
from strom.checkpoint.uploads import Uploads
from strom.core.errors import CheckpointError, CorruptCheckpointError
from strom.core.ids import TaskId


def table(n: int, rows: int = 3) -> pa.Table:
    return pa.table({"n": [n] * rows, "text": [f"{n}-{i}" for i in range(rows)]})


def written(
    storage: Any,
    tables: list[pa.Table],
    shared: bool = False,
    transfers: Transfers | None = None,
) -> list[FileHandle]:
    with Uploads(storage, 1, transfers or TransferPool(), Cancellation(), "task-0") as uploads:
        begun = [uploads.table(f"t{i}.arrow", one, shared) for i, one in enumerate(tables)]
        return [one.result() for one in begun]


def manifest_of(handles: list[FileHandle]) -> Manifest:
    operators = tuple(
        OperatorSnapshot(f"op{i}", (), OperatorHandle(handle)) for i, handle in enumerate(handles)
    )
    shapes = tuple(OperatorShape(f"op{i}", "Op", 1, 8) for i in range(len(handles)))
    return Manifest("job", "Job", 1, 0, shapes, (SubtaskSnapshot(TaskId("v", 0), operators),))


@pytest.mark.parametrize("shared", [False, True])
def test_the_small_files_of_a_task_are_one(tmp_path: Path, shared: bool) -> None:
    storage = open_storage(str(tmp_path), "job")
    tables = [table(n) for n in range(9)]
    handles = written(storage, tables, shared)
    folder = tmp_path / "job" / ("shared" if shared else "chk-1")
    (path,) = folder.iterdir()
    assert path.name == ("1-task-0-0.pack" if shared else "task-0-0.pack")
    assert {handle.path for handle in handles} == {path.name}
    content = path.read_bytes()
    for handle, expected in zip(handles, tables, strict=True):
        assert pa.ipc.open_file(storage.read_file(1, handle)).read_all() == expected
        assert handle.offset is not None
        part = content[handle.offset : handle.offset + handle.size]
        assert pa.ipc.open_file(part).read_all() == expected
    storage.publish(manifest_of(handles))
    found = storage.load(1)
    assert [*found.files()] == handles
    assert found.shared == (frozenset({path.name}) if shared else frozenset())
    storage.verify(found)
    storage.delete(1)
    storage.delete_shared(found.shared)
    assert storage.list_shared() == ()
    assert storage.list() == ()


def test_one_that_is_alone_and_large_ones_keep_their_names(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), "job")
    large = pa.table({"n": pa.array(range(SMALL // 8 + 1), pa.int64())})
    handles = written(storage, [large, table(1), large])
    assert [handle.path for handle in handles] == ["t0.arrow", "t1.arrow", "t2.arrow"]
    assert all(handle.offset is None for handle in handles)
    middling = pa.table({"n": pa.array(range(SMALL_SHARED // 8 + 1), pa.int64())})
    handles = written(storage, [middling, middling], shared=True)
    assert [handle.path for handle in handles] == ["1-t0.arrow", "1-t1.arrow"]


def test_kinds_are_not_mixed_and_nothing_is_packed_in_memory(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), "job")
    with Uploads(storage, 1, INLINE, Cancellation(), "task-0") as uploads:
        begun = [uploads.table(f"t{i}.arrow", table(i), i % 2 == 0) for i in range(4)]
        handles = [one.result() for one in begun]
    assert [handle.shared for handle in handles] == [True, False, True, False]
    assert len({handle.path for handle in handles}) == 2
    handles = written(MemoryStorage("job"), [table(1), table(2)])
    assert [handle.path for handle in handles] == ["t0.arrow", "t1.arrow"]


class Done:
    def __init__(self, handle: FileHandle) -> None:
        self._handle = handle

    def result(self) -> FileHandle:
        return self._handle


@given(st.lists(st.one_of(st.binary(max_size=40), st.none()), max_size=30))
def test_every_part_is_where_its_handle_says(events: list[bytes | None]) -> None:
    """None: somebody asks for all that was gathered so far. Packs of 64 bytes."""
    files: dict[str, bytes] = {}

    def submit(name: str, data: pa.Buffer) -> Done:
        assert name not in files
        files[name] = data.to_pybytes()
        return Done(FileHandle(name, data.size, checksum(data)))

    packs = Packing("task-0", submit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "PACK", 64)
        parts = []
        for i, event in enumerate(events):
            if event is not None:
                parts.append((event, packs.add(f"f{i}", pa.py_buffer(event))))
            elif parts:
                parts[-1][1].result()
    taken: dict[str, list[tuple[int, int]]] = {}
    for data, part in parts:
        handle = part.result()
        start = handle.offset or 0
        assert files[handle.path][start : handle.end] == data
        assert (handle.size, handle.checksum) == (len(data), checksum(data))
        assert start % ALIGNMENT == 0
        taken.setdefault(handle.path, []).append((start, handle.end))
    assert taken.keys() == files.keys()
    for name, spans in taken.items():
        assert spans == sorted(spans)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        assert spans[-1][1] == len(files[name])
        assert len(spans) == 1 or spans[-1][0] <= 64


def test_a_damaged_pack_is_named(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), "job")
    first, last = written(storage, [table(1), table(2)])
    (path,) = (tmp_path / "job" / "chk-1").iterdir()
    content = bytearray(path.read_bytes())
    content[last.end - 20] ^= 1
    path.write_bytes(content)
    storage.read_file(1, first)
    with pytest.raises(CorruptCheckpointError, match=r"task-0-0\.pack from \d+ to \d+: expected"):
        storage.read_file(1, last)
    os.truncate(path, last.offset)
    storage.read_file(1, first)
    with pytest.raises(CorruptCheckpointError, match=r"expected \d+ bytes, found 0"):
        storage.read_file(1, last)
    path.unlink()
    with pytest.raises(CorruptCheckpointError, match="the file is missing"):
        storage.read_file(1, first)


def test_a_store_that_refuses_to_read_behind_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage: Any = open_storage(str(tmp_path), "job")
    _, last = written(storage, [table(1), table(2)])
    (path,) = (tmp_path / "job" / "chk-1").iterdir()

    def refuse(path: str, **part: int) -> bytes:
        raise ValueError("416: the range is not satisfiable")

    monkeypatch.setattr(storage._fs, "cat_file", refuse)
    with pytest.raises(CheckpointError, match="416") as whole:
        storage.read_file(1, last)
    assert not isinstance(whole.value, CorruptCheckpointError), "the file is not to blame"
    os.truncate(path, last.offset)
    with pytest.raises(CorruptCheckpointError, match=f"expected {last.end} bytes, found"):
        storage.read_file(1, last)


def test_a_pack_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    storage: Any = open_storage(str(tmp_path), "job")
    inner = storage.write_stream

    def fails(n: Any, name: str, *rest: Any) -> FileHandle:
        if name.endswith(".pack"):
            raise CheckpointError("the disk is full")
        handle: FileHandle = inner(n, name, *rest)
        return handle

    storage.write_stream = fails
    large = pa.table({"n": pa.array(range(SMALL // 8 + 1), pa.int64())})
    with pytest.raises(CheckpointError, match="the disk is full"):
        written(storage, [table(1), large, table(2)], transfers=INLINE)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_nothing_is_gathered_for_a_checkpoint_that_is_given_up(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), "job")
    cancellation = Cancellation()
    uploads = Uploads(storage, 1, INLINE, cancellation, "task-0")
    uploads.table("a.arrow", table(1))
    cancellation.cancel()
    with pytest.raises(UnwantedError):
        uploads.table("b.arrow", table(2))
    assert not (tmp_path / "job").exists()


def test_a_shared_pack_stays_while_a_part_of_it_is_needed(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), "job")
    a, b = written(storage, [table(1), table(2)], shared=True)
    files = SharedFiles()
    files.completed(1, manifest_of([a, b]).shared)
    files.completed(2, manifest_of([b]).shared)
    assert files.discarded(1) == []
    assert files.discarded(2) == [a.path]


def test_manifests_say_where_parts_begin() -> None:
    part = FileHandle("task-0-0.pack", 3, "0123456789abcdef", offset=8)
    whole = FileHandle("a.arrow", 3, "0123456789abcdef")
    data = encode(manifest_of([part, whole]))
    assert [*decode(data, "m").files()] == [part, whole]
    first, second = json.loads(data)["body"]["subtasks"][0]["operators"]
    assert first["operator_state"]["offset"] == 8
    assert "offset" not in second["operator_state"]
    with pytest.raises(CorruptCheckpointError, match="cannot begin at -8"):
        decode(encode(manifest_of([replace(part, offset=-8)])), "m")
