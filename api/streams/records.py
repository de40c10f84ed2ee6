"""Record by record and batch by batch: what every stream offers, keyed or not."""

from __future__ import annotations

from typing import Any, Literal

from ...core.errors import ConfigurationError
from ..functions.user_functions import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ProcessFunction,
)
from ..functions.validation import (
    is_expression,
    require_batch_function,
    require_function,
    require_instance,
    require_text,
)
from ..specs.columns import to_columns
from ..specs.records import (
    ExpressionSpec,
    FilterSpec,
    FlatMapSpec,
    MapBatchesSpec,
    MapSpec,
    ProcessSpec,
    WatermarkSpec,
)
from ..specs.tables import EventTimeSpec
from ..types.type_info import schema_of
from ..watermarks import WatermarkStrategy
from .stream import Out, Stream

BatchFormat = Literal["arrow", "polars", "pandas", "numpy"]


class Records(Stream[Out]):
    """Part of `DataStream`."""

    # --- record by record --------------------------------------------------------------------

    def map(self, func: Any, output_type: Any = None) -> Out:
        """One result per record: a callable or MapFunction."""
        require_function("map", func, MapFunction)
        return self._apply(MapSpec(func, schema_of(output_type)), "Map")

    def flat_map(self, func: Any, output_type: Any = None) -> Out:
        """Any number of results per record: a callable giving an iterable, or FlatMapFunction."""
        require_function("flat_map", func, FlatMapFunction)
        return self._apply(FlatMapSpec(func, schema_of(output_type)), "FlatMap")

    def filter(self, *predicates: Any) -> Out:
        """Records for which the function is true, or all of the polars expressions are."""
        if predicates and all(is_expression(p) for p in predicates):
            return self._apply(ExpressionSpec("filter", predicates), "Filter")
        if len(predicates) != 1:
            raise ConfigurationError(
                f"filter: give one function or polars expressions, got {predicates!r}"
            )
        require_function("filter", predicates[0], FilterFunction)
        return self._apply(FilterSpec(predicates[0]), "Filter")

    def process(self, func: ProcessFunction, output_type: Any = None) -> Out:
        """Results are yielded by `func.process_element`; side outputs by `yield tag, value`."""
        require_instance("process", func, ProcessFunction, hint="for keyed state use key_by first")
        return self._apply(ProcessSpec(func, schema_of(output_type)), "Process")

    # --- batch by batch ----------------------------------------------------------------------

    def select(self, *columns: Any, **named: Any) -> Out:
        """These columns (names or polars expressions) only; `named` ones get the keyword's name."""
        expressions = to_columns("select", columns, named)
        return self._apply(ExpressionSpec("select", expressions), "Select")

    def with_columns(self, *columns: Any, **named: Any) -> Out:
        """All columns, with these added or replaced."""
        expressions = to_columns("with_columns", columns, named)
        return self._apply(ExpressionSpec("with_columns", expressions), "WithColumns")

    def map_batches(
        self, func: Any, batch_format: BatchFormat = "arrow", output_type: Any = None
    ) -> Out:
        """`func` maps a batch to a batch of any length. A class is instantiated once per subtask,
        without arguments, and its instance called for each batch."""
        require_batch_function("map_batches", func)
        formats = ("arrow", "polars", "pandas", "numpy")
        if batch_format not in formats:
            raise ConfigurationError(
                f"map_batches: batch_format must be one of {formats}, is {batch_format!r}"
            )
        spec = MapBatchesSpec(func, batch_format, schema_of(output_type))
        return self._apply(spec, "MapBatches")

    # --- time --------------------------------------------------------------------------------

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> Out:
        """Timestamps and watermarks from here on; those of before are replaced."""
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise ConfigurationError(
                "assign_timestamps_and_watermarks: expected a WatermarkStrategy, got "
                f"{watermark_strategy!r}"
            )
        return self._apply(WatermarkSpec(watermark_strategy), "Timestamps/Watermarks")

    def with_event_time(self, column: str) -> Out:
        """The records with their event times taken from this column (timestamp, date or integer ms
        since the epoch; no nulls). Watermarks stay as they are, unlike with
        `assign_timestamps_and_watermarks`: a record whose time they have passed is late to whatever
        follows."""
        require_text("with_event_time", "column", column)
        return self._apply(EventTimeSpec(column), f"EventTime({column})")
