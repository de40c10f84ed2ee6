"""Batch functions where records that make one raise are put aside."""

from __future__ import annotations

from ...core.batch import Batch
from ..base import Steps, emit_slices
from ..halving import halved
from ..letters import open_letters
from .map_batches import MapBatchesOperator


class LenientMapBatchesOperator(MapBatchesOperator):
    """A batch that raises is tried again in halves, so that the others of it come out."""

    def open(self) -> None:
        super().open()
        letters = open_letters(self)
        assert letters is not None
        self._letters = letters

    def process(self, batch: Batch, port: int = 0) -> Steps:
        for result, size in halved(batch, self._mapped, self._letters, "map_batches"):
            if len(result):
                yield from emit_slices(self.out, result, size) or ()
                yield None
