"""Rolling reduce: each record is folded into its key's value, and the new value goes out.

A function with a lifecycle may use keyed state of its own, under the key of the records at hand.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from ...api.functions.user_functions import Function
from ...api.specs.records import ReduceSpec
from ...api.types.declared import Declared, Scalars, as_declared
from ...core.arrays import Int64s
from ...core.batch import Batch, ColumnBatch, ObjectBatch
from ...core.errors import TypeMismatchError
from ...core.failure_text import shown
from ...core.records import RecordType
from ...core.row_kind import refuse_changelog
from ...state.copies import FIXED
from ...state.descriptors import ValueStateDescriptor
from ..base import Operator
from .emitted import keeper
from .runtime_context import OperatorRuntimeContext
from .turns import Parting
from .user_function import UserFunction

_REDUCED = "__reduced"

Fold = Callable[[Any, Any], Any]
"""The reduce function."""


class ReduceOperator(Operator):
    """One output per input: the first record of a key itself, then `function(so far, record)`. The
    results are of the type of the records, or of the declared one."""

    def __init__(self, spec: ReduceSpec) -> None:
        self._key = spec.key
        self._function = UserFunction(spec.function, "reduce")
        self._rich = isinstance(spec.function, Function) or not callable(spec.function)
        """Whether the function was given a context, through which it may have state."""
        self._stamp: int | None = None
        """The timestamp of the record that such a function is called for."""
        self._declared = spec.schema
        self._life = spec.ttl

    def open(self) -> None:
        reduced = ValueStateDescriptor(_REDUCED)
        reduced.ttl_config = None if self._life is None else self._life.config
        self._parting = Parting(self._life, self.ctx.keyed_state.time, self.ctx.name)
        self._keep = keeper(self.ctx.config)
        """State holds the results as well, and the function may change what it is given."""
        self._state = self.ctx.keyed_state.get_bulk_state(reduced)
        self.ctx.keyed_state.time.stamp_of = lambda: self._stamp
        self._function.open(OperatorRuntimeContext(self.ctx, keyed=True))

    def process(self, batch: Batch, port: int = 0) -> None:
        refuse_changelog(batch, self.ctx.name, "reductions")
        reduce, declared = self._function.call, self._declared
        if declared is None and isinstance(batch, ColumnBatch):
            declared = batch.data.schema
            reduce = RecordType(declared).of(reduce)
        elif isinstance(declared, Scalars):
            reduce = declared.of(reduce)
        keys = self._key.held_keys(batch)
        self.ctx.keyed_state.check_keys(keys)
        values, stamps = batch.rows(), batch.timestamps
        fold = self._fold_under_keys if self._rich else self._fold
        results: list[Any] = []
        for part, times in self._parting.parts(keys, stamps):
            some = keys[part]
            held = self._state.fetch(some, times)
            results += fold(
                reduce, values[part], some, held, None if stamps is None else stamps[part]
            )
            self._state.commit()
        self._send(results, batch, declared)

    def _send(self, results: list[Any], batch: Batch, declared: Declared | None) -> None:
        reduced: Batch = ObjectBatch(results, batch.timestamps)
        self.out.emit(reduced if declared is None else as_declared(reduced, declared))

    @staticmethod
    def _after(reduce: Fold, key: Any, before: Any, value: Any) -> Any:
        """The new value of the key; what the loops below do in place, for the call it saves."""
        after = value if before is None else reduce(before, value)
        if after is None:
            raise _no_result(key, before, value)
        return after

    def _fold(
        self,
        reduce: Fold,
        values: list[Any],
        keys: list[Any],
        held: MutableMapping[Any, Any],
        _: Int64s | None,
    ) -> list[Any]:
        results, keep = [], self._keep
        for value, key in zip(values, keys, strict=True):
            before = held.get(key)
            after = value if before is None else reduce(before, value)
            if after is None:
                raise _no_result(key, before, value)
            held[key] = after
            results.append(after if type(after) in FIXED else keep(after))
        return results

    def _fold_under_keys(
        self,
        reduce: Fold,
        values: list[Any],
        keys: list[Any],
        held: MutableMapping[Any, Any],
        times: Int64s | None,
    ) -> list[Any]:
        """The same, with key and timestamp of each record made known."""
        results, keep, current = [], self._keep, self.ctx.keyed_state.current
        stamps = [None] * len(keys) if times is None else times.tolist()
        for value, key, self._stamp in zip(values, keys, stamps, strict=True):
            before = held.get(key)
            current.key = key
            after = value if before is None else reduce(before, value)
            if after is None:
                raise _no_result(key, before, value)
            held[key] = after
            results.append(after if type(after) in FIXED else keep(after))
        return results

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._function.snapshot(checkpoint_id)

    def close(self) -> None:
        self._function.close(self.ctx.name)


def _no_result(key: object, before: object, value: object) -> TypeMismatchError:
    if before is None:
        return TypeMismatchError(
            f"cannot reduce None (key {shown(key)}): filter such records out before"
        )
    return TypeMismatchError(
        f"the reduce function returned None for key {shown(key)}, from {shown(before)} and "
        f"{shown(value)}"
    )
