"""A job whose state is many times its memory, killed and started again: `make soak-state`.

    python tests/kits/state_soak.py [--state-mb 5120] [--memory-mb 512] [--kills 2] [--rounds 3]

Every key is visited once a round, in an order of its own, and its running sums come out each time:
the n-th time they have to be n times the key's numbers. What came out is counted in state, too, so
that after all failures each key has come out each number of times once, with the right sums.

The job runs in a process of its own, which is killed without warning when checkpoints are complete,
and goes on from the newest one. Meanwhile its memory is measured. Prints a JSON line for the whole;
exits with 1 if anything was wrong, or the process took more than `rss_limit` of memory.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from leashed_source import LeashedNumbers
from strom import StreamExecutionEnvironment, count, sum_
from strom.core.config import CheckpointConfig, JobConfig, NoRestart
from strom.core.state_config import StateConfig

SUMS = 12
ROW_BYTES = 8 + 18 * (SUMS + 1)
"""Of a key: the key, and of each aggregate a sum, a count, and whether there are any."""

BESIDE_MB = 700
"""Of a process whose state has no memory at all: libraries, batches under way, checkpoints being
written, what allocators keep. 570 were found."""

STEP = 1_000_003
"""Keys of a round follow each other at this distance."""


@dataclass(frozen=True)
class Plan:
    keys: int
    rounds: int
    memory: int
    folder: str
    parallelism: int
    interval_s: float
    batch_size: int = 16384

    @property
    def records(self) -> int:
        return self.keys * self.rounds

    @property
    def release(self) -> Path:
        """Once this file is there the source may end: nothing is killed any more."""
        return Path(self.folder, "release")


def records_of(keys: int) -> Callable[[int, int], pa.RecordBatch]:
    """What the source gives: the numbers of a key are the same each time."""
    step = next(s for s in range(STEP, 2 * STEP) if np.gcd(s, keys) == 1)

    def records(start: int, size: int) -> pa.RecordBatch:
        number = np.arange(start, start + size)
        key = ((number % keys) * step + number // keys * 7919) % keys
        columns = {"k": key, **{f"v{i}": key * (i + 1) % 1009 for i in range(SUMS)}}
        return pa.RecordBatch.from_pydict(columns)

    return records


def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """How many sums are wrong, by how often the key has come."""
    n = batch.column("n")
    wrong = np.zeros(len(batch), dtype=np.int64)
    for i in range(SUMS):
        right = pc.equal(batch.column(f"s{i}"), pc.multiply(n, batch.column(f"v{i}")))
        wrong += ~right.to_numpy(zero_copy_only=False)
    zero = pa.array(np.zeros(len(batch), dtype=np.int64))
    columns = {"all": zero, "n": n, "squares": pc.multiply(n, n), "wrong": wrong}
    return pa.RecordBatch.from_pydict(columns)


def run(plan: Plan, restore_from: str | None) -> dict[str, int]:
    """The job, to its end: what came out, counted."""
    folder = Path(plan.folder)
    config = JobConfig(
        parallelism=plan.parallelism,
        batch_size=plan.batch_size,
        state=StateConfig("rocksdb", plan.memory, local_dirs=(str(folder / "local"),)),
        checkpoint=CheckpointConfig(
            interval=timedelta(seconds=plan.interval_s), storage=str(folder / "checkpoints")
        ),
        restart=NoRestart(),
        restore_from=restore_from,
    )
    env = StreamExecutionEnvironment.get_execution_environment(config)
    # Restored from where all had come out already, a job would have nothing to say.
    source = LeashedNumbers(plan.release, 0, records_of(plan.keys), plan.records)
    sums = {f"s{i}": sum_(f"v{i}") for i in range(SUMS)}
    stream = env.from_source(source).uid("source")
    keyed = stream.key_by("k").over(order="arrival").aggregate(n=count(), **sums).uid("sums")
    found = keyed.map_batches(checked).key_by("all")
    total = found.aggregate(
        rows=count(), n=sum_("n"), squares=sum_("squares"), wrong=sum_("wrong")
    ).uid("total")
    last: dict[str, Any] = {}
    for row in total.execute_and_collect():
        if row.rows > last.get("rows", 0):
            last = {"rows": row.rows, "n": row.n, "squares": row.squares, "wrong": row.wrong}
    return last


def expected(plan: Plan) -> dict[str, int]:
    times = range(1, plan.rounds + 1)
    return {
        "rows": plan.records,
        "n": plan.keys * sum(times),
        "squares": plan.keys * sum(n * n for n in times),
        "wrong": 0,
    }


@dataclass
class Measured:
    found: dict[str, int]
    killed: int
    rss_mb: int
    seconds: float
    left: list[str]
    """What lies in the folder of local databases in the end."""


def soak(plan: Plan, kills: int, limit_s: float) -> Measured:
    """Run the job in processes of their own, of which `kills` are killed; each once it has
    completed a checkpoint of its own. `limit_s`: for all of it."""
    started, killed, most = time.monotonic(), 0, 0
    done: set[Path] = set()
    while True:
        if killed == kills:
            plan.release.touch()
        arguments = [json.dumps(asdict(plan)), *map(str, [newest(plan)] if done else [])]
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                [sys.executable, __file__, "--job", *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            try:
                watched = psutil.Process(process.pid)
                while process.poll() is None:
                    most = max(most, _rss(watched))
                    complete = set(Path(plan.folder, "checkpoints").glob("*/chk-*/manifest.json"))
                    if killed < kills and complete - done:
                        process.kill()
                        killed += 1
                        done |= complete
                    if time.monotonic() - started > limit_s:
                        raise TimeoutError(f"the job was not over after {limit_s} s")
                    time.sleep(0.05)
            finally:
                process.kill()
                output, _ = process.communicate()
            if process.returncode == 0:
                break
            errors.seek(0)
            if process.returncode != -9:
                raise RuntimeError(errors.read()[-4000:])
    left = [path.name for path in Path(plan.folder, "local").iterdir()]
    seconds = time.monotonic() - started
    return Measured(json.loads(output.splitlines()[-1]), killed, most >> 20, seconds, left)


def rss_limit(plan: Plan) -> int:
    """In MB: what the process may take. The budget is of estimates, and allocators keep more."""
    return BESIDE_MB + (plan.memory >> 20) * 3 // 2


def newest(plan: Plan) -> Path:
    """The newest complete checkpoint of all jobs so far."""
    found = Path(plan.folder, "checkpoints").glob("*/chk-*/manifest.json")
    return max(found, key=lambda path: path.stat().st_mtime_ns).parent


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def main() -> int:
    if sys.argv[1:2] == ["--job"]:
        plan = Plan(**json.loads(sys.argv[2]))
        print(json.dumps(run(plan, sys.argv[3] if len(sys.argv) > 3 else None)))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state-mb", type=int, default=5120)
    parser.add_argument("--memory-mb", type=int, default=512)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--interval-s", type=float, default=60.0)
    parser.add_argument("--limit-s", type=float, default=14_400.0)
    parser.add_argument("--parallelism", type=int, default=2)
    given = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="strom-soak-")
    try:
        keys = (given.state_mb << 20) // ROW_BYTES
        memory = given.memory_mb << 20
        plan = Plan(keys, given.rounds, memory, folder, given.parallelism, given.interval_s)
        measured = soak(plan, given.kills, given.limit_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    right = measured.found == expected(plan) and measured.killed == given.kills
    right = right and not measured.left and measured.rss_mb <= rss_limit(plan)
    line = {
        "name": "soak-state",
        "right": right,
        "keys": keys,
        "rss_limit_mb": rss_limit(plan),
        **vars(given),
        **vars(measured),
    }
    line["visits_per_s"] = round(plan.records / measured.seconds)
    print(json.dumps(line))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
