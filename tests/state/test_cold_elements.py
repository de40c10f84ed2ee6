"""Lists and maps of which parts lie in RocksDB, against the memory backend: at any moment anything
may be moved there, and a snapshot may be taken, read later, and restored at another parallelism."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from amounts import seeds
from backends import close_all, make_backend
from strom.core.ids import KeyGroupRange
from strom.core.key_kinds import held_key
from strom.core.keys import findable
from strom.state.backend import KEY_GROUP, StateTable
from strom.state.descriptors import ListStateDescriptor, MapStateDescriptor
from strom.state.key_groups import key_group, range_for
from strom.state.rocks.values import elements

GROUPS = 8
LIST, MAP = ListStateDescriptor("l"), MapStateDescriptor("m")


class Odd:
    """A map key that has no bytes in RocksDB."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Odd) and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)

    def __repr__(self) -> str:
        return f"Odd({self.number})"


KEYS: list[Any] = [1, True, 1.0, "a", "b", None, (1, "x"), b"", 7]
SPACES: list[Any] = [None, None, 5, (0, 10)]
MAP_KEYS: list[Any] = [0, 1, 2, True, 1.0, "a", "b", None, (1, 2), (True, 2), 2**70, b"x"]


@pytest.fixture(scope="module", autouse=True)
def _databases() -> Iterator[None]:
    yield
    close_all()


@pytest.fixture(params=[0, 3, 40])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """After how many changes they are written, and that no state is too small for RocksDB."""
    monkeypatch.setattr(elements, "UNWRITTEN", request.param)
    monkeypatch.setattr(elements, "SMALL", 0)


def as_held(key: Any) -> Any:
    return held_key(findable([key])[0])


class Pair:
    """The same calls on both backends, which must answer alike."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.cold: list[Any] = [make_backend("rocksdb", range_for(0, 1, GROUPS), GROUPS)]
        self.plain: Any = make_backend("memory", range_for(0, 1, GROUPS), GROUPS)
        self.frozen: tuple[list[Any], Any] | None = None

    def states(self, descriptor: Any, key: Any, space: Any) -> list[Any]:
        group = key_group(key, GROUPS)
        (owner,) = [one for one in self.cold if group in one.key_groups]
        found = []
        for one in (owner, self.plain):
            one.current.key = as_held(key)
            found.append(one.namespaced(descriptor).of(space))
        return found

    def both(self, descriptor: Any, key: Any, space: Any, call: Any) -> None:
        cold, plain = [call(state) for state in self.states(descriptor, key, space)]
        assert repr(cold) == repr(plain)

    def step(self, odd: bool) -> None:
        draw = self.draw
        key, space = draw.choice(KEYS), draw.choice(SPACES)
        some = draw.choices(range(100), k=draw.randrange(4))
        own = draw.choice([*MAP_KEYS, Odd(1), Odd(2)] if odd else MAP_KEYS)
        new = draw.choice([some, tuple(some), len(some), None])
        match draw.randrange(18):
            case 0 | 1:
                self.both(LIST, key, space, lambda s: s.add(new))
            case 2:
                self.both(LIST, key, space, lambda s: s.add_all(some))
            case 3:
                self.both(LIST, key, space, lambda s: s.update(some))
            case 4:
                self.both(LIST, key, space, lambda s: list(s.get()))
            case 5:
                self.both(LIST, key, space, lambda s: s.clear())
            case 6 | 7:
                self.both(MAP, key, space, lambda s: s.put(own, new))
            case 8:
                self.both(MAP, key, space, lambda s: s.put_all(dict.fromkeys(some, new)))
            case 9:
                self.both(MAP, key, space, lambda s: s.remove(own))
            case 10:
                self.both(MAP, key, space, lambda s: s.get(own))
            case 11:
                self.both(MAP, key, space, lambda s: (s.contains(own), s.is_empty()))
            case 12:
                self.both(MAP, key, space, lambda s: (list(s.items()), list(s.keys())))
            case 13:
                self.both(MAP, key, space, lambda s: s.clear())
            case 14 | 15:
                for one in self.cold:
                    one.time.begin(1)
            case 16:
                self.frozen = [one.snapshot() for one in self.cold], self.plain.snapshot()
            case 17 if self.frozen is not None:
                self.restore(*self.frozen)
                self.frozen = None

    def restore(self, cold: list[Any], plain: Any) -> None:
        tables = [table for frozen in cold for table in frozen.tables()]
        parallelism = self.draw.randint(1, 3)
        kind = self.draw.choice(["memory", "rocksdb", "rocksdb"])
        self.cold = []
        for subtask in range(parallelism):
            new = make_backend(kind, range_for(subtask, parallelism, GROUPS), GROUPS)
            new.restore(cut(tables, new.key_groups))
            self.cold.append(new)
        self.plain = make_backend("memory", range_for(0, 1, GROUPS), GROUPS)
        self.plain.restore(list(plain.tables()))

    def check(self) -> None:
        for one in self.cold:
            one.validate()
        for descriptor in (LIST, MAP):
            for one in [*self.cold, self.plain]:
                one.namespaced(descriptor)
            keys = [key for one in self.cold for key in one.keys_of(descriptor)]
            assert sorted(map(repr, keys)) == sorted(map(repr, self.plain.keys_of(descriptor)))
        for key in KEYS:
            for space in SPACES:
                self.both(LIST, key, space, lambda s: list(s.get()))
                self.both(MAP, key, space, lambda s: list(s.items()))


def cut(tables: list[StateTable], groups: KeyGroupRange) -> list[StateTable]:
    found = []
    for table in tables:
        column = table.data.column(KEY_GROUP).to_numpy()
        assert (column[1:] >= column[:-1]).all()
        data = table.data.filter((column >= groups.first) & (column <= groups.last))
        found.append(StateTable(table.name, table.kind, data, table.metadata))
    return found


@pytest.mark.parametrize("seed", seeds(14, least=8))
@pytest.mark.usefixtures("few")
def test_lists_and_maps_are_as_in_memory(seed: int) -> None:
    draw = random.Random(seed)
    pair = Pair(draw)
    for _ in range(draw.choice([30, 150, 400])):
        pair.step(odd=seed % 4 == 0)
    pair.check()
