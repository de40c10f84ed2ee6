"""A case run as whole jobs: alone, crashed in the simulator, continued at another parallelism, and
with a function that raises."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime
from typing import Any

import pyarrow as pa

from ...api.streams.data_stream import DataStream, StreamExecutionEnvironment
from ...api.watermarks import WatermarkStrategy
from ...api.windows.session_windows import EventTimeSessionWindows
from ...core.config import JobConfig
from ...core.row import make_row
from ...core.union_type import OfKind, UnionType
from ..equivalence import (
    WATERMARK_INTERVAL,
    Ways,
    checkpointed,
    run_crashing,
    run_interrupted,
    run_on_host,
)
from ..scripted import ScriptedSource
from .asking import asked
from .cases import Case, Table, Windows
from .claims import ClaimingProbe
from .comparing import plain, plain_rows
from .folds import Record
from .model import model_result
from .poison import poisoned
from .programs import filtered, program, strategy
from .raising import draw_faults, results_after
from .results import Result, fires_again

LANES = 4


def job_results(case: Case) -> Iterator[tuple[str, Case, Result, Result]]:
    """The pipeline with watermarks behind which nothing is late (see `_apart`); every key in a lane
    of its own, so that its records come in one order."""
    operation = case.operation
    if isinstance(operation, Windows) and fires_again(operation):
        return
    in_time = Case(**{**case.__dict__, "script": [("rows", 0, case.data.num_rows)]})
    expected = model_result(in_time)
    assert expected is not None
    lanes = _lanes(case)
    slack = max(max(_lag(lane) for lane in lanes), 0) + _apart(operation)

    def build(env: StreamExecutionEnvironment) -> Any:
        records = asked(case, _records(case, env, lanes, strategy(slack)))
        records = poisoned(case, records)
        return program(case, filtered(case, records))

    ways = Ways(seeds=[case.seed], batch_size=1 + case.seed % 7, insist=False)
    probe = ClaimingProbe(build)
    config = JobConfig(auto_watermark_interval=WATERMARK_INTERVAL)
    with probe.watched():
        found = {"alone": run_on_host(lambda: nullcontext(probe), config)}
    probe = ClaimingProbe(build)
    with probe.watched():
        found["crashed"], _ = run_crashing(
            lambda: nullcontext(probe), checkpointed(ways, 3), ways, case.seed
        )
    probe = ClaimingProbe(build)
    with probe.watched():
        found["interrupted"], _ = run_interrupted(lambda: nullcontext(probe), ways, case.seed)
    sources = [_rows(case, lane) for lane in lanes]
    for fault in draw_faults(case):
        after = results_after(case, fault, sources, slack)
        if after is not None:
            found[f"raised, {fault}"] = after
    for way, rows in found.items():
        yield way, in_time, expected, Result(plain_rows(rows))


def _records(
    case: Case, env: StreamExecutionEnvironment, lanes: list[list[Record]], times: WatermarkStrategy
) -> DataStream:
    """The records as a source gives them: some as one kind of a stream of several."""
    rows = [_rows(case, lane) for lane in lanes]
    if not case.mixed:
        return env.from_source(ScriptedSource(rows, case.data.schema), times, "records")
    ticks = pa.struct([("at", pa.timestamp("ms"))])
    events = UnionType.of({"tick": ticks, "record": pa.struct(list(case.data.schema))})
    schema = pa.schema([("event", events), ("ts", pa.int64())])
    rng = random.Random(f"mixed {case.seed}")
    mixed = env.from_source(ScriptedSource([_mixed(rng, lane) for lane in rows], schema), times)
    records = mixed.of_kind("record")
    return records.start_new_chain() if rng.random() < 0.5 else records


def _mixed(rng: random.Random, rows: list[Any]) -> list[Any]:
    """With others between them, at the same times."""
    mixed: list[Any] = []
    for row in rows:
        others = [None, OfKind("tick", {"at": None}), OfKind("tick", {"at": datetime(2026, 1, 2)})]
        for event in [*rng.choices(others, k=rng.choice([0, 0, 1, 3])), OfKind("record", row)]:
            mixed.append(make_row(("event", "ts"), (event, row["ts"])))
    return mixed


def _apart(operation: Windows | Table) -> int:
    """How much further watermarks have to keep behind records than for none to be late. A record
    whose time is the end of a session of its key joins it, while that is open. If the watermark is
    a millisecond less, the record is not late, but the session may have fired: what a job gives
    then depends on when watermarks were sent, in Flink too."""
    sessions = isinstance(operation, Windows) and isinstance(
        operation.assigner, EventTimeSessionWindows
    )
    return int(sessions)


def _lanes(case: Case) -> list[list[Record]]:
    lanes: list[list[Record]] = [[] for _ in range(LANES)]
    for record in case.records:
        key = repr([plain(record[name]) for name in case.key])
        lanes[zlib.crc32(key.encode()) % LANES].append(record)
    return lanes


def _lag(lane: list[Record]) -> int:
    newest, lag = -(2**62), 0
    for record in lane:
        newest = max(newest, record["ts"])
        lag = max(lag, newest - record["ts"])
    return lag


def _rows(case: Case, lane: list[Record]) -> list[Any]:
    names = tuple(case.data.schema.names)
    return [make_row(names, tuple(record.values())) for record in lane]
