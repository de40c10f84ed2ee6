"""Small files of several checkpoints are merged into one before they are published.

    checkpoint n completes       its small files move to `.staging/.../held/`: durable, not visible
    barrier m, enough is held    the held files and those of m are merged into one staged file
    checkpoint m completes       the merged file is published, then what it was made of is removed

Every checkpoint's committables name each file that is held exactly once, so a restore at any point
has all of them, at any parallelism: a file that a checkpoint not yet complete names is neither
named by the next one nor merged by it. Each step can be repeated: a file moves to the same place, a
merged file that did not get into a complete checkpoint is a leftover like any other, and what was
merged is removed only after the merged file is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from ...core.errors import ConfigurationError, ConnectorError
from .encoders import ROW_GROUP_ROWS, ParquetEncoder
from .staging import FileCommittable, StagingArea

_PIECE = 8 << 20
"""Bytes copied at once."""


@dataclass(frozen=True)
class FileCompactStrategy:
    """When the files of a folder are merged: when as many checkpoints as this have completed since
    the oldest one's, or when they have so many bytes together; None: not for that reason. threads:
    for the folders of one subtask."""

    checkpoints: int | None
    size_threshold: int | None
    threads: int = 1

    def __post_init__(self) -> None:
        given = {
            "the number of checkpoints": self.checkpoints,
            "the size threshold": self.size_threshold,
            "the number of threads": self.threads,
        }
        wrong = [f"{name} is {n}" for name, n in given.items() if n is not None and n < 1]
        if wrong:
            raise ConfigurationError(f"compaction: {', '.join(wrong)}, must be at least 1")
        if self.checkpoints is None and self.size_threshold is None:
            raise ConfigurationError(
                "a FileCompactStrategy must say when: enable_compaction_on_checkpoint(n), "
                "set_size_threshold(bytes), or both"
            )

    @staticmethod
    def builder() -> FileCompactStrategyBuilder:
        return FileCompactStrategyBuilder()

    def due(self, files: Sequence[HeldFile]) -> bool:
        """Whether these files of one folder are merged now."""
        oldest = max(file.age for file in files)
        return (self.checkpoints is not None and oldest >= self.checkpoints) or (
            self.size_threshold is not None
            and sum(file.size for file in files) >= self.size_threshold
        )


class FileCompactStrategyBuilder:
    """PyFlink's way to make a `FileCompactStrategy`."""

    def __init__(self) -> None:
        self._checkpoints: int | None = None
        self._size: int | None = None
        self._threads = 1

    def enable_compaction_on_checkpoint(
        self, num_checkpoints_before_compaction: int
    ) -> FileCompactStrategyBuilder:
        self._checkpoints = num_checkpoints_before_compaction
        return self

    def set_size_threshold(self, size_threshold: int) -> FileCompactStrategyBuilder:
        self._size = size_threshold
        return self

    def set_num_compact_threads(self, num_compact_threads: int) -> FileCompactStrategyBuilder:
        self._threads = num_compact_threads
        return self

    def build(self) -> FileCompactStrategy:
        return FileCompactStrategy(self._checkpoints, self._size, self._threads)


