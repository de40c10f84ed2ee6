"""A case run by one operator: on columns, with snapshots and rescales between, behind local
combining, and row by row."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from ...api.specs.records import OperatorSpec
from ...api.specs.tables import GroupAggregateSpec
from ...api.specs.windows import WindowSpec
from ...api.streams.data_stream import StreamExecutionEnvironment
from ...api.streams.stream import known_schema
from ...core.batch import ColumnBatch, to_columns
from ...core.keys import FunctionKey, KeySelector
from ...core.partials import PartialKey
from ...core.row_kind import ROW_KIND
from ...engine.graph.implementation import Implementation
from ...operators.base import Operator
from ...operators.registry import build_operator
from ...operators.row_windows.operator import RowWindowOperator
from ...plan.combining_groups import CombineGroupsSpec, groups_need_records
from ...plan.local_combining import LocalCombineSpec, combinable
from ..operator_harness import OperatorHarness
from ..scripted import ScriptedSource
from .cases import Case, Table, Windows, plain_list
from .claims import check_claim, claimed
from .comparing import PlainRow, plain_rows
from .model import chosen_rows
from .programs import program, strategy
from .results import Result, comparable
from .stored import Step, StoredSubtasks, by_column
from .subtasks import HALVES, WHOLE, Subtasks
from .window_model import END_OF_TIME


@dataclass(frozen=True)
class Built:
    """The case's operator: its spec, the columns that were foretold, what it is planned to run as,
    and the kind that `explain()` says it is."""

    spec: Any
    known: pa.Schema | None = None
    implementation: Implementation | None = None
    claimed: str | None = None


def columnar(case: Case) -> Built:
    env = StreamExecutionEnvironment.get_execution_environment()
    source = env.from_source(ScriptedSource([[]], case.data.schema), strategy(0), "records")
    stream = program(case, source)
    known, kind = known_schema(stream), claimed(env, stream)
    spec = stream._settable("fuzz").spec
    (node,) = [node for node in env.get_stream_graph().nodes if node.spec is spec]
    return Built(spec, known, node.implementation, kind)


def on_rows(case: Case, cuts: bool) -> Result | None:
    """Windows by the operator for what has no kernels."""
    spec = columnar(case).spec
    if not isinstance(spec, WindowSpec) or case.by_expression:
        return None
    return on_operator(case, Built(spec), cuts, make=lambda: RowWindowOperator(spec))


def by_function(case: Case) -> Result | None:
    """Windows whose keys a Python function makes, the same keys; with cuts. Results show a key in
    a column of the type that Python values of it have, if one column holds it."""
    spec = columnar(case).spec
    if not isinstance(spec, WindowSpec) or not spec.keyed or case.by_expression:
        return None
    if not _shows_keys(case):
        return None
    made = replace(spec, key=FunctionKey(_key_function(case.key)))
    built = partial(build_operator, made)
    result = on_operator(case, Built(made), cuts=True, make=built, exchanged=spec.key)
    if result is not None:
        result.schemas = set()
    return result


def _shows_keys(case: Case) -> bool:
    """Whether results show a key that a function makes as they show its columns."""
    kinds = [case.data.schema.field(name).type for name in case.key]
    several = len(kinds) > 1 or pa.types.is_decimal(kinds[0])
    return not (several and case.operation.what == "aggregate")


def _key_function(names: tuple[str, ...]) -> Callable[[Any], Any]:
    """Those of few columns may run on columns."""
    match names:
        case (one,):
            return lambda row: row[one]
        case (one, other):
            return lambda row: (row[one], row[other])
    return lambda row: tuple([row[name] for name in names])


def on_operator(
    case: Case,
    built: Built,
    cuts: bool,
    make: Callable[[], Any] | None = None,
    exchanged: KeySelector | None = None,
) -> Result | None:
    """`exchanged`: the columns by which subtasks are chosen; None: the operator's key."""
    spec = built.spec
    if not comparable(case):
        return None
    planned = partial(build_operator, spec, built.implementation)
    tasks = Subtasks(make or planned, exchanged or spec.key, _batch_size(case), case.seed)
    keyed = not isinstance(case.operation, Windows) or case.operation.keyed
    rolling = isinstance(case.operation, Table) and case.operation.what == "rolling"
    varied = case.varied and not cuts and make is None and not rolling
    rng, cutting = random.Random(case.seed), random.Random(f"cuts {case.seed}")
    chosen = set(chosen_rows(case))

    def cut_off(mark: int) -> None:
        ranges = HALVES if keyed and cutting.random() < 0.5 else WHOLE
        tasks.watermark_cut_off(mark, cutting.randrange(4), cutting.random() < 0.5, ranges)

    for kind, *rest in case.script:
        if kind == "mark" and cuts and cutting.random() < 0.5:
            cut_off(rest[0])
        elif kind == "mark":
            tasks.watermark(rest[0])
        elif kind == "rows":
            rows = np.array([i for i in range(*rest) if i in chosen], dtype=np.int64)
            if len(rows):
                batch = _batch(case, rows)
                tasks.push(_vary(rng, case, batch) if varied and rest[0] else batch)
        elif cuts:
            tasks.restore(HALVES if rest[0] and keyed else WHOLE)
    if cuts and cutting.random() < 0.5:
        cut_off(END_OF_TIME)
    tasks.finish()
    if built.claimed is not None:
        for operator in tasks.operators():
            check_claim(built.claimed, operator)
    return _result(case, tasks, built.known)


