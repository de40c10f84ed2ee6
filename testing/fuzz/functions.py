"""Random functions in map and filter, on columns and by rows: the same to the last bit."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from ...api.dead_letters import DEAD_LETTERS, dead_letters
from ...api.specs.records import FilterSpec, MapSpec
from ...api.types.declared import declared_records
from ...api.types.type_info import Types
from ...core.batch import Batch, ColumnBatch
from ...core.config import JobConfig
from ...core.value_types import tuple_records
from ...operators.rows.functions import RowOperator
from ..operator_harness import OperatorHarness
from .drawn_functions import draw_columns, draw_function
from .limits import small_limits
from .running import Disagreement

_TYPES = (Types.LONG(), Types.INT(), Types.DOUBLE(), Types.FLOAT(), Types.STRING(), Types.BOOLEAN())
_FITTING = {int: Types.LONG(), float: Types.DOUBLE(), str: Types.STRING(), bool: Types.BOOLEAN()}


def run_functions(seed: int) -> bool:
    """Whether the function runs on columns. Raises Disagreement."""
    with small_limits():
        return _run_functions(seed)


def _run_functions(seed: int) -> bool:
    rng = Random(seed)
    predicate, tuples = rng.random() < 0.3, rng.random() < 0.3
    drawn = draw_function(rng, predicate=predicate, tuples=tuples)
    function, data = drawn.function, draw_columns(rng, rng.randint(1, 80))
    if tuples:
        data = data.cast(tuple_records(data.schema))
    batch = ColumnBatch(data, np.arange(data.num_rows) if rng.random() < 0.5 else None)
    letters = dead_letters(limit=None) if rng.random() < 0.3 else None
    if predicate:
        spec: Any = FilterSpec(function, on_error=letters)
    else:
        try:
            first = function(ColumnBatch(data).rows()[0])
        except Exception:
            first = 1
        spec = MapSpec(function, declared_records(_draw_type(rng, first)), on_error=letters)
    on, off = (_outcome(spec, batch, compiled) for compiled in (True, False))
    if on.found != off.found:
        raise Disagreement(
            f"functions, seed {seed}: {drawn}\n  on columns: {on.found:.2000}\n"
            f"  by rows: {off.found:.2000}"
        )
    return on.on_columns


@dataclass(frozen=True)
class _Outcome:
    """`found`: what came out, or how it failed."""

    found: str
    on_columns: bool = False


def _outcome(spec: Any, batch: ColumnBatch, compiled: bool) -> _Outcome:
    harness = OperatorHarness(spec, config=JobConfig(compile_functions=compiled))
    try:
        harness.push(ColumnBatch(batch.data, batch.timestamps))
    except Exception as error:
        return _Outcome(repr(error))
    letters = [(one.error, one.message, one.record) for one in harness.side_outputs(DEAD_LETTERS)]
    results = [told(one) for one in harness.batches()]
    if spec.on_error is not None:  # who puts records aside cuts batches in an own way
        results = [(harness.stamped_outputs(), sorted({str(one[0]) for one in results}))]
    operator = harness.operator
    assert isinstance(operator, RowOperator)
    reads = operator.by_columns is not None and operator.by_columns.reads
    return _Outcome(repr((results, letters)), bool(reads))


def told(batch: Batch) -> tuple[Any, ...]:
    """All there is to it."""
    kinds = list(map(type, batch.rows()))
    times = None if batch.timestamps is None else batch.timestamps.tolist()
    if not isinstance(batch, ColumnBatch):
        return None, batch.rows(), kinds, times
    schema = batch.data.schema
    return schema, schema.metadata, batch.data.to_pydict(), kinds, times


def _draw_type(rng: Random, result: Any) -> Any:
    """Something that results such as this one may be declared as."""
    if rng.random() < 0.3:
        return None
    if not isinstance(result, (tuple, dict)):
        types = [rng.choice(_TYPES)]
        return types[0] if rng.random() < 0.7 else Types.ROW_NAMED(["f0"], types)
    if isinstance(result, dict):
        types = [_type_for(rng, value) for value in result.values()]
        return Types.ROW_NAMED(list(result), types)
    types = [_type_for(rng, value) for value in result]
    if rng.random() < 0.5:
        return Types.TUPLE(types)
    names = [f"f{at}" for at in range(len(types))]
    if rng.random() < 0.2:
        names.reverse()
    return Types.ROW_NAMED(names, types)


def _type_for(rng: Random, value: Any) -> Any:
    fitting = _FITTING.get(type(value))
    return rng.choice(_TYPES) if fitting is None or rng.random() < 0.3 else fitting
