"""A case run as a job in which a function of the program's raises.

Each time, the job has to fail with an error that names the operator, the exception and the line; it
must not end with fewer records. Raised once, the function is called again after a restart, and the
results are the model's. What is drawn here is drawn apart from the case, which stays what it was.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...api.functions.async_functions import AsyncFunction
from ...api.functions.user_functions import AllWindowFunction, MapFunction, ProcessFunction
from ...api.streams.async_data_stream import AsyncDataStream
from ...api.streams.data_stream import DataStream, StreamExecutionEnvironment
from ...api.windows.evictors import Evictor
from ...api.windows.time_windows import GlobalWindows
from ...api.windows.triggers import CountTrigger, PurgingTrigger
from ...core.config import JobConfig, NoRestart
from ...core.errors import JobFailedError
from ..equivalence import WATERMARK_INTERVAL, Ways, checkpointed, run_local
from ..scripted import ScriptedSource
from .asking import order_free
from .cases import Case
from .programs import filtered, program, strategy

ERRORS = ("StopIteration", "ValueError", "KeyError", "GeneratorExit", "SystemExit")
BEHIND = ("result", "evictor")
PLACES = (
    *("map", "object", "flat_map", "generator", "filter", "process", "key", "time", *BEHIND),
    *("asked", "timeout"),
)
"""Which function raises: "time" assigns timestamps, those of BEHIND are behind the case's operator,
"asked" and "timeout" are an AsyncFunction's."""

NAME = "it"
"""The operator that is to be named."""

_raised: dict[str, int] = {}
"""How often each fault has raised; here, because every attempt has a copy of the function."""


@dataclass(frozen=True)
class Fault:
    """`at`: the record's number (column n); behind the operator, the first result raises. `once`:
    and never again."""

    place: str
    error: str
    at: int
    once: bool
    token: str = field(default_factory=lambda: f"{random.getrandbits(64):x}")

    @property
    def raised(self) -> int:
        return _raised.get(self.token, 0)

    def forget(self) -> None:
        _raised.pop(self.token, None)

    def trip(self, number: int) -> None:
        """Called with each record's number."""
        if number != self.at or (self.once and self.raised):
            return
        _raised[self.token] = self.raised + 1
        match self.error:
            case "StopIteration":
                next(iter(()))
            case "ValueError":
                raise ValueError("drawn")
            case "KeyError":
                raise KeyError("drawn")
            case "GeneratorExit":
                raise GeneratorExit("drawn")
        raise SystemExit(3)


def draw_faults(case: Case) -> list[Fault]:
    """One that always raises and one that does once."""
    rng = random.Random(f"faults of {case.seed}")
    numbers = case.data.column("n").to_pylist()
    return [
        Fault(rng.choice(_places(case, once)), rng.choice(ERRORS), rng.choice(numbers), once)
        for once in (False, True)
    ]


def _places(case: Case, once: bool) -> list[str]:
    """Where it may raise: after a restart, what was in flight may come behind later records."""
    keeps_order = not once or order_free(case)
    return [place for place in PLACES if keeps_order or place not in ("asked", "timeout")]


class Identity(MapFunction):
    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    def map(self, value: Any) -> Any:
        self.fault.trip(value.n)
        return value


