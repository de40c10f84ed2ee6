"""A job whose local RocksDB cannot write, as a process of its own, whose files may be so large and
no larger: `python full_disk_job.py <local folder> <state>`. Prints why it failed.
"""

from __future__ import annotations

import random
import resource
import sys
from typing import Any

import pyarrow as pa
from strom import KeyedProcessFunction, MapStateDescriptor, RuntimeContext
from strom.connectors.datagen import DataGenSource
from strom.core.config import JobConfig, NoRestart
from strom.core.errors import JobFailedError
from strom.core.state_config import StateConfig
from strom.testing.equivalence import run_local

COUNT = 6_000
LARGEST = 100_000
SCHEMA = pa.schema([("key", pa.int64()), ("text", pa.string())])


def generate(first: int, number: int) -> list[tuple[int, str]]:
    drawn = random.Random(first)
    return [(n, drawn.randbytes(150).hex()) for n in range(first, first + number)]


class Held(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.texts = runtime_context.get_map_state(MapStateDescriptor("texts"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.texts.put(1, value.text)
        yield value.key


def build(env: Any, state: str) -> Any:
    source = DataGenSource(generate, count=COUNT, splits=1, schema=SCHEMA, block=64)
    keyed = env.from_source(source, None, "texts").key_by("key")
    if state == "rows":
        return keyed.deduplicate("last").map(lambda row: row.key).name("kept")
    return keyed.process(Held()).name("kept")


def main(local: str, state: str) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, LARGEST))
    config = StateConfig(
        "rocksdb", memory=(1 << 20) + 4096, rocksdb_share=1 - 4e-3, local_dirs=(local,)
    )
    try:
        run_local(lambda env: build(env, state), JobConfig(state=config, restart=NoRestart()))
    except JobFailedError as error:
        print(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
