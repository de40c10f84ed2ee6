"""From a window spec to what a window holds and what it sends when it fires."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...api.specs.windows import (
    AggregateWindow,
    BuiltinWindow,
    ExtremeWindow,
    ProcessWindow,
    ReduceWindow,
    TopNWindow,
    WindowSpec,
)
from ...core.errors import TypeMismatchError
from ..base import OperatorContext, Output
from ..rows.collector import Collector
from ..rows.user_function import UserFunction
from .builtin_windows import (
    AggregatesEmitter,
    AggregatesFold,
    ExtremeFold,
    ExtremesEmitter,
    Layout,
)
from .top_n_rows import TopNEmitter, TopNFold
from .window_contents import (
    AggregateFold,
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


def make_logic(
    spec: WindowSpec, ctx: OperatorContext, out: Output, process: ProcessContext, layout: Layout
) -> WindowLogic:
    """The logic of one operator's subtask."""
    state, chunk = ctx.keyed_state, ctx.config.batch_size
    match spec.function:
        case ReduceWindow(function, window_function):
            reduce = UserFunction(function, "reduce")
            contents = FoldedContents(state, ReduceFold(reduce.call))
            return _with_function(spec, contents, out, process, chunk, [reduce], window_function)
        case AggregateWindow(function, window_function):
            aggregate = _aggregate(function)
            contents = FoldedContents(state, AggregateFold(function))
            return _with_function(spec, contents, out, process, chunk, [aggregate], window_function)
        case ProcessWindow(function):
            return _with_function(spec, ListedContents(state), out, process, chunk, [], function)
        case BuiltinWindow(aggregates):
            functions = [aggregate.to_function() for _, aggregate in aggregates]
            emitter = AggregatesEmitter(out, chunk, spec.key, spec.function, layout)
            users = [_aggregate(function) for function in functions]
            return WindowLogic(FoldedContents(state, AggregatesFold(functions)), emitter, users)
        case ExtremeWindow():
            fold = ExtremeFold(spec.function, ctx.attempt)
            return WindowLogic(FoldedContents(state, fold), ExtremesEmitter(out, chunk, layout))
        case TopNWindow():
            best = FoldedContents(state, TopNFold(spec.function))
            return WindowLogic(best, TopNEmitter(out, chunk, layout, spec.function))


def _aggregate(function: Any) -> UserFunction:
    for method in ("create_accumulator", "add", "get_result", "merge"):
        if not callable(getattr(function, method, None)):
            raise TypeMismatchError(
                f"{function!r} is not an AggregateFunction: it has no method '{method}'"
            )
    return UserFunction(function, "add")


def _with_function(
    spec: WindowSpec,
    contents: WindowContents,
    out: Output,
    process: ProcessContext,
    chunk: int,
    functions: list[UserFunction],
    window_function: Any,
) -> WindowLogic:
    collector = Collector(out, spec.schema, chunk)
    if window_function is None:
        return WindowLogic(contents, PlainEmitter(collector), functions)
    user = window_user_function(window_function)
    emitter = FunctionEmitter(user, spec.keyed, process, collector)
    return WindowLogic(contents, emitter, [*functions, user])
