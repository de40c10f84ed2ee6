"""Checkpoints of every format version that strom reads are restored for ever.

Each operator goes on from its golden checkpoint at the parallelism it had and at others, and holds
and emits what was recorded when the checkpoint was written.
"""

from __future__ import annotations

import json
import pickletools
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import golden_states as golden
import pyarrow as pa
import pytest
from amounts import met
from golden_case import MAX_PARALLELISM, WRITTEN_BY
from golden_rows import ROW_CASES
from strom.checkpoint.manifest import FORMAT_VERSION
from strom.checkpoint.snapshot_io import read_operator
from strom.core.ids import KeyGroupRange, OperatorId
from strom.state.rocks.backend import RocksKeyedStateBackend
from strom.state.rocks.database.task_database import TaskDatabase
from strom.state.rocks.kept.row_buffer import ColdBufferState
from strom.testing.backends import spilling

SETS = golden.sets()

KEPT_CLASSES = {
    "strom.core.row make_row",
    "strom.connectors.datagen.stripes NumberSplit",
    "strom.api.connectors.collection RangeSplit",
    "strom.state.stored_objects named_tuple",
    "strom.state.stored_objects set_fields",
}
"""Of strom, and in pickles of state: they may not be renamed (CONTRIBUTING)."""

Opened = Callable[[Path], tuple[Any, Any]]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """Storage and manifest of a set, unpacked once."""

    @cache
    def of(folder: Path) -> tuple[Any, Any]:
        return golden.checkpoint_of(folder, tmp_path_factory.mktemp(folder.name))

    return of


def expected_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    return found


def each_case() -> list[tuple[Path, str]]:
    """All of the newest set, a third of those before."""
    return [
        (folder, case)
        for age, folder in enumerate(reversed(SETS))
        for place, case in enumerate(expected_of(folder))
        if age == 0 or met(age, place)
    ]


def of_keys(observed: dict[str, Any]) -> dict[str, Any]:
    """Without what a subtask notes for itself, which depends on how many there are."""
    holds = observed["holds"]
    if isinstance(holds, dict):
        own = ("buffer ", "event_time ")
        holds = {name: rows for name, rows in holds.items() if not name.startswith(own)}
    return {**observed, "holds": holds}


def test_the_present_version_has_a_set_of_every_state() -> None:
    folder = golden.GOLDEN / f"v{FORMAT_VERSION}"
    assert folder in SETS, "write it: python tests/golden/make.py"
    known = {*golden.OPERATORS, *ROW_CASES, golden.OPERATOR_STATE, *golden.ENUMERATORS}
    assert set(expected_of(folder)) == known


@pytest.mark.parametrize(
    ("folder", "case"), each_case(), ids=lambda one: one.name if isinstance(one, Path) else one
)
def test_what_was_written_is_still_read(folder: Path, case: str, opened: Opened) -> None:
    storage, manifest = opened(folder)
    recorded = expected_of(folder)[case]
    if case in golden.ENUMERATORS:
        assert golden.splits_left(case, manifest.enumerators[OperatorId(case)]) == recorded["gives"]
        return
    assert golden.observed(storage, manifest, case, WRITTEN_BY) == recorded
    for parallelism in (1, 3):
        found = golden.observed(storage, manifest, case, parallelism)
        assert of_keys(found) == of_keys(recorded), f"at parallelism {parallelism}"


@pytest.mark.parametrize("folder", SETS, ids=lambda one: one.name)
def test_pickles_name_only_classes_that_are_kept(folder: Path, opened: Opened) -> None:
    storage, manifest = opened(folder)
    named = {name for data in _pickles(storage, manifest) for name in _names(data)}
    ours = {name for name in named if name.startswith("strom")}
    assert ours <= KEPT_CLASSES
    assert ours == KEPT_CLASSES or folder.name < "v5"
    known = ("strom.", "builtins ", "golden_classes ", "copyreg __newobj__")
    assert not {name for name in named if not name.startswith(known)}


@pytest.mark.parametrize("folder", SETS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("case", ["window_join", "window_top_n"])
def test_rows_of_windows_are_read_into_rocksdb(folder: Path, case: str, opened: Opened) -> None:
    """And written as they were."""
    storage, manifest = opened(folder)
    every = KeyGroupRange(0, MAX_PARALLELISM - 1)
    tables, _ = read_operator(storage, manifest, OperatorId(case), 0, 1, MAX_PARALLELISM)
    rows = [t for t in tables if t.kind == "buffer" and t.name in ("left", "right", "records")]
    assert rows
    state = RocksKeyedStateBackend(every, MAX_PARALLELISM, TaskDatabase(spilling(8)))
    state.restore(rows)
    for name, table in {table.name: table for table in rows}.items():
        fields = [
            field.with_name(field.name.removeprefix("row."))
            for field in table.data.schema
            if field.name.startswith("row.")
        ]
        buffer = state.buffer(name, pa.schema(fields), cold=True)
        assert isinstance(buffer, ColdBufferState)
        buffer.make_room()
        assert not buffer.used
    written = list(state.snapshot().tables())
    state.close()
    assert {t.data.schema for t in written} == {t.data.schema for t in rows}
    found, want = (
        sorted(repr(row) for table in some for row in table.data.to_pylist())
        for some in (written, rows)
    )
    assert found == want


def _pickles(storage: Any, manifest: Any) -> Iterator[bytes]:
    yield from manifest.enumerators.values()
    for case in golden.cases(manifest):
        keyed, operator = read_operator(storage, manifest, OperatorId(case), 0, 1, MAX_PARALLELISM)
        for state in operator:
            yield from state.items
        for table in keyed:
            for name in table.data.column_names:
                if pa.types.is_large_binary(table.data.schema.field(name).type):
                    for value in table.data.column(name).to_pylist():
                        if value is not None and value[:1] == b"\x80":
                            yield value


def _names(data: bytes) -> Iterator[str]:
    """`module name` of all that a pickle refers to."""
    texts: list[str] = []
    memo: list[str | None] = []
    last: str | None = None
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "GLOBAL":
            yield str(argument)
        elif opcode.name == "STACK_GLOBAL":
            yield " ".join(texts[-2:])
        elif opcode.name == "MEMOIZE":
            memo.append(last)
        elif isinstance(argument, str) and "UNICODE" in opcode.name:
            texts.append(argument)
        elif "BINGET" in opcode.name and isinstance(argument, int):
            texts.append(str(memo[argument]))
        last = argument if isinstance(argument, str) and "UNICODE" in opcode.name else None
