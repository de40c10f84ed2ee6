"""Sessions of which some lie in RocksDB against the same in memory: what comes out, in what order,
what is late, and what snapshots hold, which either of them goes on from."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from amounts import met, pairs
from pauses_kit import GROUPS as PAUSE_GROUPS
from pauses_kit import check_pauses
from strom.api.aggregates import (
    approx_count_distinct,
    collect,
    count,
    count_distinct,
    first,
    largest,
    max_,
    mean,
    min_,
    sum_,
)
from strom.api.specs.windows import BuiltinWindow, WindowSpec
from strom.api.windows.session_windows import EventTimeSessionWindows, ProcessingTimeSessionWindows
from strom.core.batch import ColumnBatch
from strom.core.config import JobConfig
from strom.core.errors import StateError
from strom.core.keys import ColumnKey, FunctionKey
from strom.core.state_config import StateConfig
from strom.operators.window_choice import make_window_operator
from strom.state.object_keys import FIRST_LIMIT
from strom.state.rocks.entries.entry_table import ColdEntryTable
from strom.testing.backends import spilling
from strom.testing.operator_harness import OperatorHarness, OperatorSnapshotTables

GROUPS = 8
FUNCTION = BuiltinWindow((("n", count()), ("s", sum_("v")), ("m", max_("v")), ("a", mean("v"))))
VALUES = BuiltinWindow(
    (
        ("n", count()),
        ("d", count_distinct("v")),
        ("e", count_distinct("t")),
        ("c", collect("t")),
        ("f", first("t")),
        ("l", largest("v", 3)),
        ("m", min_("t")),
        ("p", approx_count_distinct("t")),
    )
)
KINDS: dict[str, Any] = {
    "fixed": lambda: EventTimeSessionWindows.with_gap(9),
    "each": lambda: EventTimeSessionWindows.with_dynamic_gap("gap"),
    "clock": lambda: ProcessingTimeSessionWindows.with_gap(9),
    "each by the clock": lambda: ProcessingTimeSessionWindows.with_dynamic_gap("gap"),
}
KEYS: dict[str, tuple[pa.DataType, Any]] = {
    "whole": (pa.int64(), lambda n: None if n == 3 else n * 2**40 - 5),
    "small": (pa.int16(), lambda n: n),
    "text": (pa.string(), lambda n: None if n == 3 else "ä" * (n % 4) + str(n)),
    "codes": (pa.dictionary(pa.int32(), pa.string()), lambda n: f"key {n}"),
    "bytes": (pa.binary(), lambda n: b"\0" * (n % 3) + str(n).encode()),
}
OBJECTS: dict[str, Any] = {
    "texts": lambda row: None if row.k == 3 else f"user {row.k}",
    "tuples": lambda row: (row.k, row.k % 7),
    "floats": lambda row: row.k / 4,
    "dates": lambda row: dt.date.fromordinal(row.k + 700_000),
}


class Both:
    """The operator twice, in memory and with so many bytes of caches."""

    def __init__(
        self,
        seed: int,
        kind: str,
        key: str,
        lateness: int,
        kept: int,
        function: BuiltinWindow = FUNCTION,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.key = KEYS.get(key, KEYS["small"])
        names = ("k", "g") if key == "whole" else ("k",)
        keys = FunctionKey(OBJECTS[key]) if key in OBJECTS else ColumnKey(names)
        self.clock = "clock" in kind
        self.spec = WindowSpec(keys, KINDS[kind](), function, allowed_lateness_ms=lateness)
        self.states = (StateConfig(), spilling(kept))
        self.harnesses = [self.made(state) for state in self.states]
        self.now = 0
        self.closed: list[OperatorHarness] = []

    def made(self, state: StateConfig, **settings: Any) -> OperatorHarness:
        config = JobConfig(batch_size=8, max_parallelism=GROUPS, state=state)
        operator = make_window_operator(self.spec)
        return OperatorHarness(operator, config=config, max_parallelism=GROUPS, **settings)

    def batch(self) -> ColumnBatch:
        rng, (kind, key_of) = self.rng, self.key
        size = int(rng.choice([1, 5, 30, 200]))
        numbers = rng.integers(0, rng.choice([5, 60, 600]), size).tolist()
        times = self.now + rng.integers(-30, 40, size)
        texts = [None, "", *("t" * n for n in range(1, 8))]
        columns = {
            "k": pa.array([key_of(n) for n in numbers], kind),
            "g": pa.array([n % 7 for n in numbers], pa.int32()),
            "gap": pa.array(rng.integers(1, 25, size), pa.int32()),
            "v": pa.array([None if n % 11 == 0 else n for n in numbers], pa.int64()),
            "t": pa.array([texts[n] for n in rng.integers(0, 9, size)], pa.string()),
        }
        return ColumnBatch(pa.record_batch(columns), times.astype(np.int64))

    def step(self) -> None:
        what = self.rng.choice(["push", "push", "push", "time", "time", "jump", "restore", "swap"])
        if what == "push":
            batch = self.batch()
            for harness in self.harnesses:
                harness.push(batch)
        elif what in ("time", "jump"):
            self.now += int(self.rng.integers(1, 12 if what == "time" else 90))
            for harness in self.harnesses:
                if self.clock:
                    harness.advance_processing_time(self.now)
                else:
                    harness.watermark(self.now)
        else:
            self.restore(swap=what == "swap")
        self.check()

    def restore(self, swap: bool) -> None:
        """Each from its own snapshot, or from the other's."""
        taken = [harness.snapshot() for harness in self.harnesses]
        assert rows_of(taken[0]) == rows_of(taken[1])
        self.close()
        if swap:
            taken.reverse()
        pairs = zip(self.states, taken, strict=True)
        self.harnesses = [self.made(state, restored=one) for state, one in pairs]

    def check(self) -> None:
        memory, rocksdb = self.harnesses
        assert rocksdb.stamped_outputs() == memory.stamped_outputs()
        assert rocksdb.metrics.counts == memory.metrics.counts
        for harness in self.harnesses:
            cast(Any, harness.operator).validate()
        table = table_of(rocksdb)
        if table is not None:
            table.validate()

    def finish(self) -> None:
        for harness in self.harnesses:
            harness.finish()
        self.check()
        self.close()

    def close(self) -> None:
        for harness in self.harnesses:
            harness.close()


