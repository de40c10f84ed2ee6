"""Rolling reduce where a record for which the function raises is put aside."""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import partial
from typing import Any

from ...api.types.declared import Declared
from ...core.arrays import Int64s
from ...core.batch import Batch
from ..letters import open_letters
from .gathering import Gathering
from .reduce import Fold, ReduceOperator


class LenientReduceOperator(ReduceOperator):
    """Such a record gives no output, and the value of its key stays: the object that it was, also
    where the function had changed something within it."""

    def open(self) -> None:
        super().open()
        letters = open_letters(self)
        assert letters is not None
        self._gathering = Gathering(self, letters, None, sides=False)

    def _fold(
        self,
        reduce: Fold,
        values: list[Any],
        keys: list[Any],
        held: MutableMapping[Any, Any],
        times: Int64s | None,
    ) -> list[Any]:
        current, take, gathering = self.ctx.keyed_state.current, self._take, self._gathering
        stamps = [None] * len(keys) if times is None else times.tolist()
        for value, current.key, self._stamp in zip(values, keys, stamps, strict=True):
            key = current.key
            gathering.take(value, self._stamp, "reduce", partial(take, reduce, value, key, held))
        return []

    _fold_under_keys = _fold

    def _take(
        self, reduce: Fold, value: Any, key: Any, held: MutableMapping[Any, Any]
    ) -> tuple[Any]:
        before = held.get(key)
        after = self._after(reduce, key, before, value)
        held[key] = after
        return (after,)

    def _send(self, results: list[Any], batch: Batch, declared: Declared | None) -> None:
        self._gathering.declared = declared
        self._gathering.flush()
