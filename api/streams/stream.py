"""What all streams are made of: the inputs the next operator will read, and how one is added.

    operator result     one input, the operator's main output; has settings (name, uid, ...)
    union               several inputs
    partitioned         the same inputs with another partitioner
    side output         one input with a tag

The last three are views: they create no operator and have no settings.

Whatever is done to a stream gives a `DataStream` again. That class is made of the modules of this
package and so stands above them (`data_stream`); they are generic in it, as `Out`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Generic, TypeVar

import pyarrow as pa

from ...core.errors import ConfigurationError, GraphError
from ...core.keys import KeySelector
from ...engine.graph.model import (
    Custom,
    Forward,
    Global,
    Partitioner,
    Rebalance,
    Rescale,
    Shuffle,
)
from ...engine.graph.transformation import Input, Transformation
from ..dead_letters import DEAD_LETTERS
from ..functions.user_functions import OutputTag
from ..functions.user_functions import Partitioner as PartitionerFunction
from ..functions.validation import require_function, stateless_method
from ..jobs.environment import Environment
from ..specs.changelogs import check_changelogs
from ..specs.columns import to_key_selector
from ..specs.known_columns import check_columns, check_key_columns
from ..specs.known_types import check_types
from ..specs.records import OperatorSpec
from ..specs.schemas import scalars_of_inputs, schema_of_inputs
from ..types.declared import Declared, declared_records
from ..types.type_classes import PickledBytesTypeInfo, TypeInformation, type_of_columns
from .settings import OperatorSettings

Out = TypeVar("Out", bound=OperatorSettings)
"""What operators and views give: `DataStream`."""


class Stream(OperatorSettings, ABC, Generic[Out]):
    """Inputs of the next operator, and where it is recorded."""

    def __init__(
        self, env: Environment, inputs: tuple[Input, ...], operator: Transformation | None = None
    ) -> None:
        super().__init__(operator)
        self._env = env
        self._inputs = inputs

    def __repr__(self) -> str:
        sources = ", ".join(one.source.name for one in self._inputs)
        return f"{type(self).__name__}({sources})"

    # --- views -------------------------------------------------------------------------------

    def get_side_output(self, output_tag: OutputTag) -> Out:
        """What this operator emits under the tag, as records of the tag's type if it has one."""
        if not isinstance(output_tag, OutputTag):
            raise ConfigurationError(f"get_side_output: expected an OutputTag, got {output_tag!r}")
        operator = self._settable("get_side_output")
        _declare_side(operator, output_tag)
        return self._stream((Input(operator, output_tag.tag_id),))

    def get_dead_letters(self) -> Out:
        """The records that this operator puts aside, as rows (`api/dead_letters.LETTER`), each with
        the event time of its record. If nobody reads them they are counted and logged all the
        same. GraphError unless `on_error(dead_letters(...))` was called before."""
        operator = self._settable("get_dead_letters")
        if operator.spec.on_error is None:
            raise GraphError(
                f"get_dead_letters: operator '{operator.name}' puts no records aside: call "
                "on_error(dead_letters(limit=...)) right behind it first"
            )
        return self._stream((Input(operator, DEAD_LETTERS),))

    def forward(self) -> Out:
        """Subtask i to subtask i; the next operator must have the same parallelism."""
        return self._view(Forward())

    def rebalance(self) -> Out:
        """Round-robin over all subtasks of the next operator, batch by batch."""
        return self._view(Rebalance())

    def rescale(self) -> Out:
        """Round-robin over a share of the next operator's subtasks."""
        return self._view(Rescale())

    def shuffle(self) -> Out:
        """Each record to a random subtask."""
        return self._view(Shuffle())

    def global_(self) -> Out:
        """Everything to the first subtask."""
        return self._view(Global())

    def partition_custom(self, partitioner: Any, key_selector: Any) -> Out:
        """To subtask `partitioner(key, number of subtasks)`: a callable or a Partitioner; the key
        as in `key_by`, a list or tuple of several columns."""
        require_function("partition_custom", partitioner, PartitionerFunction)
        if isinstance(partitioner, PartitionerFunction):
            partitioner = stateless_method("partition_custom", partitioner, "partition")
        keys = key_selector if isinstance(key_selector, (list, tuple)) else (key_selector,)
        key = to_key_selector("partition_custom", tuple(keys))
        check_key_columns("partition_custom", self._inputs, key)
        return self._view(Custom(partitioner, key))

    # --- inside ------------------------------------------------------------------------------

    @abstractmethod
    def _stream(self, inputs: tuple[Input, ...], operator: Transformation | None = None) -> Out:
        """A stream of this environment."""

    def _apply(
        self,
        spec: OperatorSpec,
        name: str,
        inputs: tuple[Input, ...] | None = None,
        **settings: Any,
    ) -> Out:
        """The stream of results of a new operator; on this stream unless `inputs` are given."""
        if inputs is None:
            check_columns(spec, self._inputs)
            check_types(spec, self._inputs)
        check_changelogs(spec, name, self._inputs if inputs is None else inputs)
        operator = self._add(spec, name, inputs, **settings)
        return self._stream((Input(operator),), operator)

    def _add(
        self,
        spec: OperatorSpec,
        name: str,
        inputs: tuple[Input, ...] | None = None,
        **settings: Any,
    ) -> Transformation:
        read = self._inputs if inputs is None else inputs
        return self._env._add_operator(spec, name, read, **settings)

    def _partitioned(self, partitioner: Partitioner) -> tuple[Input, ...]:
        return tuple(replace(one, partitioner=partitioner) for one in self._inputs)

    def _view(self, partitioner: Partitioner) -> Out:
        return self._stream(self._partitioned(partitioner))


def known_schema(stream: Stream[Any]) -> pa.Schema | None:
    """The columns that every batch of the stream will have; None where that is not known (Python
    objects, functions without a declared type), or where united streams differ."""
    return schema_of_inputs(stream._inputs)


def known_records(stream: Stream[Any]) -> Declared | None:
    """What every record of the stream will be: of these columns, or one value of a declared type;
    None where that is not known."""
    schema = known_schema(stream)
    return scalars_of_inputs(stream._inputs) if schema is None else schema


def type_of_records(stream: Stream[Any]) -> TypeInformation:
    """Rows or tuples of the columns that the program tells, the type that values are declared as,
    else Python objects. Columns do not tell CHAR from STRING, nor arrays from lists."""
    known = known_records(stream)
    if known is None:
        return PickledBytesTypeInfo()
    return type_of_columns(known) if isinstance(known, pa.Schema) else known.info


def _declare_side(operator: Transformation, tag: OutputTag) -> None:
    """Have the operator emit records of the tag's type under it."""
    declared = declared_records(tag.type_info)
    if declared is None:
        return
    sides = dict(operator.spec.side_types)
    before = sides.setdefault(tag.tag_id, declared)
    if before != declared:
        raise GraphError(
            f"get_side_output: operator '{operator.name}' has the side output '{tag.tag_id}' "
            f"declared twice, as {before} and as {declared}: use one OutputTag for it"
        )
    operator.spec = replace(operator.spec, side_types=tuple(sides.items()))


class Keyed(Stream[Out]):
    """A stream partitioned by `_key`."""

    _key: KeySelector