def table_of(harness: OperatorHarness) -> ColdEntryTable | None:
    store = getattr(cast(Any, harness.operator).windower, "_store", None)
    if store is None:
        return None
    assert isinstance(store._table, ColdEntryTable)
    return store._table


def rows_of(snapshot: OperatorSnapshotTables) -> Counter[Any]:
    """All sessions that it holds, whichever tables they are in; each sorted by key group. But for
    lists, which may hold what is not needed any more."""
    found: Counter[Any] = Counter()
    for table in snapshot.keyed:
        if table.name == "sessions":
            assert table.kind == "entries"
            groups = table.data.column("__key_group").to_numpy()
            assert (np.diff(groups) >= 0).all()
            kinds = [(field.name, field.type) for field in table.data.schema]
            same = [name for name, kind in kinds if not pa.types.is_large_list(kind)]
            found.update(tuple(sorted(row.items())) for row in table.data.select(same).to_pylist())
    return found


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many keys were put into RocksDB each time."""
    counts: list[int] = []
    send = ColdEntryTable._send

    def counted(self: Any, table: Any, numbers: Any, *others: Any) -> None:
        send(self, table, numbers, *others)
        counts.append(len(numbers))

    monkeypatch.setattr(ColdEntryTable, "_send", counted)
    yield counts
    assert sum(counts) > 0


@pytest.mark.parametrize(
    ("seed", "kind", "lateness"),
    [
        (seed, kind, lateness)
        for seed in range(2)
        for place, kind in enumerate(KINDS)
        for how, lateness in enumerate([0, 7, 60])
        if met(seed, place, how, part=2)
    ],
)
def test_sessions_give_what_they_give_in_memory(
    seed: int, kind: str, lateness: int, sent: list[int]
) -> None:
    kept = (8, 24 << 10)[seed]
    key = list(KEYS)[(seed + list(KINDS).index(kind) + lateness) % len(KEYS)]
    both = Both(seed, kind, key, lateness, kept)
    for _ in range(60):
        both.step()
    both.finish()


@pytest.mark.parametrize(("kind", "key"), pairs(KINDS, OBJECTS))
def test_sessions_of_objects_give_what_they_give_in_memory(
    kind: str, key: str, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codes are given to other keys as soon as can be."""
    monkeypatch.setattr("strom.state.object_keys.FIRST_LIMIT", 2)
    monkeypatch.setattr("strom.state.live_keys.FIRST_LIMIT", 2)
    seed = list(KINDS).index(kind) + list(OBJECTS).index(key)
    both = Both(seed, kind, key, (0, 7, 60)[seed % 3], (8, 24 << 10)[seed % 2])
    for _ in range(40):
        both.step()
    both.finish()


