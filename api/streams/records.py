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
from ..types.declared import declared_records
from ..watermarks import WatermarkStrategy
from .stream import Out, Stream

BatchFormat = Literal["arrow", "polars", "pandas", "numpy"]


def require_format(method: str, batch_format: BatchFormat) -> BatchFormat:
    """One of those that batch functions may ask for; ConfigurationError naming `method`."""
    formats = ("arrow", "polars", "pandas", "numpy")
    if batch_format not in formats:
        raise ConfigurationError(
            f"{method}: batch_format must be one of {formats}, is {batch_format!r}"
        )
    return batch_format


class Records(Stream[Out]):
    """Part of `DataStream`."""

    # --- record by record --------------------------------------------------------------------

    def map(self, func: Any, output_type: Any = None) -> Out:
        """One result per record: a callable or MapFunction."""
        require_function("map", func, MapFunction)
        return self._apply(MapSpec(func, declared_records(output_type)), "Map")

    def flat_map(self, func: Any, output_type: Any = None) -> Out:
        """Any number of results per record: a callable giving an iterable, or FlatMapFunction."""
        require_function("flat_map", func, FlatMapFunction)
        return self._apply(FlatMapSpec(func, declared_records(output_type)), "FlatMap")

    def filter(self, *predicates: Any, func: Any = None) -> Out:
        """Records for which the function is true, or all of the polars expressions are. `func`: the
        function, by its PyFlink name."""
        if func is not None:
            predicates = (*predicates, func)
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
        return self._apply(ProcessSpec(func, declared_records(output_type)), "Process")

    # --- batch by batch ----------------------------------------------------------------------

    def select(self, *columns: Any, **named: Any) -> Out:
        """These columns (names or polars expressions) only; `named` ones get the keyword's name. A
        changelog keeps its row kinds, unless `__row_kind` is named among them: then what is said of
        it holds."""
        expressions = to_columns("select", columns, named)
        return self._apply(ExpressionSpec("select", expressions), "Select")

    def with_columns(self, *columns: Any, **named: Any) -> Out:
        """All columns, with these added or replaced."""
        expressions = to_columns("with_columns", columns, named)
        return self._apply(ExpressionSpec("with_columns", expressions), "WithColumns")

    def map_batches(
        self, func: Any, batch_format: BatchFormat = "arrow", output_type: Any = None
    ) -> Out:
        """`func` maps a batch to a batch of any length, with the columns of `output_type`, if there
        is one, in any order, and no others. A class is instantiated once per subtask, without
        arguments, and its instance called for each batch."""
        require_batch_function("map_batches", func)
        require_format("map_batches", batch_format)
        spec = MapBatchesSpec(func, batch_format, declared_records(output_type))
        return self._apply(spec, "MapBatches")

    # --- time --------------------------------------------------------------------------------

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> Out:
        """Timestamps and watermarks from here on; those of before are replaced."""
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise ConfigurationError(
                "assign_timestamps_and_watermarks: expected a WatermarkStrategy, got "
                f"{watermark_strategy!r}"
            )
        if watermark_strategy.alignment is not None:
            raise ConfigurationError(
                "assign_timestamps_and_watermarks: watermark alignment makes a source wait, so it "
                "must be in the strategy that from_source is given"
            )
        return self._apply(WatermarkSpec(watermark_strategy), "Timestamps/Watermarks")

    def with_event_time(self, column: str) -> Out:
        """The records with their event times taken from this column (timestamp, date or integer ms
        since the epoch; no nulls). Watermarks stay as they are, unlike with
        `assign_timestamps_and_watermarks`: a record whose time they have passed is late to whatever
        follows."""
        require_text("with_event_time", "column", column)
        return self._apply(EventTimeSpec(column), f"EventTime({column})")
