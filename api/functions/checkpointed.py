"""State of a function that belongs to no key: `CheckpointedFunction`, as in Flink's Java.

    class Buffered(MapFunction, CheckpointedFunction):
        def initialize_state(self, context):
            self.kept = context.get_operator_state_store().get_list_state(KEPT)
            self.buffer = list(self.kept.get())       # nothing, or what a checkpoint held

        def snapshot_state(self, context):
            self.kept.update(self.buffer)

A list is dealt out over the subtasks at a restore, a union list goes to every subtask whole, and so
does a broadcast map, of which only subtask 0's copy is stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from .user_functions import Function, RuntimeContext

if TYPE_CHECKING:
    from ...state.faces import OperatorStateStore


@runtime_checkable
class FunctionInitializationContext(Protocol):
    """What `initialize_state` is given."""

    def is_restored(self) -> bool:
        """Whether this subtask starts from a checkpoint; also true of a function that the
        checkpoint knew nothing of, whose state is empty."""
        ...

    def get_operator_state_store(self) -> OperatorStateStore: ...


@runtime_checkable
class FunctionSnapshotContext(Protocol):
    """What `snapshot_state` is given."""

    def get_checkpoint_id(self) -> int: ...


class CheckpointedFunction(ABC):
    """Beside another function class, or a class for `map_batches`: state of each subtask."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Called once per subtask, ahead of `open`; what a checkpoint held is there."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Called at each checkpoint, between two records: what the states hold when it returns is
        stored. Everything before the checkpoint has been handled, nothing behind it has."""


class FunctionAdapter(Function):
    """Owns a user's function that runs as one of another kind, and passes its lifecycle on. Whether
    there is state to keep is asked of `function`."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        self.function.open(runtime_context)

    def close(self) -> None:
        self.function.close()


def checkpointed(function: Any) -> CheckpointedFunction | None:
    """The function, or the one that it adapts, if it has state of its subtask."""
    while isinstance(function, FunctionAdapter):
        function = function.function
    return function if isinstance(function, CheckpointedFunction) else None
