"""What a stream reads that a later job may read from elsewhere."""

from __future__ import annotations

from ...api.specs.records import PassSpec
from ...core.batch import Batch
from ..base import Operator


class PassOperator(Operator):
    """Records pass as they are."""

    def __init__(self, spec: PassSpec) -> None:
        self._spec = spec

    def process(self, batch: Batch, port: int = 0) -> None:
        self.out.emit(batch)