class First(MapFunction):
    """Raises at its first record, whatever that is."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    def map(self, value: Any) -> Any:
        self.fault.trip(self.fault.at)
        return value


class Firing(Evictor[Any, Any]):
    """Raises at the first firing."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    def evict_before(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        self.fault.trip(self.fault.at)

    def evict_after(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        """Takes nothing."""


class All(AllWindowFunction):
    """What windows hold."""

    def apply(self, window: Any, inputs: Any) -> Any:
        return inputs


class Asks(AsyncFunction[Any, Any]):
    """Gives each record back; raises while asking, or of the record when its time is over."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    async def async_invoke(self, value: Any) -> list[Any]:
        if self.fault.place == "asked":
            self.fault.trip(value.n)
        elif value.n == self.fault.at:
            await asyncio.sleep(3600)
        return [value]

    def timeout(self, value: Any) -> list[Any]:
        self.fault.trip(value.n)
        return [value]


class Process(ProcessFunction):
    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.fault.trip(value.n)
        yield value


def through(case: Case, fault: Fault, records: DataStream) -> DataStream:
    """The records, by way of the function that raises."""
    trip, schema = fault.trip, case.data.schema

    def same(row: Any) -> Any:
        trip(row.n)
        return row

    def generate(row: Any) -> Iterator[Any]:
        trip(row.n)
        yield row

    def key(row: Any) -> int:
        trip(row.n)
        return 0

    match fault.place:
        case "map":
            return records.map(same, schema).name(NAME)
        case "object":
            return records.map(Identity(fault), schema).name(NAME)
        case "flat_map":
            return records.flat_map(lambda row: [same(row)], schema).name(NAME)
        case "generator":
            return records.flat_map(generate, schema).name(NAME)
        case "filter":
            return records.filter(lambda row: same(row) is not None).name(NAME)
        case "process":
            return records.process(Process(fault), schema).name(NAME)
        case "asked" | "timeout":
            asks, limit = Asks(fault), 20 if fault.place == "timeout" else 0
            return AsyncDataStream.ordered_wait(records, asks, limit, 3, schema).name(NAME)
        case "key":  # the exchange makes keys, in the operator ahead of it
            ahead = records.map(lambda row: row, schema).name(NAME)
            return ahead.key_by(key).map(lambda row: row, schema)
        case "time":
            times = case.data.column("ts").to_pylist()

            def assign(row: Any, _: int) -> int:
                trip(row.n)
                return int(row.ts)

            every = strategy(max(times) - min(times)).with_timestamp_assigner(assign)
            return records.assign_timestamps_and_watermarks(every).name(NAME)
    return records


def build(
    case: Case, fault: Fault, lanes: list[list[Any]], slack: int, env: StreamExecutionEnvironment
) -> DataStream:
    """The case as a program with the fault in it."""
    source = ScriptedSource(lanes, case.data.schema)
    timed = None if fault.place == "time" else strategy(slack)
    records = through(case, fault, env.from_source(source, timed, "records"))
    stream = program(case, filtered(case, records))
    match fault.place:
        case "result":
            return stream.map(First(fault)).name(NAME)
        case "evictor":  # rows as Python objects: a changelog is none there
            rows = stream.map(lambda row: row).window_all(GlobalWindows.create())
            each = rows.trigger(PurgingTrigger.of(CountTrigger.of(1)))
            return each.evictor(Firing(fault)).apply(All()).name(NAME)
    return stream


def results_after(case: Case, fault: Fault, lanes: list[list[Any]], slack: int) -> list[Any] | None:
    """What the job gives that meets the fault; see `outcome_of`."""
    return outcome_of(fault, lambda env: build(case, fault, lanes, slack, env), 1 + case.seed % 7)


def outcome_of(
    fault: Fault, build: Callable[[StreamExecutionEnvironment], DataStream], batch_size: int
) -> list[Any] | None:
    """What the job gives that meets the fault; None if it failed as it has to. AssertionError if it
    ends otherwise: it finishes, or does not say where and of what it failed."""
    try:
        rows = run_local(build, _config(fault, batch_size))
    except JobFailedError as error:
        text = str(error)
        named = f"operator '{NAME}', subtask" in text and fault.error in text
        named = named and f"(at {__file__}:" in text
        if not fault.once and fault.raised and named:
            return None
        raise AssertionError(f"{fault}: the job failed, and says: {text}") from error
    else:
        if fault.raised and not fault.once:
            raise AssertionError(f"{fault}: the job finished with {len(rows)} records")
        return rows
    finally:
        fault.forget()


def _config(fault: Fault, batch_size: int) -> JobConfig:
    if fault.once:
        return checkpointed(Ways(batch_size=batch_size), 2)
    return JobConfig(
        parallelism=2,
        batch_size=batch_size,
        auto_watermark_interval=WATERMARK_INTERVAL,
        restart=NoRestart(),
    )
