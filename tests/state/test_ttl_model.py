"""State with a time to live against a plain model: all kinds, both times, at any parallelism."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from reference_ttl import ExpiringModel
from strom.core.clock import VirtualClock
from strom.state.backend import KEY_GROUP, StateTable
from strom.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from strom.state.key_groups import key_group, range_for
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.ttl import StateTtlConfig

GROUPS = 8
TTL = 10
OPERATIONS = {
    "value": ["read", "write", "clear"],
    "list": ["read", "write", "replace", "clear"],
    "map": ["read", "get", "write", "remove", "empty", "clear"],
    "reducing": ["read", "write", "clear"],
    "aggregating": ["read", "write", "clear"],
}


class Mean:
    def create_accumulator(self) -> Any:
        return (0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]


def described(kind: str, config: StateTtlConfig) -> Any:
    made: Any = {
        "value": lambda: ValueStateDescriptor("s"),
        "list": lambda: ListStateDescriptor("s"),
        "map": lambda: MapStateDescriptor("s"),
        "reducing": lambda: ReducingStateDescriptor("s", lambda a, b: a + b),
        "aggregating": lambda: AggregatingStateDescriptor("s", Mean()),
    }[kind]()
    made.enable_time_to_live(config)
    return made


def call(kind: str, state: Any, operation: str, argument: Any) -> Any:
    """The operation of the model, on the state itself."""
    calls: dict[tuple[str, str], Callable[[], Any]] = {
        ("value", "read"): lambda: state.value(),
        ("value", "write"): lambda: state.update(argument),
        ("list", "read"): lambda: list(state),
        ("list", "write"): lambda: state.add(argument),
        ("list", "replace"): lambda: state.update([argument, argument + 1]),
        ("map", "read"): lambda: dict(state.items()),
        ("map", "get"): lambda: state[argument % 3],
        ("map", "write"): lambda: state.put(argument % 3, argument),
        ("map", "remove"): lambda: state.remove(argument % 3),
        ("map", "empty"): lambda: state.is_empty(),
        ("reducing", "read"): lambda: state.get(),
        ("reducing", "write"): lambda: state.add(argument),
        ("aggregating", "read"): lambda: state.get(),
        ("aggregating", "write"): lambda: state.add(argument),
    }
    return state.clear() if operation == "clear" else calls[kind, operation]()


class Job:
    """The backends of all subtasks, and the time they go by."""

    def __init__(self, kind: str, event: bool, on_read: bool) -> None:
        builder = StateTtlConfig.new_builder(TTL)
        if event:
            builder.use_event_time()
        if on_read:
            builder.update_ttl_on_read_and_write()
        self.kind = kind
        self.event = event
        self.descriptor = described(kind, builder.build())
        self.clock = VirtualClock(0)
        self.stamp = 0
        self.watermark: int | None = None
        self.backends: list[MemoryKeyedStateBackend] = []
        self.start(1, [])

    def start(self, parallelism: int, tables: list[StateTable]) -> None:
        self.backends = []
        for subtask in range(parallelism):
            groups = range_for(subtask, parallelism, GROUPS)
            backend = MemoryKeyedStateBackend(groups, GROUPS, self.clock)
            backend.time.stamp_of = lambda: self.stamp
            restored = []
            for table in tables:
                column = table.data.column(KEY_GROUP).to_numpy()
                rows = np.flatnonzero((column >= groups.first) & (column <= groups.last))
                data = table.data.take(pa.array(rows))
                restored.append(StateTable(table.name, table.kind, data, table.metadata))
            backend.restore(restored)
            self.backends.append(backend)

    def rescale(self, parallelism: int) -> None:
        self.start(parallelism, [t for b in self.backends for t in b.snapshot().tables()])

    def state(self, key: str, namespace: Any) -> Any:
        group = key_group(key, GROUPS)
        (backend,) = [b for b in self.backends if group in b.key_groups]
        backend.current.key = key
        return backend.namespaced(self.descriptor).of(namespace)

    def now(self) -> int:
        return self.stamp if self.event else self.clock.now_ms()

    def advance(self, by: int, late: int) -> None:
        """The record at hand is `late` ms out of order; the watermark is behind all of them."""
        self.clock.advance_ms(by)
        at = self.clock.now_ms()
        self.stamp = at - late
        self.watermark = at - 8

    def pass_watermark(self) -> None:
        if self.watermark is not None:
            for backend in self.backends:
                backend.time.passed(self.watermark)


def run(kind: str, seed: int) -> None:
    rng = random.Random(f"{kind} {seed}")
    event, on_read, busy = rng.random() < 0.5, rng.random() < 0.5, rng.random() < 0.5
    job = Job(kind, event, on_read)
    models: dict[Any, ExpiringModel] = {}
    keys = rng.choice(["a", "ab"])
    for _ in range(80):
        match rng.choices(["call", "advance", "watermark", "rescale"], [8, 4, 1, 1])[0]:
            case "call":
                key, namespace = rng.choice(keys), rng.choice([None, (0, 5)])
                operation, argument = rng.choice(OPERATIONS[kind]), rng.randrange(100)
                model = models.setdefault((key, namespace), ExpiringModel(kind, TTL, on_read))
                for backend in job.backends if busy else ():
                    backend.time.begin(1)
                result = call(kind, job.state(key, namespace), operation, argument)
                assert result == model.call(operation, argument, job.now())
            case "advance":
                job.advance(rng.choice([1, 2, 4, 5, 9, 10, 25]), rng.choice([0, 0, 4, 7]))
            case "watermark":
                job.pass_watermark()
            case "rescale":
                job.rescale(rng.randint(1, 3))
        for backend in job.backends:
            backend.validate()
    job.advance(1000, 0)
    job.pass_watermark()
    for backend in job.backends:
        backend.time.begin(1000)
        held = [state.spaces for state in backend.time.states]  # type: ignore[attr-defined]
        assert all(spaces == {None: {}} for spaces in held)


@pytest.mark.parametrize("kind", OPERATIONS)
def test_every_kind_is_as_its_model(kind: str) -> None:
    for seed in range(40):
        try:
            run(kind, seed)
        except BaseException as error:
            error.add_note(f"run({kind!r}, {seed})")
            raise
