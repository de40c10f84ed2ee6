"""State in RocksDB at one parallelism after another: each subtask begins with files of former ones,
and of the key groups of others nothing is there again, whoever reads its checkpoints."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from amounts import seeds
from database_kit import MOST, OPERATOR, Subtasks
from rocksdict import Options, Rdict
from strom import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from strom.core.errors import CorruptCheckpointError
from strom.core.ids import EVEN, KeyGroupRange
from strom.core.state_config import StateConfig
from strom.snapshots.stored import StoredStates
from strom.state.backend import AccColumn
from strom.state.key_groups import key_group, range_for
from strom.state.rocks.database.files import DatabaseFiles
from strom.state.rocks.database.task_database import TaskDatabase
from strom.state.rocks.values import elements
from strom.testing.backends import spilling

NAMES = ("value", "spaced", "list", "map", "lasting", "table", "typed", "timers")
VALUE, SPACED = ValueStateDescriptor("value"), ValueStateDescriptor("spaced", int)
LIST, MAP = ListStateDescriptor("list"), MapStateDescriptor("map")
LASTING = ListStateDescriptor("lasting")
LASTING.enable_time_to_live(StateTtlConfig.new_builder(timedelta(days=1)).build())
SCHEMA = pa.schema([("k", pa.int64())])
TYPED = pa.schema([("x", pa.float64()), ("d", pa.list_(pa.decimal128(6, 2)))])
COLUMNS = (AccColumn("n", "int64"),)
KEYS = range(80)
SPACES = range(3)

Held = dict[str, dict[Any, Any]]


class Point:
    """What another program may have otherwise."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x

    def __hash__(self) -> int:
        return hash(self.x)


class Model:
    """What the state holds. `others`: how many of the values are no plain ones."""

    def __init__(self, rng: random.Random, others: float) -> None:
        self.rng = rng
        self.others = others
        self.held: Held = {name: {} for name in NAMES}

    def step(self, all_of: Subtasks) -> None:
        rng = self.rng
        key = rng.choice(KEYS)
        backend = all_of.of(key)
        own: Any = (
            Point(rng.randrange(99)) if rng.random() < self.others else "x" * rng.randrange(99)
        )
        match rng.choice(NAMES):
            case "value":
                backend.get_state(VALUE).update(None if rng.random() < 0.2 else own)
                self._set("value", key, backend.get_state(VALUE).value())
            case "spaced":
                space, new = rng.choice(SPACES), rng.choice([None, rng.randrange(1000)])
                backend.namespaced(SPACED).of(space).update(new)
                self._set("spaced", (space, key), new)
            case "list" | "lasting" as name:
                state = backend.get_list_state(LIST if name == "list" else LASTING)
                if rng.random() < 0.2:
                    state.clear()
                    self.held[name].pop(key, None)
                else:
                    state.add(own)
                    self.held[name].setdefault(key, []).append(own)
            case "map":
                state, entry = backend.get_map_state(MAP), rng.randrange(4)
                if rng.random() < 0.3:
                    state.remove(entry)
                    self.held["map"].get(key, {}).pop(entry, None)
                    self._set("map", key, self.held["map"].get(key) or None)
                else:
                    state.put(entry, own)
                    self.held["map"].setdefault(key, {})[entry] = own
            case "table":
                table = backend.table("table", SCHEMA, COLUMNS, cold=True).table()
                keys = pa.RecordBatch.from_arrays([pa.array([key])], schema=SCHEMA)
                slots = table.slots(keys)
                table.column("n")[slots] += 1
                self._set("table", key, self.held["table"].get(key, 0) + 1)
            case "typed":
                backend = all_of.of(_typed(key))
                typed = backend.table("typed", TYPED, COLUMNS, 1, cold=True).table()
                slots = typed.slots(_typed_rows([key]))
                typed.column("n")[slots] += 1
                self._set("typed", key, self.held["typed"].get(key, 0) + 1)
            case "timers":
                queue, time = backend.timers("timers"), rng.randrange(1000)
                if rng.random() < 0.7:
                    queue.register(time, key)
                    self.held["timers"][time, key] = True
                else:
                    queue.delete(time, key)
                    self.held["timers"].pop((time, key), None)
        if rng.random() < 0.4:
            all_of.flush()

    def _set(self, name: str, key: Any, new: Any) -> None:
        if new is None:
            self.held[name].pop(key, None)
        else:
            self.held[name][key] = new


