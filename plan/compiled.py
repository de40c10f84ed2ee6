"""Functions of map and filter: on columns where that is the same, else row by row.

The task decides, for each schema that it meets (`operators/rows/by_columns`), and of every batch
again; plan foretells it where the columns are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ..api.functions.methods import method_of
from ..api.specs.records import FilterSpec, MapSpec
from ..core.compiled.operations import Refused
from ..core.compiled.program import text_of
from ..core.compiled.reading import check, read
from ..core.failure_text import cut
from ..core.keys import FunctionKey
from ..core.value_types import has_tuple_records
from ..engine.graph.implementation import Implementation
from .windows import called_for_each

CALLED = "a Python function of each record"
FIRST_BATCH = (
    "the first batch decides: on columns if it has columns, and the function gives the same on "
    "them; rows else (declare output_type for columns)"
)
BY_ROWS = "a batch with which columns would differ from Python goes by rows"
OFF = "compile_functions is off in the job's configuration"

_FASTER = {
    MapSpec: "select() or with_columns() with expressions, or map_batches(), run on columns",
    FilterSpec: "filter(expression) runs on columns",
}
_SHOWN = 200
"""Characters of what a function does."""


def compiled(spec: MapSpec | FilterSpec, on: bool) -> Implementation:
    """How it runs, as far as the spec tells. on: whether the job wants functions on columns."""
    if not on:
        return Implementation("rows", CALLED, f"{OFF}; {_FASTER[type(spec)]}")
    try:
        check(_function(spec))
    except Refused as error:
        return Implementation("rows", CALLED, _why_not(spec, error))
    return Implementation("batches or rows", "a Python function", remarks=(FIRST_BATCH,))


def foretold(
    made: Implementation, spec: MapSpec | FilterSpec, columns: pa.Schema
) -> Implementation:
    """How it runs on these columns; as `made` says where a function's `open` has a say."""
    remarks = tuple(one for one in made.remarks if one != FIRST_BATCH)
    truths = isinstance(spec, FilterSpec)
    try:
        reading = read(_function(spec), columns, has_tuple_records(columns), truths=truths)
    except Refused as error:
        if error.until_open:
            return made
        why_not = _why_not(spec, error)
        return replace(made, kind="rows", name=CALLED, why_not=why_not, remarks=remarks)
    told = f"compiled to columns: {cut(text_of(reading.block), _SHOWN)}"
    return replace(made, kind="batches", name=told, remarks=(*remarks, BY_ROWS))


def foretold_key(made: Implementation, key: FunctionKey, columns: pa.Schema) -> Implementation:
    """The same of windows on kernels, whose keys a function makes of these columns."""
    called = called_for_each("the key")
    if called not in made.remarks:
        return made
    try:
        reading = read(key.function, columns, has_tuple_records(columns))
    except Refused:
        return made
    told = (
        f"the key is a Python function, compiled to columns: {cut(text_of(reading.block), _SHOWN)}"
    )
    remarks = (told if one == called else one for one in made.remarks)
    return replace(made, remarks=tuple(remarks))


def _function(spec: MapSpec | FilterSpec) -> Callable[..., Any]:
    return method_of(spec.function, "filter" if isinstance(spec, FilterSpec) else "map")


def _why_not(spec: MapSpec | FilterSpec, error: Refused) -> str:
    return f"the function is not compiled to columns: it {error}; {_FASTER[type(spec)]}"
