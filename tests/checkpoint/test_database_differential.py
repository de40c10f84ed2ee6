"""Keyed state in RocksDB through checkpoints of its files, against the memory backend through whole
ones: the same calls at the same times are answered alike, whatever has left memory, whichever
checkpoint both go back to, and whatever of it has expired."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import pytest
from amounts import seeds
from strom import StateTtlConfig
from strom.checkpoint.databases import inherited
from strom.checkpoint.handles import SubtaskSnapshot
from strom.checkpoint.increments import Increments
from strom.checkpoint.manifest import Manifest, OperatorShape, decode, encode
from strom.checkpoint.shared_files import SharedFiles
from strom.checkpoint.snapshot_io import read_operator, write_subtask
from strom.checkpoint.storage import open_storage
from strom.core.clock import VirtualClock
from strom.core.ids import NO_CHECKPOINT, CheckpointId, OperatorId, TaskId, VertexId
from strom.core.key_kinds import held_key
from strom.core.keys import findable
from strom.core.state_config import StateConfig
from strom.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from strom.state.key_groups import range_for
from strom.state.keyed_state import KeyedStates
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.rocks.values import elements, spaces

OPERATOR, TASK = OperatorId("op"), TaskId(VertexId("op"), 0)
MOST = 8
SIZES = (1e-6, 2e-4, 0.5)
"""Shares of memory that are not RocksDB's: nothing stays in memory, some, or all."""


class Word(StrEnum):
    A = "a"


class Number(IntEnum):
    SEVEN = 7


@dataclass(frozen=True)
class Own:
    """A key that nothing but memory can hold."""

    n: int


KEYS: list[Any] = [
    Own(3),
    1,
    True,
    1.0,
    "a",
    Word.A,
    None,
    (1, "a"),
    (1, Word.A),
    7,
    Number.SEVEN,
    8,
    9,
]
SPACES: list[Any] = [None, None, 5, (0, 10)]
OWN: list[Any] = [0, 1, 2, True, 1.0, 1 + 0j, "a", Word.A, None, Number.SEVEN, 7]


def config_of(draw: random.Random) -> StateTtlConfig | None:
    if draw.random() < 0.2:
        return None
    builder = StateTtlConfig.new_builder(timedelta(milliseconds=draw.choice([5, 40])))
    if draw.random() < 0.7:
        builder.use_event_time()
    if draw.random() < 0.4:
        builder.update_ttl_on_read_and_write()
    return builder.build()