@pytest.mark.parametrize(("kind", "key"), pairs(KINDS, ["whole", "text", "texts"]))
def test_sessions_with_values_give_what_they_give_in_memory(
    kind: str, key: str, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strom.state.value_store.FIRST_LIMIT", 20)
    seed = list(KINDS).index(kind)
    kept = (8, 40 << 10)[seed % 2]
    both = Both(seed, kind, key, (0, 7, 60)[seed % 3], kept, VALUES)
    for _ in range(40):
        both.step()
    both.finish()


def records(keys: range, time: int) -> ColumnBatch:
    data = pa.record_batch({"k": pa.array([*keys]), "v": pa.array([*keys])})
    return ColumnBatch(data, np.full(len(keys), time, np.int64))


@pytest.mark.parametrize("state", [StateConfig(), spilling(8), spilling(16 << 10)], ids=repr)
@pytest.mark.parametrize("lateness", [0, 20])
def test_a_snapshot_at_any_pause_holds_what_is_missing(lateness: int, state: StateConfig) -> None:
    """Keys below 10 have fired, and are over by the watermark at which the others fire: a record
    that comes then is late, and does not find them."""
    spec = WindowSpec(ColumnKey(("k",)), KINDS["fixed"](), FUNCTION, allowed_lateness_ms=lateness)
    config = JobConfig(batch_size=5, max_parallelism=PAUSE_GROUPS, state=state)

    def make(**settings: Any) -> OperatorHarness:
        operator = make_window_operator(spec)
        return OperatorHarness(operator, config=config, max_parallelism=PAUSE_GROUPS, **settings)

    before = [(0, records(range(10), 0)), 12, (0, records(range(10, 60), 20))]
    after = [(0, records(range(40), 9)), (0, records(range(60), 38)), 90]
    assert check_pauses(make, spec.key, before, 40, after) >= 2


def keyed_by(record: Any) -> str:
    return f"user {record.k}"


@pytest.mark.parametrize(
    ("key", "function", "keys"),
    [
        (ColumnKey(("k",)), FUNCTION, 20_000),
        (FunctionKey(keyed_by), FUNCTION, 14_000),
        (ColumnKey(("k",)), BuiltinWindow((("n", count()), ("c", collect("v")))), 14_000),
    ],
    ids=["numbers", "objects", "values"],
)
def test_memory_is_bounded_whatever_the_number_of_sessions(
    key: Any, function: BuiltinWindow, keys: int
) -> None:
    """Under 256 KB, while records come, at one watermark that ends all, and after a restore from
    what was in memory. Of keys that are objects, as many are known as before none is forgotten, and
    those of a batch."""
    kept = 256 << 10
    spec = WindowSpec(key, EventTimeSessionWindows.with_gap(500_000), function)

    def made(state: StateConfig, **settings: Any) -> OperatorHarness:
        config = JobConfig(batch_size=1000, state=state)
        return OperatorHarness(make_window_operator(spec), config=config, **settings)

    def bounded(harness: OperatorHarness) -> None:
        table = table_of(harness)
        if table is not None:
            assert table.used < 2 * kept
            assert len(harness.keyed_state.object_keys("")) < 3 * FIRST_LIMIT

    memory, cold = made(StateConfig()), made(spilling(kept))
    for start in range(0, keys, 2000):
        data = records(range(start, start + 2000), 0).data
        batch = ColumnBatch(data, np.arange(start, start + 2000) // 100)
        for harness in (memory, cold):
            harness.push(batch)
        bounded(cold)
    restored = made(spilling(kept), restored=memory.snapshot())
    memory.watermark(10**9)
    expected = memory.outputs()
    assert len(expected) == keys
    for harness in (cold, restored):
        bounded(harness)
        figures: dict[str, float] = {}
        harness.keyed_state.report(figures.__setitem__)
        assert figures["state.entries.spilled"] > keys * 0.9
        harness.pausing = True
        harness.watermark(10**9)
        while harness.busy:
            bounded(harness)
            harness.resume()
        assert harness.outputs() == expected
        harness.close()


@pytest.mark.parametrize("key", [lambda row: row.k, lambda row: (row.k, 1)], ids=["int", "tuple"])
def test_another_job_is_told_of_what_type_keys_were(key: Any) -> None:
    """Though all that it restores is away."""

    def made(key: Any, **settings: Any) -> OperatorHarness:
        spec = WindowSpec(FunctionKey(key), KINDS["fixed"](), FUNCTION)
        config = JobConfig(state=spilling(8))
        return OperatorHarness(make_window_operator(spec), config=config, **settings)

    first_job = made(key)
    first_job.push(records(range(50), 0))
    taken = first_job.snapshot()
    first_job.close()
    for other, fits in ((key, True), (lambda row: f"user {row.k}", False)):
        second_job = made(other, restored=taken, of_another_job=True)
        table = table_of(second_job)
        assert table is not None
        assert table.keys_away == 50
        if fits:
            second_job.push(records(range(3), 5))
            second_job.watermark(100)
            assert len(second_job.outputs()) == 50
        else:
            with pytest.raises(StateError, match="was stored under keys of type"):
                second_job.push(records(range(3), 5))
        second_job.close()