def stored(case: Case) -> Result | None:
    """Through checkpoints of files, with crashes after which what came since comes again; windows
    row by row, too, and with keys that a Python function makes."""
    if not comparable(case):
        return None
    built, rng = columnar(case), random.Random(f"stored {case.seed}")
    spec = built.spec
    make: Callable[[], Operator] = partial(build_operator, spec, built.implementation)
    groups_of, shown = by_column(spec.key), built.known
    if isinstance(spec, WindowSpec) and not case.by_expression and rng.random() < 0.5:
        if not spec.keyed:
            make = partial(RowWindowOperator, spec)
        elif _shows_keys(case) and rng.random() < 0.6:
            made = replace(spec, key=FunctionKey(_key_function(case.key)))
            make, shown = partial(build_operator, made), None
        else:
            make = partial(RowWindowOperator, spec)
    keyed = not isinstance(case.operation, Windows) or case.operation.keyed
    expires = isinstance(case.operation, Table) and case.operation.event_ttl is not None
    of = make, groups_of if keyed else None, _batch_size(case), rng, expires
    tasks = StoredSubtasks(*of)
    chosen = set(chosen_rows(case))
    steps: list[Step | None] = []
    for kind, *rest in case.script:
        if kind == "mark":
            steps.append(partial(StoredSubtasks.watermark, timestamp=rest[0]))
        elif kind == "cut":
            steps.append(None)
        else:
            rows = np.array([i for i in range(*rest) if i in chosen], dtype=np.int64)
            if len(rows):
                steps.append(partial(StoredSubtasks.push, records=_batch(case, rows)))
    try:
        tasks.go_through(steps)
        tasks.watermark(END_OF_TIME)
        tasks.end_input()
        result = _result(case, tasks, shown)
    finally:
        tasks.close()
    if shown is None:
        result.schemas = set()
    return result


def _batch_size(case: Case) -> int:
    return 2 if case.tight else 1024


