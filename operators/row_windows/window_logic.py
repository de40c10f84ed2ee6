"""From a window spec to what a window holds and what it sends when it fires."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ...api.specs.windows import (
    AggregateWindow,
    ProcessWindow,
    ReduceWindow,
    WindowSpec,
)
from ...api.types.declared import Declared, Scalars
from ...core.errors import TypeMismatchError
from ...core.records import RecordType
from ..base import OperatorContext, Output
from ..rows.collector import Collector
from ..rows.emitted import keeper
from ..rows.pace import Pace
from ..rows.user_function import UserFunction
from .evicting import FoldingEmitter, TimedContents
from .window_contents import (
    AggregateFold,
    Fold,
    FoldedContents,
    ListedContents,
    ReduceFold,
    WindowContents,
)
from .window_contexts import ProcessContext
from .window_emit import FunctionEmitter, PlainEmitter, WindowEmitter, window_user_function


@dataclass(frozen=True)
class WindowLogic:
    """`rows` are the user's, to be opened before any record and closed in the end."""

    contents: WindowContents
    emitter: WindowEmitter
    functions: list[UserFunction] = field(default_factory=list)


def _holding(spec: WindowSpec, ctx: OperatorContext, fold: Fold | None) -> WindowContents:
    """What holds the windows: without an evictor no more than `fold` needs, if there is one."""
    if spec.evictor is not None:
        return TimedContents(ctx.keyed_state, ctx.name)
    return (
        ListedContents(ctx.keyed_state) if fold is None else FoldedContents(ctx.keyed_state, fold)
    )


def make_logic(
    spec: WindowSpec, ctx: OperatorContext, out: Output, process: ProcessContext
) -> WindowLogic:
    """The logic of one operator's subtask, for functions of the user."""
    match spec.function:
        case ReduceWindow(function, window_function, records):
            reduce = UserFunction(function, "reduce")
            fold: Fold = ReduceFold(_typed(reduce.call, records))
            contents = _holding(spec, ctx, fold)
            logic = _with_function(spec, ctx, contents, out, process, [reduce], window_function)
            return logic if spec.evictor is None else _refolding(logic, fold, list)
        case AggregateWindow(function, window_function):
            aggregate = _aggregate(function)
            fold = AggregateFold(function)
            contents = _holding(spec, ctx, fold)
            logic = _with_function(spec, ctx, contents, out, process, [aggregate], window_function)
            if spec.evictor is None:
                return logic
            return _refolding(
                logic, fold, lambda: [function.get_result(function.create_accumulator())]
            )
        case ProcessWindow(function):
            contents = _holding(spec, ctx, None)
            return _with_function(spec, ctx, contents, out, process, [], function)
    raise AssertionError(f"{type(spec.function).__name__} runs over slots")


def _typed(call: Callable[[Any, Any], Any], records: Declared | None) -> Callable[[Any, Any], Any]:
    """A reduce function whose results are what the records are."""
    if records is None:
        return call
    return records.of(call) if isinstance(records, Scalars) else RecordType(records).of(call)


def _refolding(logic: WindowLogic, fold: Fold, empty: Callable[[], list[Any]]) -> WindowLogic:
    """The logic with what windows hold folded at each firing. `empty`: see `FoldingEmitter`."""
    return replace(logic, emitter=FoldingEmitter(fold, empty, logic.emitter))


def _aggregate(function: Any) -> UserFunction:
    for method in ("create_accumulator", "add", "get_result", "merge"):
        if not callable(getattr(function, method, None)):
            raise TypeMismatchError(
                f"{function!r} is not an AggregateFunction: it has no method '{method}'"
            )
    return UserFunction(function, "add")


def _with_function(
    spec: WindowSpec,
    ctx: OperatorContext,
    contents: WindowContents,
    out: Output,
    process: ProcessContext,
    functions: list[UserFunction],
    window_function: Any,
) -> WindowLogic:
    pace = Pace(ctx.config.batch_size, ctx.clock)
    collector = Collector(out, spec.schema, pace, keeper(ctx.config))
    if window_function is None:
        return WindowLogic(contents, PlainEmitter(collector), functions)
    user = window_user_function(window_function)
    emitter = FunctionEmitter(user, spec.keyed, process, collector)
    return WindowLogic(contents, emitter, [*functions, user])
