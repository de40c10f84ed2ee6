"""What is alike and is not: names that differ in case, values of several shapes, keys of lists; and
what is left when a savepoint cannot be written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import strom
from strom.cli import answers
from strom.cli.main import app
from strom.core.errors import StateError
from strom.snapshots.sql import view_names
from typer.testing import CliRunner


def written(path: Path, values: list[Any]) -> str:
    """A value state of keys 0, 1 and so on, edited in, so that each value is any object."""
    one = pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.int64())})
    edits = strom.state.write().value("op", "state", one, key="k", value="v")
    for key, value in enumerate(values):
        edits = edits.set("op", "state", key, value)
    return edits.save(str(path))


def test_a_value_that_becomes_an_object_is_one_change(tmp_path: Path) -> None:
    before = written(tmp_path / "before", [10, 20, 30, 40])
    after = written(tmp_path / "after", [10, 20, {"a": {1, 2}}, 40])
    (found,) = strom.state.open(before).diff(after).states
    assert (found.added, found.removed, found.changed) == (0, 0, 1)
    assert found.before is not None
    assert found.after is not None
    assert found.before.column("key").to_pylist() == [2]
    assert found.after.column("key").to_pylist() == [2]
    (found,) = strom.state.open(after).diff(before).states
    assert (found.added, found.removed, found.changed) == (0, 0, 1)


def test_one_and_true_and_one_point_nought_are_changes(tmp_path: Path) -> None:
    first = written(tmp_path / "first", [1, 1, "1", (1, 2), 5])
    second = written(tmp_path / "second", [True, 1.0, 1, [1, 2], 5])
    (found,) = strom.state.open(first).diff(second).states
    assert (found.added, found.removed, found.changed) == (0, 0, 4)


def test_equal_sets_are_no_difference(tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(50)]
    back = words[::-1]
    first = written(tmp_path / "first", [set(words), frozenset(words), {"in": set(words)}])
    second = written(tmp_path / "second", [set(back), frozenset(back), {"in": set(back)}])
    assert not strom.state.open(first).diff(second)


def test_states_that_differ_in_case_alone_are_views_of_their_own(tmp_path: Path) -> None:
    edits = strom.state.write()
    for at, name in enumerate(("Total", "total", "TOTAL")):
        data = pa.table({"k": [1], "v": [at]})
        edits = edits.value("op", name, data, key="k", value="v")
    snapshot = strom.state.open(edits.save(str(tmp_path / "one")))
    names = view_names(snapshot)
    every = [name.lower() for found in names.values() for name in found]
    assert len(set(every)) == len(every) == 3
    seen = {
        state: snapshot.sql(f'SELECT value FROM state."{found[0]}"').column("value").to_pylist()
        for (_, state), found in names.items()
    }
    assert seen == {"Total": [0], "total": [1], "TOTAL": [2]}


def test_names_with_quotes_are_found_in_a_query(tmp_path: Path) -> None:
    data = pa.table({"k": [1], "v": [7]})
    edits = strom.state.write().value('the "op"', 'the "total"', data, key="k", value="v")
    snapshot = strom.state.open(edits.save(str(tmp_path / "one")))
    for view in ('"the ""total"""', '"the ""op"".the ""total"""'):
        assert snapshot.sql(f"SELECT value FROM state.{view}").to_pylist() == [{"value": 7}]


def test_lists_are_no_keys() -> None:
    data = pa.table({"k": [[1, 2], [3]], "v": [1, 2]})
    with pytest.raises(StateError, match=r"state 's': k: list<.*>: .*unhashable .*no keys"):
        strom.state.write().value("op", "s", data, key="k", value="v")


def test_structs_as_keys_that_are_there_twice_are_named() -> None:
    data = pa.table({"k": [{"a": 1, "b": "x"}, {"a": 2, "b": "x"}, {"a": 1, "b": "x"}]})
    data = data.append_column("v", pa.array([1, 2, 3]))
    with pytest.raises(StateError, match=r"state 's'"):
        strom.state.write().value("op", "s", data, key="k", value="v")


def test_a_savepoint_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pa.table({"k": [1, 2], "v": [1, 2]})
    edits = strom.state.write().value("op", "a", data, key="k", value="v")
    edits = edits.value("op", "b", data, key="k", value="v")

    def fails(self: Any, *given: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("strom.snapshots.editing.Edits._manifest", fails)
    with pytest.raises(OSError, match="No space left"):
        edits.save(str(tmp_path / "new"))
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert strom.state.open(edits.save(str(tmp_path / "new"))).table("op", "a").num_rows == 2


def test_what_breaks_is_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "one", [1])

    def breaks(*given: Any) -> None:
        raise KeyError("something of ours")

    monkeypatch.setattr("strom.cli.state._say_differences", breaks)
    done = CliRunner().invoke(app, ["state", "diff", path, path])
    assert done.exit_code == answers.BROKEN == 3
    assert "something of ours" in done.output
    monkeypatch.undo()
    assert CliRunner().invoke(app, ["state", "diff", path, path]).exit_code == answers.FINE


def test_wide_rows_are_not_folded_where_there_is_no_terminal(tmp_path: Path) -> None:
    names = [f"column_{i:02}_{'x' * 30}" for i in range(12)]
    data = pa.table({"k": [1], **{name: [1] for name in names}})
    path = strom.state.write().value("op", "s", data, key="k", value=names).save(f"{tmp_path}/one")
    done = CliRunner().invoke(app, ["state", "sql", path, "SELECT value.* FROM state.s"])
    assert done.exit_code == 0, done.output
    assert any(all(name in line for name in names) for line in done.output.splitlines())
