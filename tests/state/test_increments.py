"""Snapshots that continue others, of states by themselves: whatever is written, dropped, renumbered
and snapshotted in between, and whichever snapshots fail, the layers of the newest complete one hold
what the state held then, each row once, at any parallelism."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import seeds
from strom.checkpoint.handles import FileHandle, KeyedHandle
from strom.checkpoint.increments import Increments, outgrown
from strom.checkpoint.manifest import Manifest, OperatorShape
from strom.checkpoint.snapshot_io import read_operator, write_subtask
from strom.checkpoint.storage import open_storage
from strom.core.ids import KeyGroupRange, TaskId
from strom.state.backend import KEY_GROUP, AccColumn
from strom.state.increments import Since
from strom.state.key_groups import key_groups_of
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.value_store import ValueStore

MAX = 8
KEYS = pa.schema([("k", pa.string()), ("n", pa.int64())])
COLUMNS = [AccColumn("sum", "int64"), AccColumn("text", "int64", -1)]
VALUES = {"text": lambda: ValueStore(pa.string())}


def backend(first: int = 0, last: int = MAX - 1) -> MemoryKeyedStateBackend:
    return MemoryKeyedStateBackend(KeyGroupRange(first, last), MAX)


def table_of(state: MemoryKeyedStateBackend) -> Any:
    return state.table("t", KEYS, COLUMNS, values=VALUES)


def key(number: int) -> tuple[str | None, int]:
    """One of the keys has a null in it."""
    return (None if number == 3 else f"k{number % 7}", number)


def keys_batch(numbers: list[int]) -> pa.RecordBatch:
    columns = list(zip(*map(key, numbers), strict=True)) if numbers else [[], []]
    arrays = [pa.array(c, t) for c, t in zip(columns, KEYS.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=KEYS)


def held(state: MemoryKeyedStateBackend) -> dict[Any, Any]:
    """By namespace and key what the tables hold, as a snapshot has it: without the dead."""
    found: dict[Any, Any] = {}
    for table in state.snapshot().tables():
        for row in table.data.to_pylist():
            where = (row["namespace"], row["key.k"], row["key.n"])
            assert where not in found
            found[where] = (row["acc.sum"], row["acc.text"])
    return found


class Run:
    """A state, its model, and its snapshots as a task and a coordinator take them."""

    def __init__(self, seed: int, folder: str) -> None:
        self.rng = random.Random(seed)
        self.storage = open_storage(folder, "job")
        self.state = backend()
        self.model: dict[Any, Any] = {}
        self.increments = Increments()
        self.n = self.base = 0
        self.manifest: Manifest | None = None
        self.expected: dict[Any, Any] = {}
        self.layers: set[str] = set()
        self.written: list[tuple[int, Any, Any]] = []
        """Those of which it is not known whether they are complete, with what they hold."""

    def write(self) -> None:
        ns = self.rng.randrange(3)
        many = self.rng.choice([1, 3, 40])
        numbers = [self.rng.randrange(self.rng.choice([5, 400])) for _ in range(many)]
        table = table_of(self.state).table(ns)
        slots = table.slots(keys_batch(numbers))
        for number, slot in zip(numbers, slots.tolist(), strict=True):
            amount = self.rng.randrange(100)
            before = self.model.get((ns, *key(number)), (0, None))
            text = f"text {amount}"
            table.column("sum")[slot] += amount
            table.column("text")[slot] = table.stores["text"].append(
                pa.array([text], pa.large_string())
            )[0]
            self.model[ns, *key(number)] = (before[0] + amount, text)

    def release(self) -> None:
        ns = self.rng.randrange(3)
        mine = [where for where in self.model if where[0] == ns]
        gone = self.rng.sample(mine, min(len(mine), self.rng.choice([1, 10, 300])))
        if gone:
            table = table_of(self.state).table(ns)
            table.release(table.find(keys_batch([where[2] for where in gone])))
        for where in gone:
            del self.model[where]

    def tidy(self) -> None:
        for ns in table_of(self.state).namespaces():
            table_of(self.state).table(ns).tidy()

    def drop(self) -> None:
        ns = self.rng.randrange(3)
        table_of(self.state).drop(ns)
        self.model = {where: v for where, v in self.model.items() if where[0] != ns}

    def end(self) -> None:
        """Of all windows: nothing is left, and snapshots go on."""
        self.empty()
        self.model = {}
        for _ in range(self.rng.randrange(4)):
            self.snapshot()

    def empty(self) -> None:
        for ns in range(3):
            table_of(self.state).drop(ns)

    def savepoint(self) -> None:
        """Whole, and none of the others' business."""
        assert held(self.state) == self.model

    def whole(self) -> Any:
        return dict(self.model)

    def snapshot(self) -> None:
        self.n += 1
        model = self.whole()
        full = self.rng.random() < 0.1
        increment = self.increments.begin(self.n, 0 if full else self.base)
        frozen = self.state.snapshot(increment.since("op"))
        if model and self.rng.random() < 0.5:
            self.write()  # while it is being encoded
        if self.rng.random() < 0.2:
            return  # it failed before it was written
        part = write_subtask(
            self.storage, self.n, TaskId("v", 0), [("op", frozen, None)], layers=increment.layers
        )
        self.increments.written(self.n, part)
        self.written.append((self.n, part, model))
        if self.rng.random() < 0.7:
            self.settle()  # else others are taken while it is on its way

    def settle(self) -> None:
        """It becomes known of one that is written whether it is complete; those before it fail."""
        if not self.written:
            return
        n, part, model = self.written.pop(self.rng.randrange(len(self.written)))
        if self.rng.random() < 0.3:
            return  # another task failed
        self.written = [one for one in self.written if one[0] > n]
        self.base, self.expected = n, model
        shape = OperatorShape("op", "Op", 1, MAX)
        self.manifest = Manifest("job", "Job", n, 0, (shape,), (part,))
        self.layers |= {handle.layer for handle in part.operators[0].keyed}
        self.check()

    def check(self) -> None:
        """What the newest complete snapshot restores to."""
        assert self.manifest is not None
        parallelism = self.rng.choice([1, 2, 3])
        found: dict[Any, Any] = {}
        for subtask in range(parallelism):
            tables, _ = read_operator(self.storage, self.manifest, "op", subtask, parallelism, MAX)
            rows = sum(table.data.num_rows for table in tables)
            state = backend()
            state.restore(tables)
            table_of(state)
            mine = held(state)
            assert len(mine) == rows, "a row is there twice"
            assert not mine.keys() & found.keys()
            found |= mine
        assert found == self.expected

    def go_on(self) -> None:
        """Until there were snapshots of either kind."""
        self.go(120)
        for _ in range(20):
            if self.layers == {"base", "delta"}:
                return
            self.go(40)
        raise AssertionError(self.layers)

    def go(self, steps: int) -> None:
        actions = [self.write] * 8 + [self.snapshot] * 4
        actions += [self.release, self.release, self.tidy, self.drop, self.savepoint]
        actions += [self.settle, self.end]
        for _ in range(steps):
            self.rng.choice(actions)()