def held_by(backends: list[Any]) -> Held:
    """All of it, by asking; the timers are gone then."""
    found: Held = {name: {} for name in NAMES}
    for backend in backends:
        table = backend.table("table", SCHEMA, COLUMNS, cold=True).table()
        queue = backend.timers("timers")
        typed = backend.table("typed", TYPED, COLUMNS, 1, cold=True).table()
        for key in KEYS:
            (slot,) = typed.find(_typed_rows([key]))
            if slot >= 0:
                found["typed"][key] = int(typed.column("n")[slot])
        for key in KEYS:
            if _group(key) not in backend.key_groups:
                continue
            backend.set_current_key(key)
            keys = pa.RecordBatch.from_arrays([pa.array([key])], schema=SCHEMA)
            (slot,) = table.find(keys)
            lists = [list(backend.get_list_state(one).get() or ()) for one in (LIST, LASTING)]
            of_key = {
                "value": backend.get_state(VALUE).value(),
                "list": lists[0],
                "lasting": lists[1],
                "map": dict(backend.get_map_state(MAP).items()),
                "table": int(table.column("n")[slot]) if slot >= 0 else None,
            }
            for name, stored in of_key.items():
                if stored is not None and stored != [] and stored != {}:
                    found[name][key] = stored
            for space in SPACES:
                value = backend.namespaced(SPACED).of(space).value()
                if value is not None:
                    found["spaced"][space, key] = value
        while (timer := queue.pop_due(1 << 20)) is not None:
            found["timers"][timer[0], timer[1]] = True
        of_value = [key for key in _keys_of(backend) if key in found["value"]]
        assert sorted(backend.keys_of(VALUE)) == of_value
    return found


def _keys_of(backend: Any) -> list[int]:
    return [key for key in KEYS if _group(key) in backend.key_groups]


def _typed(key: int) -> float:
    """NaN and -0.0 are among them."""
    return float("nan") if key == 1 else -0.0 if key == 2 else key / 4


def _typed_rows(keys: list[int]) -> pa.RecordBatch:
    lists = [None if key % 3 == 0 else [Decimal(key) / 4, None] for key in keys]
    columns = [pa.array(map(_typed, keys)), pa.array(lists, TYPED.types[1])]
    return pa.RecordBatch.from_arrays(columns, schema=TYPED)


def _group(key: int) -> int:
    return key_group(key, MOST)


def check(all_of: Subtasks, model: Held) -> None:
    """Whoever reads the newest checkpoint finds what the state held."""
    assert all_of.manifest is not None
    stored = StoredStates(all_of.storage, all_of.manifest, "checkpoint")
    for name in ("value", "spaced", "table", "typed", "timers"):
        if model[name]:
            assert stored.keyed(OPERATOR, name).data.num_rows == len(model[name]), name
    assert held_by(all_of.in_memory(2)) == model


def places_are_own(backend: Any) -> bool:
    database = backend._database
    some = [place for s in database.states for place, _ in database.scan(s.prefix)]
    return all(int.from_bytes(place[2:4], "big") in backend.key_groups for place in some)


@pytest.fixture(name="all_of")
def _all_of(tmp_path: Path) -> Iterator[Subtasks]:
    made = Subtasks(tmp_path)
    yield made
    made.close()


CONFIGS: list[StateConfig] = [spilling(1 << 10), spilling(8 << 10)]


@pytest.mark.parametrize("seed", seeds(4, least=2))
def test_subtasks_have_their_own_key_groups_and_no_others(
    seed: int, all_of: Subtasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elements, "SMALL", [0, 1 << 20][seed % 2])
    rng = random.Random(seed)
    all_of.config = rng.choice([all_of.config, *CONFIGS])
    model = Model(rng, others=rng.choice([0, 0, 0.02]))
    all_of.start(rng.choice([1, 2, 3]))
    for _ in range(4):
        for _ in range(rng.randrange(1, 3)):  # the second one continues the first
            for _ in range(rng.randrange(150)):
                model.step(all_of)
            all_of.checkpoint()
        check(all_of, model.held)
        all_of.start(rng.choice([1, 2, 3, 4, 8]), same_program=rng.random() < 0.5)
        assert all(places_are_own(backend) for backend in all_of.backends)
    assert held_by(all_of.backends) == model.held


