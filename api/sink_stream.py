"""Where a stream ends: only settings are left."""

from __future__ import annotations

from ..engine.graph.transformation import Transformation
from .operator_settings import OperatorSettings


class DataStreamSink(OperatorSettings):
    """A sink operator."""

    def __init__(self, operator: Transformation) -> None:
        super().__init__(operator)
        self.operator = operator
