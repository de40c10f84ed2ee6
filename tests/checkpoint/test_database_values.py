"""Values of groups that lie in RocksDB, against counters: batches, room made between them, whole
checkpoints and those of files, any parallelism, and restores into memory and back."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import seeds
from database_kit import MOST, Subtasks
from strom.core.state_config import StateConfig
from strom.operators.tables.group_values import GroupValues
from strom.operators.tables.keyed_values import KeyedGroupValues
from strom.operators.tables.stored_values import StoredValues
from strom.state.key_groups import key_groups_of, range_for
from strom.state.keyed_state import KeyedStates
from strom.state.rocks.tables import keyed_values
from strom.testing.backends import spilling

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])
EXTREMES = [(0, True), (1, False), (0, False)]
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "numbers": (pa.int32(), [-5, 0, 3, 4, 2**30]),
    "text": (pa.string(), ["", "a", "b\0", "ä" * 40]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["u", "v", "w"]),
    "truths": (pa.bool_(), [False, True]),
    "floats": (pa.float64(), [-1.5, 0.0, 2.5, float("inf")]),
    "times": (pa.timestamp("us"), [dt.datetime(2020, 1, day) for day in (1, 2, 3)]),
    "decimals": (pa.decimal128(6, 2), [Decimal(text) for text in ("-1.25", "0.00", "7.10")]),
    "views": (pa.string_view(), ["", "u", "a text of more than twelve bytes"]),
}
KEYS = [(number, text) for number in (0, 1, -7, 2**40) for text in ("x", "", None)]
Key = tuple[int, str | None]
Held = dict[Key, list[Counter[Any]]]
"""Of each key, per view how often each value is there."""


class Groups:
    """Groups of one subtask, as their operator drives them."""

    def __init__(self, backend: Any, kind: pa.DataType, lasting: bool) -> None:
        self.backend = backend
        self.kind = kind
        extremes = [] if lasting else EXTREMES
        args = "values0", SCHEMA, kind, 2
        keyed = backend.keyed_values(*args, len(extremes))
        self.keyed = keyed
        self.stored: StoredValues
        if keyed is not None:
            self.stored = KeyedGroupValues(keyed, extremes, lasting)
        else:
            self.stored = GroupValues(backend.counted_values(*args), extremes)
        self.table = backend.table("groups", SCHEMA, [], cold=keyed is not None).table()
        self.stored.own(self.table)

    def begin(self, keys: list[Key]) -> Any:
        """A batch: the groups of these keys."""
        self.backend.time.begin(len(keys))
        columns = [
            pa.array(c, t) for c, t in zip(zip(*keys, strict=True), SCHEMA.types, strict=True)
        ]
        groups = self.table.slots(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        self.stored.grow(len(self.table))
        self.stored.recall(np.unique(groups))
        return groups

    def fold(self, rows: list[tuple[Key, Any]], few: list[bool], sign: int) -> None:
        groups = self.begin([key for key, _ in rows])
        values = pa.array([value for _, value in rows], self.kind)
        masks = [np.empty(0, dtype=np.bool_), np.array(few)]
        assert not self.stored.fold(groups, values, masks, sign)
        self.stored.settle(np.unique(groups))
        self.end()

    def forget(self, keys: list[Key]) -> None:
        groups = np.unique(self.begin(keys))
        self.stored.forget(groups)
        self.table.release(groups)
        self.end()

    def end(self) -> None:
        self.stored.tidy()
        moved = self.table.tidy()
        if moved is not None:
            self.stored.keep(np.flatnonzero(moved >= 0))
        if self.keyed is not None:
            self.keyed.validate()

    def read(self, keys: list[Key], lasting: bool) -> list[list[Any]]:
        groups = self.begin(keys)
        found = [self.stored.distinct(view, groups).to_pylist() for view in range(2)]
        if not lasting:
            found += [self.stored.extreme(i, groups).to_pylist() for i in range(len(EXTREMES))]
        self.end()
        return [list(row) for row in zip(*found, strict=True)]


def expected(views: list[Counter[Any]], lasting: bool) -> list[Any]:
    there = [[value for value, count in view.items() if count] for view in views]
    row: list[Any] = [len(values) for values in there]
    if lasting:
        return row
    pick = [(max if largest else min)(there[view], default=None) for view, largest in EXTREMES]
    return [*row, *pick]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Subtasks]:
    made = Subtasks(tmp_path, spilling(8))
    yield made
    made.close()


def drive(
    rng: random.Random, groups: dict[int, Groups], held: Held, kind: str, lasting: bool
) -> None:
    """A batch."""
    values = KINDS[kind][1]
    what = rng.random()
    if what < 0.1 and not lasting:
        keys = rng.sample(KEYS, 2)
        for key in keys:
            groups[_groups[key]].forget([key])
            held.pop(key, None)
        return
    sign, rows, few = 1, [], []
    if what < 0.5 and not lasting:
        sign = -1
        # A value is taken back with the condition that it came with.
        there = [
            (key, value, in_few)
            for key, views in held.items()
            for value, count in views[0].items()
            for in_few, n in ((True, views[1][value]), (False, count - views[1][value]))
            for _ in range(n)
        ]
        for key, value, in_few in rng.sample(there, min(len(there), rng.randrange(1, 9))):
            rows.append((key, value))
            few.append(in_few)
    else:
        for _ in range(rng.randrange(1, 9)):
            rows.append((rng.choice(KEYS), rng.choice(values)))
            few.append(rng.random() < 0.5)
    if not rows:
        return
    for (key, value), in_few in zip(rows, few, strict=True):
        held.setdefault(key, [Counter(), Counter()])
        held[key][0][value] += sign
        held[key][1][value] += sign * in_few
    parts: dict[int, list[int]] = {}
    for at, (key, _) in enumerate(rows):
        parts.setdefault(id(groups[_groups[key]]), []).append(at)
    by_id = {id(one): one for one in groups.values()}
    for one, at in parts.items():
        by_id[one].fold([rows[i] for i in at], [few[i] for i in at], sign)


def _group(key: Key) -> int:
    columns = [pa.array([part], t) for part, t in zip(key, SCHEMA.types, strict=True)]
    return int(key_groups_of(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), MOST)[0])


_groups = {key: _group(key) for key in KEYS}


def by_group(backends: list[Any], kind: str, lasting: bool) -> dict[int, Groups]:
    made = [Groups(backend, KINDS[kind][0], lasting) for backend in backends]
    return {group: one for one in made for group in range(MOST) if group in one.backend.key_groups}


def check(groups: dict[int, Groups], held: Held, lasting: bool) -> None:
    for key in KEYS:
        views = held.get(key, [Counter(), Counter()])
        assert groups[_groups[key]].read([key], lasting) == [expected(views, lasting)], key


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("seed", seeds(3))
def test_against_counters(
    seed: int, lasting: bool, kind: str, job: Subtasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"{seed} {lasting} {kind}")
    monkeypatch.setattr(keyed_values, "SMALL", rng.choice([0, 1 << 20]))
    monkeypatch.setattr(keyed_values, "UNWRITTEN", rng.choice([0, 5, 1 << 13]))
    job.config = rng.choice([job.config, spilling(4 << 10), spilling(1 << 20)])
    held: Held = {}
    job.start(rng.randrange(1, 4))
    groups = by_group(job.backends, kind, lasting)
    for _ in range(rng.randrange(3, 6)):
        for _ in range(rng.randrange(1, 12)):
            drive(rng, groups, held, kind, lasting)
        if rng.random() < 0.7:
            check(groups, held, lasting)
        job.checkpoint()
        after = {key: [counter.copy() for counter in views] for key, views in held.items()}
        if rng.random() < 0.5:
            drive(rng, groups, held, kind, lasting)  # nobody will see this
            held = after
            in_memory = by_group(job.in_memory(2), kind, lasting)
            check(in_memory, held, lasting)
            job.start(rng.randrange(1, 4), same_program=rng.random() < 0.7)
            groups = by_group(job.backends, kind, lasting)
    check(groups, held, lasting)


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_whole_snapshots_go_from_one_backend_to_the_other(seed: int, lasting: bool) -> None:
    rng, held = random.Random(f"{seed} {lasting}"), dict[Key, list[Counter[Any]]]()
    tables: list[Any] = []
    for _ in range(4):
        states = KeyedStates(rng.choice([StateConfig(), spilling(8), spilling(1 << 20)]))
        backend = states.make(range_for(0, 1, MOST), MOST)
        backend.restore(tables)
        groups = by_group([backend], "text", lasting)
        check(groups, held, lasting)
        for _ in range(rng.randrange(1, 9)):
            drive(rng, groups, held, "text", lasting)
        snapshot = backend.snapshot()
        after = {key: [counter.copy() for counter in views] for key, views in held.items()}
        drive(rng, groups, held, "text", lasting)
        tables, held = list(snapshot.tables()), after
        states.close()


@pytest.mark.parametrize("seed", seeds(3))
def test_some_stay_and_some_leave(seed: int) -> None:
    """Heads and pairs come and go by themselves, and what is in memory stays within its bounds."""
    rng = np.random.default_rng(seed)
    states = KeyedStates(spilling(96 << 10))
    backend = states.make(range_for(0, 1, MOST), MOST)
    one = Groups(backend, pa.int64(), False)
    held: dict[Key, list[Counter[Any]]] = {}
    for batch in range(60):
        sign = -1 if batch % 3 == 2 else 1
        if sign > 0:
            many = batch % 2 == 0
            keys = rng.integers(0, 2 if many else 300, 200).tolist()
            last = [
                ((key, "k"), int(value))
                for key, value in zip(keys, rng.integers(0, 4000, 200), strict=True)
            ]
        one.fold(last, [True] * len(last), sign)
        for key, value in last:
            for view in held.setdefault(key, [Counter(), Counter()]):
                view[value] += sign
        if one.keyed.spilled and batch % 5 == 0:
            backend.time.begin(1)
            assert one.keyed.used < 2 * (96 << 10)
    assert one.keyed.spilled
    keys = rng.permutation(list(held))[:100].tolist()
    for number, text in keys:
        key = int(number), text
        assert one.read([key], False) == [expected(held[key], False)]
    states.close()


def test_a_value_more_is_a_row_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a key with very many values has is not written, nor read, for one that is added."""
    states = KeyedStates(spilling(8))
    backend = states.make(range_for(0, 1, MOST), MOST)
    one = Groups(backend, pa.int64(), False)
    key: Key = (1, "x")
    one.fold([(key, value) for value in range(20_000)], [True] * 20_000, 1)
    backend.time.begin(1)
    spilled, loaded = one.keyed.spilled, one.keyed.loaded
    one.fold([(key, 20_000)], [True], 1)
    one.fold([(key, 5)], [True], -1)
    assert one.read([key], False) == [[20_000, 20_000, 20_000, 0, 0]]
    backend.time.begin(1)
    assert one.keyed.spilled - spilled < 10
    assert one.keyed.loaded - loaded < 10
    states.close()
