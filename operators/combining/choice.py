"""Windows ahead of the exchange: partial aggregates, and the records that may hold an extreme.

Both operators are without state: nothing of theirs is in a checkpoint. What they hold back never
matters to the window operator behind the exchange, for it emits nothing before the watermark.
Batches that cannot be combined go by as they are: objects, records without timestamps, types whose
aggregates are not numbers, and whatever the window operator will reject, which is its to report.
"""

from __future__ import annotations

from ...api.specs.windows import BuiltinWindow, ExtremeWindow
from ...plan.local_combining import LocalCombineSpec
from ...plan.slicing import Slicing
from ..base import Operator


def make_local_combine(spec: LocalCombineSpec, slicing: Slicing | None = None) -> Operator:
    """`slicing`: as planned; None: what plan would say, for operators that stand in no graph."""
    if slicing is None:
        from ...plan.windows import slicing_of

        slicing = slicing_of(spec.window.assigner)
    assert slicing is not None, "was not checked by plan.local_combining.combinable"
    match spec.window.function:
        case ExtremeWindow() as extreme:
            from .extremes import LocalExtremesOperator

            return LocalExtremesOperator(spec.window, extreme, slicing)
        case BuiltinWindow() as aggregates:
            from .aggregates import LocalAggregatesOperator

            return LocalAggregatesOperator(spec.window, aggregates, slicing)
    raise AssertionError(f"{spec} was not checked by plan.local_combining.combinable")
