"""Functions on columns give what they give record by record, or say that they cannot."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.batch import ColumnBatch
from strom.core.compiled import results
from strom.core.compiled.kinds import Beyond
from strom.core.compiled.operations import Refused
from strom.core.compiled.program import text_of
from strom.core.compiled.reading import NOT_UNDERSTOOD, read
from strom.core.compiled.running import run
from strom.core.value_types import tuple_records
from strom.testing.fuzz.drawn_functions import draw_columns, draw_function

UNABLE = (Beyond, pa.ArrowException)


def by_rows(function: Callable[[Any], Any], data: pa.RecordBatch) -> list[Any] | None:
    """None if it raises for a record."""
    try:
        return [function(row) for row in ColumnBatch(data).rows()]
    except Exception:
        return None


def by_columns(function: Any, data: pa.RecordBatch, truths: bool = False) -> list[Any] | None:
    """None if columns cannot tell. Refused if the function cannot be read."""
    is_tuple = data.schema.metadata is not None
    reading = read(function, data.schema, is_tuple, truths=truths)
    assert text_of(reading.block)
    try:
        leaves = run(reading.block, data)
        if truths:
            return results.mask(leaves, data.num_rows).tolist()
        return results.objects(leaves, data.num_rows)
    except UNABLE:
        return None


def laid_otherwise(data: pa.RecordBatch, rng: Random) -> pa.RecordBatch:
    """Some of the records, in memory as they may come."""
    data = data.slice(rng.randint(0, data.num_rows - 1) if rng.random() < 0.5 else 0)
    match rng.randint(0, 3):
        case 0:  # the first text begins behind the first byte
            texts = data.column("s").cast(pa.large_string()).cast(pa.string())
            return data.set_column(data.schema.names.index("s"), "s", texts)
        case 1:
            words = data.column("s").dictionary_encode()
            return data.set_column(data.schema.names.index("s"), "s", words)
        case 2:
            views = data.column("t").cast(pa.string_view())
            return data.set_column(data.schema.names.index("t"), "t", views)
    return data


def check(seed: int) -> str:
    """How it went."""
    rng = Random(seed)
    predicate, tuples = rng.random() < 0.3, rng.random() < 0.3
    drawn = draw_function(rng, predicate=predicate, tuples=tuples)
    data = draw_columns(rng, rng.choice([1, 5, 70]))
    data = laid_otherwise(data, rng)
    if tuples:
        data = data.cast(tuple_records(data.schema))
    try:
        found = by_columns(drawn.function, data, truths=predicate)
    except Refused as error:
        return "not understood" if NOT_UNDERSTOOD in str(error) else "refused"
    wanted = by_rows(drawn.function, data)
    if found is None:
        return "raises" if wanted is None else "unable"
    if predicate and wanted is not None:
        wanted = list(map(bool, wanted))
    assert repr(found) == repr(wanted), f"seed {seed}: {drawn}"
    assert wanted is not None
    assert list(map(type, found)) == list(map(type, wanted))
    return "same"


@settings(max_examples=examples(3_000), deadline=None)
@given(st.integers(0, 2**32))
def test_random_functions_are_the_same_on_columns(seed: int) -> None:
    assert check(seed) != "not understood"


def test_most_of_what_is_drawn_runs_on_columns() -> None:
    """Else the test above would say little."""
    went = [check(seed) for seed in range(300)]
    assert went.count("same") > 100
    assert all(went.count(way) > 5 for way in ("refused", "raises", "unable"))
