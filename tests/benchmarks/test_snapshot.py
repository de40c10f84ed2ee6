"""What `snapshot` measures: every kind of state that an operator keeps, really held and written."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, ClassVar

import pytest
from strom import KeyedProcessFunction, operators
from strom.api.specs.records import OperatorSpec
from strom.api.specs.windows import COLUMN_FUNCTIONS, WindowSpec
from strom.benchmarks import cli, states
from strom.benchmarks.snapshot import Filled, Round, limit_ms, measure_state, summary
from strom.benchmarks.states import STATELESS, STATES, State
from strom.checkpoint.storage import open_storage
from strom.operators.base import Operator
from strom.operators.registry import _OPERATORS
from strom.state.memory import MemoryKeyedStateBackend
from strom.testing import OperatorHarness

KEYS = 500
LEAST_BYTES = 8 * KEYS
"""Of a state: its keys at least."""


@pytest.mark.parametrize("name", STATES)
def test_every_state_is_filled_and_written(name: str) -> None:
    line = measure_state(name, KEYS, 2)
    assert (line["state"], line["keys"], line["rounds"]) == (name, KEYS, 2)
    assert line["bytes"] >= LEAST_BYTES
    assert 0 < line["sync_ms"] <= line["sync_worst_ms"]
    assert line["sync_ms"] < line["total_ms"]
    assert line["within"] is None or STATES[name].numeric


def spec_of(state: State) -> OperatorSpec:
    return state.stream()._settable("a test").spec


def test_no_spec_is_forgotten() -> None:
    """Each that the registry knows is measured, or said to keep nothing that grows with keys."""
    specs = {type(spec_of(state)).__name__ for state in STATES.values()}
    assert specs | set(STATELESS) == set(_OPERATORS)
    assert not specs & set(STATELESS)


def test_no_operator_is_forgotten() -> None:
    """A spec may be run by one of several operators, as windows are. All that there are: classes
    of `operators/` that no other inherits, but for those of the specs that keep nothing."""
    for module in walk_packages(operators.__path__, f"{operators.__name__}."):
        import_module(module.name)
    within = ("tables.aside.Aside", "tables.group_aggregate._Turns")  # part of another operator
    stateless = tuple(f"{operators.__name__}.{_OPERATORS[name][0]}" for name in STATELESS)
    ahead = f"{operators.__name__}.combining."
    parts = {f"{operators.__name__}.{name}" for name in within}
    # Those that write dead letters keep what those do that they are made of, and a count.
    parts |= {name for name in map(_name, every(Operator)) if ".lenient" in name}
    there = {
        _name(found)
        for found in leaves(Operator, parts)
        if found.__module__.startswith(operators.__name__)
        and not found.__module__.startswith((*stateless, ahead))
    }
    built = (type(OperatorHarness.of(state.stream()).operator) for state in STATES.values())
    assert there <= set(map(_name, built))


def _name(found: type) -> str:
    return f"{found.__module__}.{found.__name__}"


def every(base: type) -> Iterator[type]:
    """All that inherit it."""
    for one in base.__subclasses__():
        yield one
        yield from every(one)


def leaves(base: type, parts: set[str]) -> Iterator[type]:
    """Classes that no other inherits, of those that are no `parts`."""
    below = [one for one in base.__subclasses__() if _name(one) not in parts]
    if not below:
        yield base
    for one in below:
        yield from leaves(one, parts)


def test_every_function_of_windows_on_columns_is_measured() -> None:
    specs = [spec_of(state) for state in STATES.values()]
    functions = {type(spec.function) for spec in specs if isinstance(spec, WindowSpec)}
    assert set(COLUMN_FUNCTIONS) < functions


def test_keys_are_distinct_and_in_no_order() -> None:
    keys = states.records(0, 10_000).column("k").to_pylist()
    assert len(set(keys)) == 10_000
    assert keys != sorted(keys)


def test_what_is_promised() -> None:
    assert [limit_ms(n) for n in (1_000, 1_000_000, 3_000_000, 10_000_000)] == [2, 10, 30, 60]


def test_what_was_put_off_counts() -> None:
    """The copy that a first batch pays is the snapshot's."""
    state = STATES["slices"]
    quick = Round(batch=1.0, sync=0.5, sync_cpu=0.4, after=1.5, rest=20.0, written=9)
    line = summary(state, 1_000_000, [quick, replace(quick, sync=3.0), replace(quick, sync=0.25)])
    assert (line["sync_ms"], line["sync_worst_ms"], line["after_ms"]) == (0.5, 3.0, 0.5)
    assert (line["total_ms"], line["bytes"], line["within"]) == (20.5, 9, True)
    assert summary(state, 1_000_000, [replace(quick, after=11.0)])["within"] is False
    assert summary(state, 1_000_000, [replace(quick, sync=10.5)])["within"] is False
    objects = summary(STATES["row_state"], 1_000_000, [replace(quick, sync=500.0)])
    assert (objects["within"], objects["limit_ms"]) == (None, None)


class Late(KeyedProcessFunction):
    """Pays for a snapshot with the first record after it."""

    owing: ClassVar[list[None]] = []

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        if self.owing:
            self.owing.clear()
            time.sleep(0.2)
        yield from ()


def test_what_was_put_off_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(lambda a: a.process(Late()))
    filled = Filled(state, 100, open_storage(str(tmp_path), "snapshot"))
    take = MemoryKeyedStateBackend.snapshot

    def owed(backend: MemoryKeyedStateBackend) -> Any:
        Late.owing.append(None)
        return take(backend)

    monkeypatch.setattr(MemoryKeyedStateBackend, "snapshot", owed)
    found = filled.round()
    filled.close()
    assert found.after - found.batch > 100
    assert found.sync_cpu <= found.sync + 1


def lines_of(*arguments: str) -> list[dict[str, Any]]:
    return list(cli.run(cli.parser().parse_args(["snapshot", *arguments])))


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In processes of their own, as a table and as lines."""
    arguments = ["--keys", "300", "--rounds", "1", "--states", "slices,row_state"]
    monkeypatch.setattr("sys.argv", ["benchmarks", "snapshot", *arguments])
    cli.main()
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["state", "keys", "sync_ms"]
    assert [row.split()[:2] for row in rows] == [["slices", "300"], ["row_state", "300"]]
    monkeypatch.setattr("sys.argv", [*sys.argv, "--json"])
    cli.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["state"] for line in lines] == ["slices", "row_state"]
    assert lines[0]["within"] in (True, False)


def test_a_state_that_is_not_there() -> None:
    with pytest.raises(SystemExit, match=r"no state \['tea'\]: there are all, running_sum"):
        lines_of("--states", "slices,tea")


def test_a_process_that_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strom.benchmarks.apart.sys.executable", "/bin/false")
    with pytest.raises(SystemExit, match="failed: slices"):
        lines_of("--states", "slices")
