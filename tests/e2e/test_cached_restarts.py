"""Cached streams of jobs that restart: each record is kept once, or none."""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from cached_kit import collected, doubled, environment, kept_bytes
from strom import (
    DiscardSink,
    RestartStrategies,
)
from strom.api.connectors.base import WriterContext
from strom.api.connectors.cached import CacheSink, CacheWriter
from strom.api.connectors.cached_parts import Ended, Spoilt, opened_batch
from strom.core.batch import ObjectBatch
from strom.core.clock import VirtualClock
from strom.engine.hosts.local_cache import LocalCache
from strom.engine.hosts.memory_parts import MemoryParts
from strom.testing.equivalence import Ways, checkpointed, run_crashing
from strom.testing.probes import CollectProbe


def test_restarts_keep_each_record_once(tmp_path: Path) -> None:
    def once(value: Any) -> Any:
        mark = tmp_path / "failed"
        if value > 1500 and not mark.exists():
            time.sleep(0.0005)
        if value > 1500 and not mark.exists() and any(tmp_path.glob("*/chk-*/manifest.json")):
            mark.write_text("")
            raise ValueError("once")
        return value

    env = environment()
    env.enable_checkpointing(1, storage=str(tmp_path))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    cached = env.from_collection(list(range(5000))).map(once).cache()
    cached.sink_to(DiscardSink())
    assert env.execute().restarts == 1
    assert collected(cached) == list(range(5000))


class NotEach:
    """Pickles but for number 100."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        if self.number == 100:
            raise TypeError("not this one")
        return NotEach, (self.number,)


def test_what_was_given_up_before_a_restart_is_not_complete_after_it(
    tmp_path: Path, caplog: Any
) -> None:
    """The checkpoint behind the record that cannot be kept is complete without it."""
    mark = tmp_path / "failed"
    before: list[int] = []

    def once(record: NotEach) -> int:
        if record.number > 120 and not mark.exists():
            time.sleep(0.0005)
            found = tmp_path.glob("*/chk-*/manifest.json")
            newest = max((int(one.parent.name[4:]) for one in found), default=0)
            before.append(newest)
            if newest > before[0] + 1:
                mark.write_text("")
                raise ValueError("once")
        return record.number

    env = environment(1)
    env.enable_checkpointing(1, storage=str(tmp_path))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    cached = env.from_collection(list(range(5000))).map(NotEach).cache()
    with caplog.at_level(logging.WARNING, "strom"):
        assert collected(cached.map(once)) == list(range(5000))
        assert mark.exists()
        assert kept_bytes(env) == 0
        assert collected(cached.map(lambda r: r.number)) == list(range(5000))
    assert "the stream is not cached" in caplog.text
    assert "'Cache(Map)' is kept no more: this job makes it anew" in caplog.text


class Access:
    """Leads to the one store, which can be out of reach for a while."""

    def __init__(self, store: MemoryParts) -> None:
        self.store = store
        self.lost = False

    def open(self) -> MemoryParts:
        if self.lost:
            raise OSError("out of reach")
        return self.store


def writers(access: Access, attempt: int) -> list[CacheWriter]:
    clock, sink = VirtualClock(0), CacheSink(access, "token", 1)
    return [
        CacheWriter(sink, WriterContext("cache", "c", "job", at, 2, attempt, clock, print, True))
        for at in range(2)
    ]


def test_giving_up_is_in_every_checkpoint_and_goes_to_whoever_restarts() -> None:
    access = Access(MemoryParts())
    first, second = writers(access, 0)
    access.lost = True
    first.write(ObjectBatch([1], None))
    spoilt = first.prepare_commit(1)
    assert first.prepare_commit(2) == spoilt == [Spoilt(0)]
    access.lost = False
    second.write(ObjectBatch([2], None))
    kept = second.prepare_commit(2)
    # Restarted from the second checkpoint; what is prepared is dealt out to any of them.
    access.lost = True
    first, second = writers(access, 1)
    second.recover(spoilt)
    access.lost = False
    first.recover(kept)
    first.finish()
    second.finish()
    assert second.prepare_commit(3) == [Spoilt(1)]
    first.commit(first.prepare_commit(3))
    assert access.store.parts("token") is None
    second.commit(second.prepare_commit(4))
    assert access.store.parts("token") is None
    assert access.store.held_bytes() == 0


def test_ends_of_two_attempts_are_no_end() -> None:
    store = MemoryParts()
    store.commit("token", [], [Ended(0, 2, 0)])
    store.commit("token", [], [Ended(1, 2, 1)])
    assert store.parts("token") is None
    store.commit("token", [], [Ended(0, 2, 1)])
    assert store.parts("token") == []


@pytest.mark.parametrize("seed", range(6))
def test_crashes_at_any_step_keep_each_record_once(seed: int) -> None:
    """In the simulator tasks crash after checkpoints and at random steps; what was kept is read as
    the next job would."""
    stores: list[LocalCache] = []
    tokens: list[str] = []

    def build(env: Any) -> Any:
        cached = env.from_collection(list(range(60))).rebalance().map(doubled).cache()
        open_cache = env._caches._opened

        def opened() -> LocalCache:
            store = open_cache()
            stores.append(store)
            make = store.sink
            store.sink = lambda token, node: tokens.append(token) or make(token, node)
            return store

        env._caches._opened = opened
        return cached.map(lambda v: v + 1)

    ways = Ways()
    probe = CollectProbe(build)
    output, _ = run_crashing(lambda: nullcontext(probe), checkpointed(ways, 2), ways, seed)
    assert sorted(output) == [2 * n + 1 for n in range(60)]
    assert stores[-1].holds(tokens[-1])
    parts = stores[-1].parts
    kept = parts.parts(tokens[-1]) or []
    assert set(parts._put[tokens[-1]]) == set(kept)  # nothing of dead attempts
    records = [
        value
        for part in kept
        for sealed in parts.get(tokens[-1], part)
        for value in opened_batch(sealed).rows()
    ]
    assert sorted(records) == [2 * n for n in range(60)]
