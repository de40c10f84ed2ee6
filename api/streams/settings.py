"""The settings of one operator, shared by streams and sinks. All return the object itself."""

from __future__ import annotations

from typing import Self

from ...core.errors import GraphError
from ...engine.graph.transformation import Transformation
from ..functions.validation import require_positive, require_text


class OperatorSettings:
    """`operator`: the operator this stream or sink is the direct result of, None for streams that
    are a view (keyed, partitioned, united, side output): these have no settings."""

    def __init__(self, operator: Transformation | None) -> None:
        self._operator = operator

    def name(self, name: str) -> Self:
        """The name in messages, metrics and `explain()`; not part of the operator's identity."""
        self._settable("name").name = require_text("name", "name", name)
        return self

    def get_name(self) -> str:
        return self._settable("get_name").name

    def uid(self, uid: str) -> Self:
        """The operator's identity: its state is found under it when the program has changed."""
        self._settable("uid").uid = require_text("uid", "uid", uid)
        return self

    def set_description(self, description: str) -> Self:
        """Text for `explain()`."""
        self._settable("set_description").description = description
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        operator = self._settable("set_parallelism")
        require_positive("set_parallelism", "parallelism", parallelism)
        if operator.fixed_parallelism and parallelism != operator.parallelism:
            raise GraphError(
                f"operator '{operator.name}' works only with parallelism {operator.parallelism}, "
                f"not {parallelism}"
            )
        operator.parallelism = parallelism
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """The number of key groups: the most the operator can ever be rescaled to."""
        operator = self._settable("set_max_parallelism")
        operator.max_parallelism = require_positive(
            "set_max_parallelism", "max_parallelism", max_parallelism, 32768
        )
        return self

    def force_non_parallel(self) -> Self:
        """One subtask, for good."""
        operator = self._settable("force_non_parallel")
        operator.parallelism = 1
        operator.fixed_parallelism = True
        return self

    def start_new_chain(self) -> Self:
        """Do not run in one task with the operator before it."""
        operator = self._settable("start_new_chain")
        if operator.chaining != "never":
            operator.chaining = "head"
        return self

    def disable_chaining(self) -> Self:
        """Run alone in a task."""
        self._settable("disable_chaining").chaining = "never"
        return self

    def slot_sharing_group(self, slot_sharing_group: str) -> Self:
        """Subtasks share a slot only within a group; operators behind this one inherit it."""
        operator = self._settable("slot_sharing_group")
        operator.slot_sharing_group = require_text(
            "slot_sharing_group", "slot sharing group", slot_sharing_group
        )
        return self

    def _settable(self, method: str) -> Transformation:
        if self._operator is None:
            raise GraphError(
                f"{method}() sets an operator's property, but this stream is only a view of other "
                "streams (keyed, partitioned, united or side output); call it right behind the "
                "operator"
            )
        return self._operator


class DataStreamSink(OperatorSettings):
    """A sink operator."""

    def __init__(self, operator: Transformation) -> None:
        super().__init__(operator)
        self.operator = operator