@dataclass(frozen=True)
class FileCompactor:
    """How files are merged. delimiter: between the contents of two."""

    kind: Literal["concat", "records", "identical"]
    delimiter: bytes = b""

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | str | None = None) -> FileCompactor:
        """The bytes of the files, one file's after the other's; of CSV with one header line."""
        given = file_delimiter or b""
        return FileCompactor("concat", given.encode() if isinstance(given, str) else given)

    @staticmethod
    def record_wise_file_compactor() -> FileCompactor:
        """The records of the files, written anew as one file: for Parquet, CSV, JSON Lines."""
        return FileCompactor("records")

    @staticmethod
    def identical_file_compactor() -> FileCompactor:
        """Nothing is merged: each file is published as it is, also those that an earlier run of the
        job, which merged, still held. The way out of compaction."""
        return FileCompactor("identical")

    def check(self, format: str) -> None:
        """Raises ConfigurationError if files of this format cannot be merged so."""
        if self.kind == "concat" and format == "parquet":
            raise ConfigurationError(
                "Parquet files put one after the other are no Parquet file: compact them with "
                "FileCompactor.record_wise_file_compactor()"
            )
        if self.kind == "records" and format == "row":
            raise ConfigurationError(
                "the records of a row format cannot be read back: compact its files with "
                "FileCompactor.concat_file_compactor()"
            )
        if self.delimiter and format == "csv":
            raise ConfigurationError(
                f"a delimiter between CSV files would be rows of {self.delimiter!r}: give none"
            )


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A complete file that waits to be merged.

    staged, held: where it is before its checkpoint completed and after. final: the name under which
    it is published if it is never merged. layout: only files of the same are merged. header: bytes
    at the beginning that a merged file has once. age: checkpoints that named it.
    """

    staged: str
    held: str
    final: str
    folder: str
    rows: int
    size: int
    layout: str
    header: int
    age: int = 1


@dataclass(frozen=True, slots=True)
class MergedFile:
    """A staged file made of others, which go away when it is published."""

    whole: FileCommittable
    made_of: tuple[HeldFile, ...]


class Compaction:
    """Merges the files of one sink subtask. `prepared` runs beside the task's thread."""

    def __init__(
        self,
        strategy: FileCompactStrategy,
        compactor: FileCompactor,
        area: StagingArea,
        compression: str,
    ) -> None:
        self._strategy = strategy
        self._compactor = compactor
        self._area = area
        self._compression = compression

    def prepared(
        self, held: Sequence[HeldFile], new: Sequence[HeldFile], checkpoint_id: int, last: bool
    ) -> list[HeldFile | MergedFile | FileCommittable]:
        """What a checkpoint says of files: `held` before it, in the held folder, and `new` ones,
        staged. last: nothing is held any longer."""
        known = [replace(file, age=file.age + 1) for file in held]
        where = {file.staged: file.held for file in known}
        waiting: dict[tuple[str, str], list[HeldFile]] = {}
        out: list[HeldFile | MergedFile | FileCommittable] = []
        for file in [*known, *new]:
            if self._large(file):
                out.append(_published(file, where))
            else:
                waiting.setdefault((file.folder, file.layout), []).append(file)
        alone = self._compactor.kind == "identical"
        due = [fs for fs in waiting.values() if last or alone or self._strategy.due(fs)]
        out += [f for files in waiting.values() if files not in due for f in files]
        out += [_published(f, where) for files in due if alone or len(files) == 1 for f in files]
        several = [] if alone else [files for files in due if len(files) > 1]
        merge = partial(self._merged, where, checkpoint_id, len(new))
        if self._strategy.threads > 1 and len(several) > 1:
            with ThreadPoolExecutor(min(self._strategy.threads, len(several))) as pool:
                out += pool.map(merge, range(len(several)), several)
        else:
            out += [merge(number, files) for number, files in enumerate(several)]
        return out

    def _large(self, file: HeldFile) -> bool:
        threshold = self._strategy.size_threshold
        return threshold is not None and file.size >= threshold

    def _merged(
        self,
        where: dict[str, str],
        checkpoint_id: int,
        first: int,
        number: int,
        files: Sequence[HeldFile],
    ) -> MergedFile:
        """`first + number` counts the files that this subtask names in this checkpoint."""
        rows = sum(file.rows for file in files)
        paths = [where.get(file.staged, file.staged) for file in files]
        staged, out = self._area.create()
        try:
            if files[0].layout.startswith(PARQUET):
                merge_parquet(self._area, paths, out, self._compression)
            else:
                merge_bytes(self._area, paths, out, self._compactor.delimiter, files[0].header)
            size = int(out.tell())
            self._area.seal(out)
        except BaseException as error:
            out.close()
            self._area.discard(staged)
            if not isinstance(error, (OSError, pa.ArrowException)):
                raise
            raise ConnectorError(
                f"cannot merge {len(paths)} files of '{self._area.folder}' into '{staged}': {error}"
            ) from error
        final = self._area.final_path(checkpoint_id, first + number, files[0].folder)
        return MergedFile(FileCommittable(staged, final, rows, size), tuple(files))


PARQUET = "parquet "
"""What the layouts of Parquet files begin with."""


def merge_parquet(
    area: StagingArea, paths: Iterable[str], out: IO[bytes], compression: str
) -> None:
    """Write the rows of the files, of one schema, into the open file."""
    encoder: ParquetEncoder | None = None
    try:
        for path in paths:
            with area.fs.open(path, "rb") as opened, pq.ParquetFile(opened) as file:
                if encoder is None:
                    encoder = ParquetEncoder(out, file.schema_arrow, compression)
                for batch in file.iter_batches(ROW_GROUP_ROWS):
                    encoder.write(batch)
        if encoder is not None:
            encoder.finish()
    except BaseException:
        if encoder is not None:
            encoder.abandon()
        raise


def merge_bytes(
    area: StagingArea, paths: Sequence[str], out: IO[bytes], delimiter: bytes, header: int
) -> None:
    """Write the files one after the other; all but the first without their header."""
    for number, path in enumerate(paths):
        with area.fs.open(path, "rb") as opened:
            if number:
                opened.seek(header)
                out.write(delimiter)
            while piece := opened.read(_PIECE):
                out.write(piece)


def _published(file: HeldFile, where: dict[str, str]) -> FileCommittable:
    """The file by itself, from where it is."""
    return FileCommittable(where.get(file.staged, file.staged), file.final, file.rows, file.size)
