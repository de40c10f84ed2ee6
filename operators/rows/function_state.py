"""What a `CheckpointedFunction` is given: the state of its subtask, and the checkpoint's number."""

from __future__ import annotations

from ...state.operator_state import OperatorStateBackend
from ..base import OperatorContext


class InitializationContext:
    """FunctionInitializationContext of one operator's subtask."""

    __slots__ = ("_ctx",)

    def __init__(self, ctx: OperatorContext) -> None:
        self._ctx = ctx

    def is_restored(self) -> bool:
        return self._ctx.restored

    def get_operator_state_store(self) -> OperatorStateBackend:
        return self._ctx.operator_state


class SnapshotContext:
    """FunctionSnapshotContext of one checkpoint."""

    __slots__ = ("_checkpoint_id",)

    def __init__(self, checkpoint_id: int) -> None:
        self._checkpoint_id = checkpoint_id

    def get_checkpoint_id(self) -> int:
        return self._checkpoint_id