@pytest.mark.parametrize("seed", seeds(12, least=4))
def test_any_course_of_events(seed: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strom.state.slot_table.SPARE", 5)  # few dead keys make a table renumber
    monkeypatch.setattr("strom.state.value_store.FIRST_LIMIT", 50)
    run = Run(seed, str(tmp_path))
    run.go_on()


def test_a_delta_holds_what_changed_and_nothing_else(tmp_path: Any) -> None:
    run = Run(0, str(tmp_path))
    state = table_of(run.state)
    slots = state.table(0).slots(keys_batch(list(range(100))))
    state.table(0).column("sum")[slots] = 1
    state.table(1).slots(keys_batch([1]))
    since = run.increments.begin(1, 0).since("op")
    (base,) = run.state.snapshot(since).tables()
    assert (base.layer, base.data.num_rows) == ("base", 101)
    run.state.snapshot()
    slots = state.table(0).slots(keys_batch([5, 200]))
    state.table(0).column("sum")[slots] += 1
    state.table(0).release(state.table(0).find(keys_batch([7])))
    state.drop(1)
    frozen = run.state.snapshot(Since(2, 1))
    assert set(frozen.continued) == {"t"}
    (delta,) = frozen.tables()
    assert delta.layer == "delta"
    assert delta.metadata == {
        "identity": '["namespace", "key.k", "key.n"]',
        "scope": '["namespace"]',
    }
    rows = [
        (r["namespace"], r["key.n"], r["acc.sum"], r["__removed"]) for r in delta.data.to_pylist()
    ]
    assert rows[0] == (1, None, None, True)
    assert sorted(rows[1:]) == [(0, 5, 2, False), (0, 7, None, True), (0, 200, 1, False)]
    groups = np.array(delta.data.column("__key_group"))
    assert groups[0] == -1
    assert (np.diff(groups) >= 0).all()
    # Nothing changed since: there is no delta, and the layers stay.
    again = run.state.snapshot(Since(3, 2))
    assert set(again.continued) == {"t"}
    assert not list(again.tables())


ENTRIES = [AccColumn("owner", "int64", -1), AccColumn("sum", "int64")]
OWNERS = pa.schema([("k", pa.string())])


class EntryRun(Run):
    """The same of entries: of each slot its owner and its sum, in the order of the slots."""

    def entries_of(self, state: MemoryKeyedStateBackend) -> Any:
        return state.entries("e", OWNERS, ENTRIES, "owner")

    def own(self, table: Any, slots: list[int]) -> None:
        """Write these slots: each gets an owner and a sum."""
        table.touch(np.array(slots, np.int64))
        for slot in slots:
            owner, amount = f"k{self.rng.randrange(20)}", self.rng.randrange(100)
            batch = pa.RecordBatch.from_arrays([pa.array([owner])], schema=OWNERS)
            table.column("owner")[slot] = table.numbers(batch)[0]
            table.column("sum")[slot] = amount
            self.model[slot] = (owner, amount)

    def write(self) -> None:
        table, count = self.entries_of(self.state), len(self.entries_of(self.state))
        if self.rng.random() < 0.4:
            more = self.rng.choice([1, 5, 60])
            table.resize(count + more)
            self.own(table, list(range(count, count + more)))
        elif count:
            self.own(table, [self.rng.randrange(count) for _ in range(self.rng.choice([1, 5]))])

    def release(self) -> None:
        gone = self.rng.sample(sorted(self.model), min(len(self.model), self.rng.choice([1, 30])))
        self.entries_of(self.state).reset(np.array(gone, np.int64))
        for slot in gone:
            del self.model[slot]

    def tidy(self) -> None:
        table = self.entries_of(self.state)
        names = {owner for owner, _ in self.model.values()}
        every = pa.array(sorted(names), pa.string())
        batch = pa.RecordBatch.from_arrays([every], schema=OWNERS)
        table.tidy_owners(len(names), lambda: np.sort(table.numbers(batch)))

    drop = tidy

    def empty(self) -> None:
        self.entries_of(self.state).reset(np.array(sorted(self.model), np.int64))

    def savepoint(self) -> None:
        assert self.rows_of(self.state) == self.in_order(self.model)

    def rows_of(self, state: MemoryKeyedStateBackend) -> list[Any]:
        columns = [KEY_GROUP, "key.k0", "acc.sum"]
        rows = [r for table in state.snapshot().tables() for r in table.data.to_pylist()]
        return [tuple(row[c] for c in columns) for row in rows]

    def in_order(self, model: dict[Any, Any]) -> list[Any]:
        """By key group, and within one by slot."""
        keys = pa.RecordBatch.from_arrays(
            [pa.array([model[slot][0] for slot in sorted(model)], pa.string())], schema=OWNERS
        )
        groups = key_groups_of(keys, MAX).tolist() if model else []
        rows = [(g, *model[s]) for g, s in zip(groups, sorted(model), strict=True)]
        return sorted(rows, key=lambda row: row[0])

    def check(self) -> None:
        assert self.manifest is not None
        parallelism = self.rng.choice([1, 2, 3])
        found: list[Any] = []
        for subtask in range(parallelism):
            tables, _ = read_operator(self.storage, self.manifest, "op", subtask, parallelism, MAX)
            state = backend()
            state.restore(tables)
            self.entries_of(state)
            found += self.rows_of(state)
        assert found == self.in_order(self.expected)


@pytest.mark.parametrize("seed", seeds(8, least=4))
def test_any_course_of_events_of_entries(
    seed: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strom.state.live_keys.FIRST_LIMIT", 3)
    run = EntryRun(seed, str(tmp_path))
    run.go_on()


ROWS = pa.schema([("k", pa.int64()), ("text", pa.string())])
NUMBERS = [AccColumn("matched", "int64")]


class RowsRun(Run):
    """The same of rows kept whole: in order of arrival, or of their positions."""

    def __init__(self, seed: int, folder: str) -> None:
        super().__init__(seed, folder)
        self.ordered, self.numbered = self.rng.random() < 0.5, self.rng.random() < 0.5

    def rows_of(self, state: MemoryKeyedStateBackend) -> Any:
        numbers = NUMBERS if self.numbered else []
        return state.rows("r", ROWS, [0], numbers, ordered=self.ordered)

    def write(self) -> None:
        rows, many = self.rows_of(self.state), self.rng.choice([1, 5, 60])
        keys = [self.rng.randrange(50) for _ in range(many)]
        texts = [f"text {self.rng.randrange(1000)} that is long" for _ in keys]
        batch = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(texts)], schema=ROWS)
        positions = rows.add(batch).tolist()
        if self.numbered and self.rng.random() < 0.7:
            some = self.rng.sample(rows.positions().tolist(), min(len(rows), 3))
            rows.touch(np.array(some, np.int64))
            rows.number("matched")[some] += 1
        assert len(positions) == many

    def release(self) -> None:
        rows = self.rows_of(self.state)
        gone = self.rng.sample(
            rows.positions().tolist(), min(len(rows), self.rng.choice([1, 5, 60]))
        )
        rows.release(np.array(gone, np.int64))
        rows.validate()

    tidy = drop = release

    def empty(self) -> None:
        rows = self.rows_of(self.state)
        rows.release(rows.positions())

    def savepoint(self) -> None:
        self.stored(self.state)

    def stored(self, state: MemoryKeyedStateBackend) -> list[Any]:
        names = {KEY_GROUP, "row.k", "row.text", *(["num.matched"] if self.numbered else [])}
        tables = list(state.snapshot().tables())
        assert all(set(table.data.column_names) == names for table in tables)
        return [row for table in tables for row in table.data.to_pylist()]

    def whole(self) -> Any:
        return self.stored(self.state)

    def check(self) -> None:
        assert self.manifest is not None
        parallelism = self.rng.choice([1, 2, 3])
        found: list[Any] = []
        for subtask in range(parallelism):
            tables, _ = read_operator(self.storage, self.manifest, "op", subtask, parallelism, MAX)
            state = backend()
            state.restore(tables)
            self.rows_of(state)
            found += self.stored(state)
        assert found == self.expected


