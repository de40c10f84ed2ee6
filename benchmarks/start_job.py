"""The job of `start`, in a module of its own: its processes import what a program of this size
would, and not all that benchmarks do."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from strom import (
    DiscardSink,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from strom.connectors.datagen import DataGenSource

RATE: Final = 1_000

KEY_VALUE: Final = pa.schema([("k", pa.int64()), ("v", pa.int64())])


class Noted(KeyedProcessFunction):
    """Leaves a file that says when the first record came to this attempt of a subtask."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        attempt = runtime_context.get_attempt_number()
        subtask = runtime_context.get_index_of_this_subtask()
        self._path = Path(self._folder, f"{attempt}-{subtask}-{os.getpid()}")
        self._first = True

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        if self._first:
            self._first = False
            made = self._path.with_name(f".{self._path.name}")
            made.write_text(repr(time.time()))
            made.rename(self._path)
        yield value


def define(env: StreamExecutionEnvironment, notes: Path, splits: int) -> None:
    """Of an endless job that leaves `Noted`'s files in `notes`."""
    source = DataGenSource(_records, splits=splits, schema=KEY_VALUE, rate=RATE)
    noted = env.from_source(source, source_name="keys").key_by("k").process(Noted(str(notes)))
    noted.sink_to(DiscardSink())


def _records(start: int, count: int) -> pa.RecordBatch:
    numbers = np.arange(start, start + count)
    return pa.RecordBatch.from_arrays([pa.array(numbers), pa.array(numbers)], schema=KEY_VALUE)
