"""Batch functions of two inputs: `map_batches1` and `map_batches2` of one object per subtask."""

from __future__ import annotations

from typing import Any

from ...api.specs.connected import CoMapBatchesSpec
from ...core.batch import Batch, ObjectBatch
from ...core.errors import StateError, TypeMismatchError
from ...core.keys import findable
from ...state.backend import NoKey
from ...state.key_groups import key_group
from ..base import OperatorContext, Work
from ..batches.map_batches import MapBatchesOperator
from ..rows.runtime_context import OperatorRuntimeContext

METHODS = ("map_batches1", "map_batches2")


class KeyedBatchesContext(OperatorRuntimeContext):
    """The RuntimeContext of a function of batches that hold several keys."""

    def __init__(self, ctx: OperatorContext) -> None:
        super().__init__(ctx, keyed=True)

    def set_current_key(self, key: Any) -> None:
        """The key whose state is meant until the method that is called returns, or another one is
        named: as records have it, of several columns a tuple. StateError if its records do not
        come to this subtask."""
        ctx = self.operator
        (key,) = findable([key])
        if key_group(key, ctx.max_parallelism) not in ctx.key_groups:
            raise StateError(
                f"operator '{ctx.name}', subtask {ctx.subtask}: set_current_key({key!r}), but "
                "records of that key do not come to this subtask: name keys of the batch only, as "
                "the values that its key columns hold"
            )
        ctx.keyed_state.set_current_key(key)


class CoMapBatchesOperator(MapBatchesOperator):
    """As `MapBatchesOperator`, with a method for each input. A method may also give None: nothing
    comes out."""

    _spec: CoMapBatchesSpec

    def _is_opened(self, instance: Any) -> bool:
        return True

    def _runtime_context(self) -> OperatorRuntimeContext:
        return KeyedBatchesContext(self.ctx) if self._spec.keyed else super()._runtime_context()

    def _bind(self, instance: Any) -> None:
        methods = [getattr(instance, name, None) for name in METHODS]
        if not all(map(callable, methods)):
            raise TypeMismatchError(
                f"map_batches of operator '{self.ctx.name}': {instance!r} needs the methods "
                f"{' and '.join(METHODS)}"
            )
        self._functions: list[Any] = methods

    def process(self, batch: Batch, port: int = 0) -> Work:
        self._function = self._functions[port]
        self.ctx.keyed_state.set_current_key(NoKey())
        return super().process(batch, port)

    def _batch(self, result: Any) -> Batch:
        return ObjectBatch([]) if result is None else super()._batch(result)
