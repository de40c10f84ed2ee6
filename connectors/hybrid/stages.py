"""The sources of a hybrid source, and what its enumerator and its readers tell each other.

Source number `stage` is read by all readers until the last of them has read the last of its splits.
How the enumerator learns of that: a question for splits says nothing of what was read, unless the
reader was told before that there will be no more (`News.over`); a reader that knows this asks again
only when it has read all. So that no question can be an older one, which such news crossed on its
way, each question gets exactly one answer, and none is empty: the first item is always a `News`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from ...api.connectors.base import Source, SplitEnumerator
from ...api.specs.records import is_elsewhere
from ...core.errors import ConfigurationError, StromError

SourceFactory = Callable[[SplitEnumerator], Source]
"""Makes the next source of the enumerator of the former, whose splits have all been read."""


@dataclass(frozen=True)
class Stage:
    """One of the sources, or what makes it. `bounded`: whether it ends by itself."""

    source: Source | SourceFactory
    bounded: bool

    @property
    def name(self) -> str:
        """What messages call it, and checkpoints, which are refused if it is another one."""
        return type(self.source).__name__ if isinstance(self.source, Source) else "a factory"

    @property
    def reads(self) -> tuple[str, ...]:
        """What it reads, as far as it says; of a factory nothing."""
        return self.source.reads_from() if isinstance(self.source, Source) else ()


@dataclass(frozen=True, slots=True)
class StageSplit:
    """A split of the source number `stage`."""

    stage: int
    split: Any

    @property
    def split_id(self) -> str:
        return f"{self.stage}/{self.split.split_id}"


@dataclass(frozen=True)
class Records:
    """What all sources' records are: `schema` None: Python objects. `upsert_key`: as of `Source`"""

    schema: pa.Schema | None
    upsert_key: tuple[str, ...] | None


@dataclass(frozen=True)
class News:
    """What a reader is told with each answer: a split that holds no records.

    source: the source number `stage`, pickled, in the first answer that a reader gets of it.
    over: it has no splits for this reader but those given by now. pause: there is nothing to ask
    for now, but there will be.
    """

    split_id: ClassVar[str] = ""

    stage: int
    source: bytes | None = None
    records: Records | None = None
    over: bool = False
    pause: bool = False


@dataclass(frozen=True)
class HybridState:
    """Of the enumerator: which source is being read, and what of it is not assigned.

    names: of all sources. made: by their number, the sources that factories have made, pickled:
    a factory that is asked again may make another one. reads: what each source reads; older
    checkpoints do not say it.
    """

    stage: int
    names: tuple[str, ...]
    state: Any
    records: Records
    made: dict[int, bytes]
    reads: tuple[tuple[str, ...], ...] = ()


def known_records(source: Source) -> Records | None:
    """None if that cannot be told here: what the columns are read from is not there yet."""
    try:
        return Records(plain(source.schema), source.upsert_key)
    except (StromError, OSError, ImportError) as error:
        if is_elsewhere(error):
            return None
        raise


def plain(schema: pa.Schema | None) -> pa.Schema | None:
    """Names and types only."""
    if schema is None:
        return None
    return pa.schema([(field.name, field.type) for field in schema])


def check_same(first: Records, other: Records, stage: int, name: str) -> None:
    """ConfigurationError unless source number `stage` has the first one's records."""
    who = f"HybridSource: source {stage + 1} ({name})"
    left, right = first.schema, other.schema
    if left is None or right is None:
        if (left is None) != (right is None):
            what = ("Python objects", "rows with columns")
            raise ConfigurationError(
                f"{who} gives {what[right is not None]}, the first {what[left is not None]}: give "
                "all of them the same schema, or none of them one"
            )
    else:
        differs = _difference(left, right)
        if differs is not None:
            raise ConfigurationError(
                f"{who} does not have the first one's columns: {differs}. All sources of a "
                "HybridSource must have the same columns: declare the same schema for all"
            )
    if first.upsert_key != other.upsert_key:
        raise ConfigurationError(
            f"{who} is an upsert changelog by {other.upsert_key}, the first by "
            f"{first.upsert_key}: all sources of a HybridSource must have the same key, or none"
        )


def _difference(left: pa.Schema, right: pa.Schema) -> str | None:
    for field in left:
        if field.name not in right.names:
            return f"it has no column '{field.name}'"
        found = right.field(field.name).type
        if found != field.type:
            return f"column '{field.name}' is {found}, in the first {field.type}"
    extra = [name for name in right.names if name not in left.names]
    return f"the first has no column '{extra[0]}'" if extra else None