@pytest.mark.parametrize("seed", seeds(12, least=4))
def test_any_course_of_events_of_rows(seed: int, tmp_path: Any) -> None:
    run = RowsRun(seed, str(tmp_path))
    run.go_on()


class LogRun(RowsRun):
    """The same of rows numbered as they arrive: in order of arrival."""

    def rows_of(self, state: MemoryKeyedStateBackend) -> Any:
        def groups_of(rows: pa.RecordBatch) -> Any:
            return key_groups_of(rows.select([0]), MAX)

        marks = NUMBERS if self.numbered else []
        return state.log("r", ROWS, groups_of, [AccColumn("when", "int64")], marks)

    def write(self) -> None:
        rows, many = self.rows_of(self.state), self.rng.choice([1, 5, 60])
        keys = [self.rng.randrange(50) for _ in range(many)]
        texts = [f"text {self.rng.randrange(1000)} that is long" for _ in keys]
        batch = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(texts)], schema=ROWS)
        rows.append(batch, {"when": np.arange(many)})
        if self.numbered and self.rng.random() < 0.7:
            some = self.rng.sample(rows.rows().tolist(), min(rows.live, 3))
            rows.touch(np.array([*some, -1], np.int64))
            rows.number("matched")[some] += 1

    def release(self) -> None:
        rows = self.rows_of(self.state)
        there = rows.rows().tolist()
        gone = self.rng.sample(there, min(len(there), self.rng.choice([1, 5, 60])))
        rows.remove(np.array(gone, np.int64))
        rows.validate()

    def empty(self) -> None:
        rows = self.rows_of(self.state)
        rows.remove(rows.rows())

    def drop(self) -> None:
        rows = self.rows_of(self.state)
        there = rows.rows().tolist()
        rows.forget(there[min(len(there) - 1, self.rng.choice([1, 5, 60]))] if there else len(rows))
        rows.validate()

    def tidy(self) -> None:
        rows = self.rows_of(self.state)
        if self.rng.random() < 0.3:
            rows.keep(rows.rows())

    def stored(self, state: MemoryKeyedStateBackend) -> list[Any]:
        tables = list(state.snapshot().tables())
        assert all("__slot" not in table.data.column_names for table in tables)
        return [row for table in tables for row in table.data.to_pylist()]


@pytest.mark.parametrize("seed", seeds(12, least=4))
def test_any_course_of_events_of_logs(seed: int, tmp_path: Any) -> None:
    run = LogRun(seed, str(tmp_path))
    run.go_on()


def handle(layer: Any, size: int) -> KeyedHandle:
    return KeyedHandle("s", "table", FileHandle("f", size, "0" * 16), (), {}, layer)


def test_a_base_is_written_when_deltas_outgrow_it() -> None:
    base = handle("base", 100)
    assert not outgrown(())
    assert not outgrown((base,))
    assert not outgrown((base, handle("delta", 50), handle("delta", 50)))
    assert outgrown((base, handle("delta", 50), handle("delta", 51)))
    assert outgrown((base, *[handle("delta", 1)] * 100))
    assert outgrown((handle("delta", 1),))
