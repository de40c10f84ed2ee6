"""What a snapshot leaves out because an earlier one holds it: the words for it, a leaf of `state`.

A state that records what is written gives, instead of all its rows, those that changed since the
newest complete snapshot. Its rows lie in *layers*, the oldest first: a base, and deltas over it.

    layer    holds                                                        written by
    whole    all rows; no other snapshot refers to it                     every state
    base     all rows; deltas of later snapshots may lie over it          states that record
    delta    what changed since the snapshot that it continues            states that record

A delta has the columns of the base and one more, `__removed`:

    __key_group  __removed
    >= 0         false      a row, which replaces all rows of older layers with its identity
    >= 0         true       the rows of older layers with this identity are gone
    -1           true       the rows of older layers with this scope are gone; for every reader

Where rows have no key of their own, such as the entries of a key, they have the number of their
place, `__slot`, which is identity and scope: within a key group rows are in the order of it.

`identity` and `scope` are lists of columns, in the metadata of the delta. Rows of one identity are
of one key group, so a reader of some key groups needs of each layer their rows, and those of -1.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from ..core.ids import NO_CHECKPOINT, CheckpointId

Layer = Literal["whole", "base", "delta"]

REMOVED: Final = "__removed"
"""Last column of every delta: bool."""

SLOT: Final = "__slot"
"""A column of bases and deltas: int64, distinct in what they make together; of buffers, in one
namespace."""

OWNER: Final = "__owner"
PART: Final = "__part"
"""Columns of bases and deltas of the row face, see `row_deltas`."""

BESIDE: Final = (REMOVED, SLOT, OWNER, PART)
"""Columns that only bases and deltas have."""

IDENTITY: Final = "identity"
SCOPE: Final = "scope"
"""In the metadata of a delta: columns, as a JSON list."""

EVERY_GROUP: Final = -1
"""The key group of rows that each reader of a delta needs."""


@dataclass(frozen=True)
class Since:
    """What a snapshot may leave out. `base`: the newest complete snapshot; those taken after it
    have failed, or may still complete. `whole`: states that are to be written whole all the same,
    by their names."""

    checkpoint_id: CheckpointId
    base: CheckpointId = NO_CHECKPOINT
    whole: Collection[str] = ()


@dataclass
class Continuity:
    """Whether a state's record of changes fits what a snapshot is to continue.

    Invariant: changes are recorded since `_base`, if there is one, and apart from these since
    `_last`."""

    _base: CheckpointId = field(default=NO_CHECKPOINT)
    _last: CheckpointId = field(default=NO_CHECKPOINT)

    def advance(self, since: Since) -> Literal["completed", "failed", "unknown"]:
        """What became of the snapshot before: with it completed changes since it count, with it
        failed, or not known to be complete, also those before; unknown: nothing is recorded since
        the base, as where others were taken behind it before it was complete, nor will be: what
        comes next is unknown, too, unless this one completes."""
        last, former = self._last, self._base
        self._base, self._last = since.base, since.checkpoint_id
        if since.base != NO_CHECKPOINT:
            if since.base == last:
                return "completed"
            if since.base == former:
                return "failed"
        self._base = NO_CHECKPOINT
        return "unknown"


def columns_text(columns: Sequence[str]) -> str:
    """Names of columns as metadata holds them."""
    return json.dumps(list(columns))
