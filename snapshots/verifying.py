"""`verify`: whether a snapshot is what it says, all of it.

Every file has its size and checksum, is Arrow, and holds the rows of key groups that the manifest
says, sorted, within the range of its subtask; and every key is in the group that its hash gives.
Where files alone cannot tell the key (see `keys`), that is said, not passed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..checkpoint.handles import FileHandle
from ..core.errors import CheckpointError, StateError
from ..core.ids import OperatorId
from ..state.key_groups import range_for
from ..state.stored import KEY_GROUP, StateTable
from .keys import LIKELY, Candidate, candidates, groups_in
from .per_group import is_per_group
from .pickles import are_pickles
from .snapshot import Snapshot
from .stored import KeyedPart, StoredStates


@dataclass
class Verified:
    """What was found. `problems`: a sentence for each, in order of the files; `unchecked`: states
    whose keys could not be held against their groups, and why."""

    files: int = 0
    bytes: int = 0
    rows: int = 0
    problems: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems


def verified(snapshot: Snapshot) -> Verified:
    """Never raises for what is in the files: that is a problem."""
    stored, found = snapshot.stored, Verified()
    operators = {one.operator for subtask in stored.manifest.subtasks for one in subtask.operators}
    for operator in sorted(operators):
        try:
            stored.shape(operator)
        except CheckpointError as error:
            found.problems.append(str(error))
            continue
        seen: set[FileHandle] = set()
        for part in stored.keyed_parts(operator):
            _verify_part(stored, part, found, seen)
        _verify_operator_state(stored, operator, found)
    _verify_in_flight(stored, found)
    return found


def _verify_in_flight(stored: StoredStates, found: Verified) -> None:
    for handle in stored.in_flight_handles():
        found.files += 1
        found.bytes += handle.file.size
        try:
            table = stored.in_flight_of(handle)
        except CheckpointError as error:
            found.problems.append(str(error))
            continue
        found.rows += table.num_rows
        edges = set(table.column("edge").to_pylist())
        if edges != set(handle.edges):
            named, there = ", ".join(handle.edges), ", ".join(sorted(map(str, edges)))
            found.problems.append(
                f"{handle.file.path}: the manifest tells of records in flight on the edges "
                f"{named}, the file has those of {there}"
            )


def _verify_part(
    stored: StoredStates, part: KeyedPart, found: Verified, seen: set[FileHandle]
) -> None:
    """`seen`: the files of parts before it, for states may lie in one database."""
    new = [file for file in part.files if file not in seen]
    seen.update(new)
    found.files += len(new)
    found.bytes += sum(file.size for file in new)
    try:
        table = stored.part(part)
    except (CheckpointError, StateError) as error:
        found.problems.append(str(error))
        return
    found.rows += table.data.num_rows
    shape = stored.shape(part.operator)
    place = f"{part.files[0].path} (operator '{shape.name}', state '{table.name}')"
    if part.subtask < shape.parallelism:
        owned = range_for(part.subtask, shape.parallelism, shape.max_parallelism, shape.deal)
        groups = np.unique(table.data.column(KEY_GROUP).to_numpy()).tolist()
        outside = [group for group in groups if group not in owned]
        if outside:
            found.problems.append(
                f"{place}: key group {outside[0]} is not of subtask {part.subtask}, which has "
                f"{owned.first} to {owned.last}"
            )
    _verify_keys(table, shape.max_parallelism, place, found)


def _verify_keys(table: StateTable, max_parallelism: int, place: str, found: Verified) -> None:
    if not table.data.num_rows or is_per_group(table):
        return
    groups = groups_in(table)
    best: tuple[float, Candidate, int] | None = None
    hidden: tuple[str, ...] = ()
    """Columns of pickles of which no one can be hashed."""
    for one in candidates(table):
        known = int(one.known.sum())
        if not known:
            if are_pickles(table.data.column(one.columns[0]).to_pylist()):
                hidden = one.columns
            continue
        wrong = one.wrong(groups, max_parallelism)
        if not len(wrong):
            if known < table.data.num_rows:
                left = table.data.num_rows - known
                found.unchecked.append(f"{place}: {left} keys need their classes to be hashed")
            return
        share = 1 - len(wrong) / known
        if best is None or share > best[0]:
            best = share, one, int(wrong[0])
    if best is None or (best[1].columns == hidden and not best[1].pickled):
        found.unchecked.append(f"{place}: keys need their classes to be hashed")
        return
    share, one, row = best
    told = table.kind not in ("rows", "buffer")
    if told or (share >= 1 - 1 / LIKELY and table.data.num_rows >= LIKELY):
        right = int(one.groups(max_parallelism)[row])
        found.problems.append(
            f"{place}: row {row} is in key group {int(np.int64(groups[row]))}, by the hash of "
            f"{', '.join(one.columns)} it belongs in {right}"
        )
    else:
        found.unchecked.append(f"{place}: which columns are the key is not in the files")


def _verify_operator_state(stored: StoredStates, operator: OperatorId, found: Verified) -> None:
    handles = [handle.file for _, handle in stored.operator_parts(operator)]
    found.files += len(handles)
    found.bytes += sum(file.size for file in handles)
    try:
        found.rows += stored.operator_state(operator).num_rows
    except CheckpointError as error:
        found.problems.append(str(error))
