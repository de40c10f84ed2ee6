"""The Arrow type of an aggregate's result."""

from __future__ import annotations

import pyarrow as pa

from ...api.aggregates import Aggregate


def result_type(aggregate: Aggregate, kind: pa.DataType | None) -> pa.DataType | None:
    """The type of the result over values of type `kind` (of `expression`, dictionaries decoded);
    None where it depends on `kind` and that is not known."""
    match aggregate.kind:
        case "count" | "count_distinct" | "approx_count_distinct":
            return pa.int64()
        case "mean" | "variance" | "stddev":
            return pa.float64()
        case _ if kind is None:
            return None
        case "sum":
            return pa.float64() if pa.types.is_floating(kind) else pa.int64()
        case "collect" | "largest" | "smallest":
            return pa.list_(kind)
        case _:
            return kind
