"""What the writers of a file sink need to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ...core.errors import ConfigurationError
from ..json_types import explained, without_form
from .buckets import BucketAssigner
from .compaction import FileCompactor, FileCompactStrategy
from .csv_schema import CsvSchema
from .encoders import ENCODERS
from .partitions import unfit
from .rolling import OutputFileConfig, RollingPolicy
from .row_formats import Encoder

AVRO = "avro"

ROW = "row"
"""The format of files that an `Encoder` writes."""

CHECK_MS = 60_000


@dataclass(frozen=True)
class FileSinkConfig:
    """format: of `ENCODERS`, or ROW with `encoder`. buckets: folders by time, above those of
    `partition_by`; None: none. check_ms: how often files are looked for that are to be closed for
    their age; None: as often as their limits need, at most once a minute. csv: how CSV is told
    apart, if not as by default. avro: the schema of the format "avro", as JSON text.
    take_over: as of `FileSink`."""

    path: str
    format: str
    schema: pa.Schema | None
    partition_by: tuple[str, ...]
    rolling: RollingPolicy
    compression: str
    options: Mapping[str, Any] | None
    encoder: Encoder | None = None
    buckets: BucketAssigner | None = None
    names: OutputFileConfig = field(default_factory=OutputFileConfig)
    check_ms: int | None = None
    compact: FileCompactStrategy | None = None
    compactor: FileCompactor | None = None
    csv: CsvSchema | None = None
    avro: str | None = None
    take_over: bool = False

    def __post_init__(self) -> None:
        if self.format == AVRO and self.avro is None:
            raise ConfigurationError(
                "a FileSink of Avro files needs their schema: give FileSink.for_bulk_format(path, "
                "AvroWriters.for_generic_record(schema))"
            )
        if self.format not in (*ENCODERS, AVRO) and self.encoder is None:
            raise ConfigurationError(
                f"file format must be one of {list(ENCODERS)}, is {self.format!r}"
            )
        hidden = [name for name in self.partition_by if name.startswith(".")]
        if hidden:
            raise ConfigurationError(
                f"partition_by {hidden}: folders whose names begin with a dot are hidden from "
                "readers; rename the column"
            )
        if self.schema is not None:
            unknown = [name for name in self.partition_by if name not in self.schema.names]
            if unknown or len(self.partition_by) >= len(self.schema):
                raise ConfigurationError(
                    f"partition_by {list(self.partition_by)} must name some, not all, of the "
                    f"columns {self.schema.names}"
                )
            self._check_types(self.schema)
        if self.compact is not None:
            self.merging.check(self.format)
            if self.csv is not None or self.avro is not None:
                what = "CSV that a CsvSchema describes" if self.avro is None else "Avro"
                raise ConfigurationError(
                    f"a FileSink of {what} cannot compact its files: leave enable_compact away, or "
                    "write another format"
                )
        elif self.compactor is not None:
            raise ConfigurationError(
                "a FileSink with a compactor must say when to compact: give a FileCompactStrategy"
            )

    def _check_types(self, schema: pa.Schema) -> None:
        """What is not declared is found out with the first record."""
        odd = unfit(schema, self.partition_by)
        if odd is not None:
            raise ConfigurationError(f"a FileSink cannot partition by {odd}")
        inside = [field for field in schema if field.name not in self.partition_by]
        field = without_form(pa.schema(inside)) if self.format == "jsonl" else None
        if field is not None:
            raise ConfigurationError(f"a FileSink of JSON Lines: {explained(field)}")

    @property
    def merging(self) -> FileCompactor:
        """How files are merged."""
        if self.compactor is not None:
            return self.compactor
        return FileCompactor("concat" if self.format == ROW else "records")

    @property
    def suffix(self) -> str:
        """Of staged files."""
        if self.encoder is not None:
            return "rows"
        return AVRO if self.format == AVRO else str(ENCODERS[self.format].suffix)

    @property
    def ending(self) -> str:
        """Of published files."""
        if self.names.part_suffix is not None:
            return self.names.part_suffix
        return "" if self.encoder is not None else f".{self.suffix}"

    @property
    def check_every_ms(self) -> int | None:
        """None: files are not closed for their age."""
        limits = [n for n in (self.rolling.rollover_ms, self.rolling.inactivity_ms) if n]
        if not limits:
            return None
        return self.check_ms if self.check_ms is not None else min(*limits, CHECK_MS)
