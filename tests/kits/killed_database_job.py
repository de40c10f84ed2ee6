"""A job whose state lies in RocksDB, as a process of its own that may be killed at any moment:
`python killed_database_job.py <checkpoints> <local folder> <result> [<restore from>]`.

Some records make it fail, so that it goes on from the files of its own checkpoints, too. When all
have come, what its state holds of each key is in the result.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from strom import KeyedProcessFunction, RuntimeContext, ValueStateDescriptor
from strom.connectors.datagen import DataGenSource
from strom.core.state_config import StateConfig
from strom.testing.equivalence import Ways, checkpointed, run_local

COUNT, KEYS, RATE = 6_000, 500, 2_000
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64())])
FAILS = 1 / 1_500


def key_of(n: int) -> str:
    return f"k{n % KEYS if n % 3 else n % 7}"


def generate(first: int, number: int) -> list[tuple[str, int]]:
    return [(key_of(n), n) for n in range(first, first + number)]


def expected() -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for n in range(COUNT):
        known = found.setdefault(key_of(n), [0, 0])
        known[0] += 1
        known[1] += n
    return found


class Totals(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.totals = runtime_context.get_state(ValueStateDescriptor("totals"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        if random.random() < FAILS:
            raise RuntimeError("as it happens")
        number, total = self.totals.value() or (0, 0)
        self.totals.update((number + 1, total + value.value))
        yield ctx.get_current_key(), number + 1, total + value.value


def build(env: Any) -> Any:
    source = DataGenSource(generate, count=COUNT, splits=1, schema=SCHEMA, block=16, rate=RATE)
    records = env.from_source(source, None, "records").key_by("key")
    sums = records.sum("value").map(lambda row: (row.key, row.value))
    return {"totals": records.process(Totals()), "sums": sums}


def main(checkpoints: str, local: str, result: str, restore_from: str | None = None) -> None:
    config = checkpointed(Ways(batch_size=64), 2)
    kept = replace(
        config.checkpoint, storage=checkpoints, interval=timedelta(milliseconds=15), retained=2
    )
    state = StateConfig("rocksdb", memory=8 << 20, rocksdb_share=1 - 4e-4, local_dirs=(local,))
    config = replace(config, checkpoint=kept, state=state, restore_from=restore_from)
    found: dict[str, list[int]] = {}
    sums: dict[str, int] = {}
    for name, row in run_local(build, config):
        if name == "totals":
            found[row[0]] = max(found.get(row[0], [0, 0]), list(row[1:]))
        else:
            sums[row[0]] = max(sums.get(row[0], 0), row[1])
    Path(result).write_text(json.dumps([found, sums]))


if __name__ == "__main__":
    main(*sys.argv[1:])