@pytest.mark.parametrize(("former", "now"), [(1, 2), (1, 3), (2, 4), (3, 3)])
def test_entries_of_one_former_subtask_are_not_copied(
    former: int, now: int, all_of: Subtasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(random.Random(former), others=0)
    all_of.start(former)
    for _ in range(300):
        model.step(all_of)
    all_of.checkpoint()

    def copied(*_: Any) -> None:
        raise AssertionError("an entry was copied")

    monkeypatch.setattr(TaskDatabase, "_ingest", copied)
    all_of.start(now)
    assert held_by(all_of.backends) == model.held


def test_of_several_former_subtasks_the_one_with_the_most_is_begun_with(
    all_of: Subtasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3 -> 2:  groups  0 1 2 | 3 4 5 | 6 7  ->  0 1 2 3 | 4 5 6 7"""
    assert [range_for(at, 3, MOST).first for at in range(3)] == [0, 3, 6]
    model = Model(random.Random(5), others=0)
    all_of.start(3)
    for _ in range(400):
        model.step(all_of)
    all_of.flush()
    all_of.checkpoint()
    copied: list[list[int]] = []
    ingest = TaskDatabase._ingest

    def watched(database: TaskDatabase, pairs: Iterator[tuple[bytes, bytes]]) -> None:
        some = list(pairs)
        copied[-1] += [int.from_bytes(place[2:4], "big") for place, _ in some]
        ingest(database, iter(some))

    monkeypatch.setattr(TaskDatabase, "_ingest", watched)
    inherit = TaskDatabase.inherit
    monkeypatch.setattr(
        TaskDatabase, "inherit", lambda *given: copied.append([]) or inherit(*given)
    )
    all_of.start(2)
    assert [set(groups) for groups in copied] == [{3}, {6, 7}]
    assert held_by(all_of.backends) == model.held


def test_what_was_deleted_with_its_key_group_does_not_come_back(all_of: Subtasks) -> None:
    """A subtask's files are those of another one with deletions over them, and end up with a third
    that has these key groups in files of its own."""
    all_of.start(1)
    for key in KEYS:
        all_of.of(key).get_state(VALUE).update(key)
    all_of.flush()
    all_of.checkpoint()
    for parallelism in (4, 2, 1):
        all_of.start(parallelism)
        for key in list(KEYS)[parallelism::7]:
            all_of.of(key).get_state(VALUE).clear()
        all_of.flush()
        all_of.checkpoint()
    gone = {key for parallelism in (4, 2, 1) for key in list(KEYS)[parallelism::7]}
    all_of.start(3)
    assert held_by(all_of.backends)["value"] == {key: key for key in KEYS if key not in gone}


def test_what_cannot_be_read_is_no_end(tmp_path: Path) -> None:
    """RocksDB's iterators end where a block is not as it was written."""
    db = Rdict(str(tmp_path / "db"), Options(raw_mode=True))
    places = [b"\x00\x01\x00\x03%4d" % n for n in range(5000)]
    for place in places:
        db[place] = random.Random(place).randbytes(99)
    db.flush()
    db.close()
    groups = KeyGroupRange(0, MOST)
    files = DatabaseFiles(tmp_path / "db", "here")
    assert [place for place, _ in files.pairs(b"\x00\x01", groups)] == places
    assert not [*files.pairs(b"\x00\x02", groups)]
    assert not [*files.pairs(b"\x00\x01", KeyGroupRange(0, 2))]
    files.close()
    (file,) = (tmp_path / "db").glob("*.sst")
    data = bytearray(file.read_bytes())
    for at in (0, len(data) // 2):
        broken = data.copy()
        broken[at] ^= 1
        file.write_bytes(broken)
        files = DatabaseFiles(tmp_path / "db", "here")
        with pytest.raises(CorruptCheckpointError, match=r"here: .*Corruption"):
            for _ in files.pairs(b"\x00\x01", groups):
                pass
        files.close()


@pytest.mark.parametrize("seed", range(6))
def test_key_groups_that_are_dealt_unevenly_keep_what_they_have(
    seed: int, all_of: Subtasks
) -> None:
    """Also at one parallelism, where the files of a subtask hold groups that it had and others
    have by now."""
    rng = random.Random(seed)
    model = Model(rng, others=0)
    all_of.start(2)
    for _ in range(6):
        for _ in range(rng.randrange(150)):
            model.step(all_of)
        all_of.checkpoint()
        parallelism = rng.choice([2, 2, 2, 3])
        cuts = sorted(rng.sample(range(1, MOST), parallelism - 1))
        deal = EVEN if rng.random() < 0.2 else (0, *cuts)
        all_of.start(parallelism, rng.random() < 0.5, deal)
        assert all(places_are_own(backend) for backend in all_of.backends)
        assert held_by(all_of.backends) == model.held
        all_of.start(parallelism, rng.random() < 0.5, deal)