def combined(case: Case) -> Result | None:
    """With local combining in two subtasks ahead of the exchange, which get batches in turn."""
    built = columnar(case)
    spec = built.spec
    local = _local(spec)
    if local is None:
        return None
    planned = partial(build_operator, spec, built.implementation)
    tasks = Subtasks(planned, PartialKey(spec.key), _batch_size(case), case.seed)
    keyed = not isinstance(case.operation, Windows) or case.operation.keyed
    # Windows are told of one, for which sums of floats keep their order.
    senders = 1 if isinstance(case.operation, Windows) else 2
    ahead = [OperatorHarness(local, parallelism=senders) for _ in range(2)]

    def send() -> None:
        for one in ahead:
            for batch in one.batches():
                tasks.push(batch)
            one.output.elements.clear()

    chosen, turn = set(chosen_rows(case)), 0
    for kind, *rest in [*case.script, ("mark", END_OF_TIME)]:
        if kind == "rows":
            rows = np.array([i for i in range(*rest) if i in chosen], dtype=np.int64)
            if len(rows):
                turn = 1 - turn
                ahead[turn].push(_batch(case, rows))
        elif kind == "mark":
            for one in ahead:
                one.watermark(rest[0])
        else:
            for one in ahead:
                one.operator.prepare_snapshot(1)
        send()
        if kind == "mark":
            tasks.watermark(rest[0])
        elif kind == "cut":
            tasks.restore(HALVES if rest[0] and keyed else WHOLE)
            ahead = [OperatorHarness(local, parallelism=senders) for _ in range(2)]
    tasks.finish()
    result = _result(case, tasks, built.known)
    if isinstance(case.operation, Windows) and case.operation.what == "extreme":
        result.late_count = None  # a late record that another one beats may be left out ahead
    return result


def _local(spec: Any) -> OperatorSpec | None:
    """What stands ahead of the exchange; None if nothing does."""
    if isinstance(spec, GroupAggregateSpec):
        return CombineGroupsSpec(spec) if groups_need_records(spec) is None else None
    return LocalCombineSpec(spec) if combinable(spec) else None


def _result(case: Case, tasks: Subtasks, known: pa.Schema | None) -> Result:
    schemas = {str(_types(to_columns(batch).data.schema)) for batch in tasks.batches}
    if known is not None and schemas and schemas != {str(_types(known))}:
        raise AssertionError(f"columns are {schemas}, foretold were {_types(known)}")
    late = Counter(row for batch in tasks.late for row in _plain_batch(_ordered(case, batch)))
    rows_out = [row for batch in tasks.batches for row in _plain_batch(batch)]
    return Result(rows_out, late, tasks.dropped, schemas)


def _ordered(case: Case, batch: Any) -> ColumnBatch:
    """Late records come out as they came in, in any order of columns."""
    return ColumnBatch(batch.data.select(case.data.schema.names))


def _types(schema: pa.Schema) -> list[tuple[str, str]]:
    return [(one.name, str(one.type)) for one in schema]


def _plain_batch(batch: Any) -> list[PlainRow]:
    columns = [plain_list(column) for column in batch.data.columns]
    return plain_rows(zip(*columns, strict=True))


def _batch(case: Case, rows: Any) -> ColumnBatch:
    stamps = np.array(case.data.column("ts").to_pylist(), dtype=np.int64)
    return ColumnBatch(case.data, stamps).take(rows)


def _vary(rng: random.Random, case: Case, batch: ColumnBatch) -> ColumnBatch:
    """The same records in columns of other types that hold them, and for windows of aggregates in
    another order."""
    schema = batch.data.schema
    names = list(schema.names)
    if isinstance(case.operation, Windows) and case.operation.what == "aggregate":
        rng.shuffle(names)
    columns = {}
    for name in names:
        column = batch.data.column(name)
        other = _ALIKE.get(column.type)
        computed = case.by_expression and name in case.key  # polars has its own types for them
        if other is not None and name != ROW_KIND and not computed and rng.random() < 0.5:
            column = column.dictionary_encode() if other == "dictionary" else column.cast(other)
        columns[name] = column
    return ColumnBatch(pa.RecordBatch.from_pydict(columns), batch.timestamps)


_ALIKE: dict[pa.DataType, Any] = {
    pa.string(): "dictionary",
    pa.large_string(): pa.string(),
    pa.int32(): pa.int64(),
    pa.int16(): pa.int8(),
    pa.float64(): pa.float32(),
    pa.timestamp("us"): pa.timestamp("ms"),
    pa.date32(): pa.date64(),
    pa.binary(): pa.large_binary(),
}
_ALIKE.pop(pa.int16())
