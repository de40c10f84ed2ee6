"""`HybridSource`: bounded sources one after the other, and at last one that may have no end.

history = FileSource("flights/2013", schema=schema)
live = KafkaSource("localhost:9092", "flights", value=JsonFormat(schema))
env.from_source(HybridSource.builder(history).add_source(live).build())
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ...api.connectors.base import EnumeratorContext, ReaderContext, Source
from ...core.errors import ConfigurationError
from .enumerator import HybridEnumerator
from .reader import HybridReader
from .stages import Records, SourceFactory, Stage, check_same, known_records


class HybridSource(Source):
    """Reads each source to its end, in all subtasks, before any reads of the next. Made by
    `builder`. Checkpoints hold which source is being read; those before it are not looked at after
    a restore."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        """For the builder, which has checked them."""
        self._stages = tuple(stages)

    def __repr__(self) -> str:
        return f"HybridSource({', '.join(stage.name for stage in self._stages)})"

    @staticmethod
    def builder(first_source: Source) -> HybridSourceBuilder:
        return HybridSourceBuilder(first_source)

    @property
    def bounded(self) -> bool:
        return self._stages[-1].bounded

    @property
    def schema(self) -> pa.Schema | None:
        return self._first.schema

    @property
    def upsert_key(self) -> tuple[str, ...] | None:
        return self._first.upsert_key

    def create_enumerator(
        self, context: EnumeratorContext, restored: Any | None
    ) -> HybridEnumerator:
        return HybridEnumerator(self._stages, context, restored)

    def create_reader(self, context: ReaderContext) -> HybridReader:
        return HybridReader(self._stages, context)

    @property
    def _first(self) -> Source:
        first = self._stages[0].source
        assert isinstance(first, Source)
        return first


class HybridSourceBuilder:
    """`HybridSource.builder(first).add_source(next).build()`."""

    def __init__(self, first_source: Source) -> None:
        if not isinstance(first_source, Source):
            raise ConfigurationError(
                f"HybridSource.builder: expected a Source, got {first_source!r}"
            )
        self._stages = [Stage(first_source, first_source.bounded)]

    def add_source(
        self, source: Source | SourceFactory, *, bounded: bool = False
    ) -> HybridSourceBuilder:
        """The next source; or a function that makes it of the former's enumerator, when all of that
        was read: `bounded` says then whether what it makes ends by itself."""
        if isinstance(source, Source):
            self._stages.append(Stage(source, source.bounded))
        elif callable(source):
            self._stages.append(Stage(source, bounded))
        else:
            raise ConfigurationError(
                "HybridSource: add_source takes a Source, or a function that makes one of the "
                f"former's enumerator, got {source!r}"
            )
        return self

    def build(self) -> HybridSource:
        """ConfigurationError if one that is not the last never ends, or columns differ. Columns
        that are not known yet are compared when the job comes to the source."""
        for number, stage in enumerate(self._stages[:-1]):
            if not stage.bounded:
                raise ConfigurationError(
                    f"HybridSource: source {number + 1} of {len(self._stages)} ({stage.name}) "
                    "never ends, so nothing behind it would be read: only the last may be "
                    "unbounded"
                )
        first: Records | None = None
        for number, stage in enumerate(self._stages):
            records = known_records(stage.source) if isinstance(stage.source, Source) else None
            if number == 0:
                first = records
            elif first is not None and records is not None:
                check_same(first, records, number, stage.name)
        return HybridSource(self._stages)
