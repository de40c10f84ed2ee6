"""Rolling reduce: each record is folded into its key's value, and the new value goes out."""

from __future__ import annotations

from ...api.specs.records import ReduceSpec
from ...core.batch import Batch, ObjectBatch, to_columns
from ...core.errors import TypeMismatchError
from ...core.row_kind import refuse_changelog
from ...state.descriptors import ValueStateDescriptor
from ..base import Operator
from .runtime_context import OperatorRuntimeContext
from .user_function import UserFunction

_REDUCED = ValueStateDescriptor("__reduced")


class ReduceOperator(Operator):
    """One output per input: the first record of a key itself, then `function(so far, record)`."""

    def __init__(self, spec: ReduceSpec) -> None:
        self._key = spec.key
        self._function = UserFunction(spec.function, "reduce")
        self._schema = spec.schema

    def open(self) -> None:
        self._state = self.ctx.keyed_state.get_bulk_state(_REDUCED)
        self._function.open(OperatorRuntimeContext(self.ctx, keyed=True))

    def process(self, batch: Batch, port: int = 0) -> None:
        refuse_changelog(batch, self.ctx.name, "reductions")
        rows, keys, reduce = batch.rows(), self._key.keys(batch), self._function.call
        held = self._state.fetch(keys)
        results = []
        for value, key in zip(rows, keys, strict=True):
            before = held.get(key)
            after = value if before is None else reduce(before, value)
            if after is None:
                raise _no_result(key, before, value)
            held[key] = after
            results.append(after)
        self._state.commit()
        reduced = ObjectBatch(results, batch.timestamps)
        self.out.emit(reduced if self._schema is None else to_columns(reduced, self._schema))

    def close(self) -> None:
        self._function.close(self.ctx.name)


def _no_result(key: object, before: object, value: object) -> TypeMismatchError:
    if before is None:
        return TypeMismatchError(
            f"cannot reduce None (key {key!r}): filter such records out before"
        )
    return TypeMismatchError(
        f"the reduce function returned None for key {key!r}, from {before!r} and {value!r}"
    )