class Both:
    """Both backends, one clock, and the checkpoint that both go back to."""

    def __init__(self, draw: random.Random, folder: Path) -> None:
        self.draw = draw
        self.others = draw.choice([0, 0.02, 0.5])
        """How many values are not the same to every program."""
        self.clock = VirtualClock()
        self.storage = open_storage(str(folder), "job")
        self.shared = SharedFiles()
        self.config = StateConfig("rocksdb", 8 << 20, 1 - draw.choice(SIZES))
        config = config_of(draw)
        self.value = ValueStateDescriptor("v")
        self.sum = ReducingStateDescriptor("r", lambda a, b: a + b)
        self.items = ListStateDescriptor("l")
        self.map = MapStateDescriptor("m")
        self.all = (self.value, self.sum, self.items, self.map)
        if config is not None:
            for descriptor in self.all:
                descriptor.enable_time_to_live(config)
        self.watermark: int | None = None
        self.stamp: int | None = None
        self.n = 0
        self.base: tuple[Manifest, Any, int | None] | None = None
        self.start([], [], None)

    def start(self, stored: list[Any], tables: list[Any], files: Any) -> None:
        self.states = KeyedStates(self.config)
        groups = range_for(0, 1, MOST)
        self.cold: Any = self.states.make(groups, MOST, self.clock)
        self.plain: Any = MemoryKeyedStateBackend(groups, MOST, self.clock)
        self.increments = Increments()
        if files is not None:
            self.cold.inherit(files)
        self.cold.restore(tables)
        self.plain.restore(stored)
        for one in (self.cold, self.plain):
            one.time.stamp_of = lambda: self.stamp
            for descriptor in self.all:
                one.namespaced(descriptor)

    def both(self, descriptor: Any, key: Any, space: Any, call: Any) -> None:
        found = []
        for one in (self.cold, self.plain):
            one.current.key = held_key(findable([key])[0])
            found.append(repr(call(one.namespaced(descriptor).of(space))))
        assert found[0] == found[1]

    def step(self) -> None:
        draw = self.draw
        key, space, own = draw.choice(KEYS), draw.choice(SPACES), draw.choice(OWN)
        some = draw.choices(range(100), k=draw.randrange(4))
        if draw.random() < self.others:
            some.append(Number.SEVEN)
        base = self.watermark or 0
        self.stamp = draw.choice([None, base, base + draw.randrange(8), base + draw.randrange(80)])
        match draw.randrange(23):
            case 0 | 1:
                self.both(self.value, key, space, lambda s: s.update(some))
            case 2 | 3:
                self.both(self.value, key, space, lambda s: s.value())
            case 21:
                if not self.value.ttl_config:  # else reading may be writing
                    self.both(self.value, key, space, lambda s: (s.value() or []).append(7))
            case 22:
                self.compare_whole()
            case 4:
                self.both(self.sum, key, space, lambda s: (s.add(len(some)), s.get()))
            case 5 | 6:
                self.both(self.items, key, space, lambda s: s.add(some))
            case 7:
                self.both(self.items, key, space, lambda s: s.add_all(some))
            case 8:
                self.both(self.items, key, space, lambda s: list(s.get()))
            case 9:
                self.both(self.items, key, space, lambda s: s.update(some))
            case 10 | 11:
                self.both(self.map, key, space, lambda s: s.put(own, some))
            case 12:
                self.both(self.map, key, space, lambda s: (s.get(own), s.contains(own)))
            case 13:
                self.both(self.map, key, space, lambda s: (s.is_empty(), list(s.items())))
            case 14:
                self.both(self.map, key, space, lambda s: s.remove(own))
            case 15:
                self.both(self.map, key, space, lambda s: s.put_all(dict.fromkeys(some, own)))
            case 16:
                self.both(draw.choice(self.all), key, space, lambda s: s.clear())
            case 17:
                self.clock.advance_ms(draw.choice([1, 3, 30]))
                if draw.random() < 0.7:
                    self.watermark = base + draw.choice([1, 3, 30])
                    for one in (self.cold, self.plain):
                        one.time.passed(self.watermark)
            case _:
                count = draw.choice([1, 100])
                for one in (self.cold, self.plain):
                    one.time.begin(count)

    def compare_whole(self) -> None:
        """A snapshot of its own, as a savepoint has, amid those that continue each other."""
        groups, backends = range_for(0, 1, MOST), []
        for one in (self.cold, self.plain):
            backends.append(MemoryKeyedStateBackend(groups, MOST, self.clock))
            backends[-1].restore(list(one.snapshot().tables()))
        for descriptor in (self.value, self.sum):
            if descriptor.ttl_config is None:
                found = []
                for one in backends:
                    state: Any = one.namespaced(descriptor)
                    found.append([])
                    for key in KEYS:
                        one.current.key = held_key(findable([key])[0])
                        get = "value" if descriptor is self.value else "get"
                        found[-1] += [getattr(state.of(space), get)() for space in SPACES]
                assert repr(found[0]) == repr(found[1])

    def checkpoint(self) -> None:
        self.n += 1
        n = CheckpointId(self.n)
        base = NO_CHECKPOINT if self.base is None else self.base[0].checkpoint_id
        increment = self.increments.begin(n, base)
        frozen = self.cold.snapshot(increment.since(OPERATOR))
        plain, watermark = list(self.plain.snapshot().tables()), self.watermark
        for _ in range(self.draw.randrange(6)):  # the asynchronous part comes when it comes
            self.step()
        part = [(OPERATOR, frozen, None)]
        layers, files = increment.layers, increment.files
        made = write_subtask(self.storage, n, TASK, part, layers=layers, files=files)
        self.increments.written(n, made)
        manifest = decode(encode(manifest_of(n, made)), "manifest")
        self.shared.completed(n, manifest.shared)
        self.storage.publish(manifest)
        self.base = manifest, plain, watermark

    def restart(self) -> None:
        assert self.base is not None
        self.states.close()
        manifest, plain, self.watermark = self.base
        share = (self.storage, manifest, OPERATOR, 0, 1, MOST)
        same, in_place = self.draw.random() < 0.5, self.draw.random() < 0.7
        files = inherited(*share, same_program=same) if in_place else None
        tables, _ = read_operator(*share, inherits=files is not None)
        self.config = StateConfig("rocksdb", 8 << 20, 1 - self.draw.choice(SIZES))
        self.start(plain, tables, files)

    def check(self) -> None:
        self.stamp = self.watermark
        self.cold.validate()
        for descriptor in self.all:
            assert set(self.cold.keys_of(descriptor)) == set(self.plain.keys_of(descriptor))
        for key in KEYS:
            for space in SPACES:
                self.both(self.value, key, space, lambda s: s.value())
                self.both(self.sum, key, space, lambda s: s.get())
                self.both(self.items, key, space, lambda s: list(s.get()))
                self.both(self.map, key, space, lambda s: list(s.items()))


def manifest_of(n: CheckpointId, made: SubtaskSnapshot) -> Manifest:
    return Manifest("job", "job", n, 0, (OperatorShape(OPERATOR, "op", 1, MOST),), (made,))


@pytest.mark.parametrize("seed", seeds(12, least=6))
def test_files_hold_what_memory_would(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elements, "SMALL", [0, 1 << 20][seed % 2])
    monkeypatch.setattr(spaces, "SMALL", [0, 1 << 20][seed % 2])
    monkeypatch.setattr(spaces, "HOT", [0, 3, 1 << 13][seed % 3])
    monkeypatch.setattr(spaces, "WRITTEN", [2, 1 << 14][seed % 2])
    monkeypatch.setattr(elements, "UNWRITTEN", [0, 5, 1 << 15][seed % 3])
    draw = random.Random(seed)
    both = Both(draw, tmp_path)
    try:
        for _ in range(6):
            for _ in range(draw.randrange(60)):
                both.step()
            if draw.random() < 0.7:
                both.checkpoint()
            if both.base is not None and draw.random() < 0.5:
                both.restart()
        both.check()
    finally:
        both.states.close()
