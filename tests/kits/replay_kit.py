"""A job that fails and is recorded."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from strom import (
    JobConfig,
    JobFailedError,
    KeyedProcessFunction,
    RestartStrategies,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
from strom.engine.task import recorder


class Sums(KeyedProcessFunction):
    LIMIT: Any = 3_000

    def open(self, runtime_context: Any) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum"))

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        if self.LIMIT is not None and value == self.LIMIT:
            raise ValueError(f"{value} is too much")
        self.sum.update((self.sum.value() or 0) + value)
        yield value % 4, self.sum.value()


class Unlimited(Sums):
    LIMIT = None


def program(env: StreamExecutionEnvironment, function: Sums, count: int = 4_000) -> None:
    numbers = env.from_collection(list(range(1, count + 1)))
    numbers.key_by(lambda n: n % 4).process(function).uid("sums").map(str).uid("texts").print()


def environment(**config: Any) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment(JobConfig(batch_size=50, **config))
    env.set_restart_strategy(RestartStrategies.no_restart())
    return env


def record(path: Path, function: Sums, **config: Any) -> None:
    env = environment(**config)
    env.enable_checkpointing(timedelta(milliseconds=50))
    env.record(str(path), ["sums"])
    program(env, function)
    logging.getLogger("strom").setLevel(logging.CRITICAL)
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(recorder, "PART_BYTES", 2_000)  # several parts, however fast it is
            with pytest.raises(JobFailedError, match="3000 is too much"):
                env.execute("sums")
    finally:
        logging.getLogger("strom").setLevel(logging.NOTSET)
