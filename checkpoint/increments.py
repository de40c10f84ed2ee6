"""What one task's next checkpoint may build on: the files of the newest complete one.

A barrier says which checkpoint that is. So it does not matter when a task hears that a checkpoint
is complete, or that it failed. Another task may have heard other mail, but they all take snapshot n
over the same base. While it is on its way others may complete, and be what later ones build on: the
files of its base are kept until it has completed or failed (`kept_checkpoints`).

After a restore nothing is known of any base, and everything is written: files of other jobs are
never built on, nor those of other subtasks, whose key groups were others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..core.ids import NO_CHECKPOINT, CheckpointId, OperatorId
from ..state.increments import Since
from .handles import FileHandle, KeyedHandle, SubtaskSnapshot

MOST_DELTAS: Final = 100
"""So many deltas lie over a base at most: a restore reads all of them."""

Layers = Mapping[str, tuple[KeyedHandle, ...]]
"""The layers of each state of one operator that are to be continued, the oldest first."""

Files = Mapping[str, FileHandle]
"""By the names that they have in the local database of one operator. A name is given to one file
only while the task runs, and that file never changes."""


class Increments:
    """The snapshots of one task in one attempt. `written` may be called on any thread, before it is
    reported that the snapshot is durable; the rest on the task's."""

    def __init__(self) -> None:
        self._written: dict[CheckpointId, SubtaskSnapshot] = {}
        """By checkpoint; of those before the last base none, nor of those known to have failed."""

    def written(self, n: CheckpointId, snapshot: SubtaskSnapshot) -> None:
        """The task's part of checkpoint `n`, which may complete from now on."""
        self._written[n] = snapshot

    def aborted(self, n: CheckpointId) -> None:
        """Checkpoint `n` will never complete: nothing builds on it."""
        self._written.pop(n, None)

    def begin(self, n: CheckpointId, base: CheckpointId) -> Increment:
        """Snapshot `n` is to be taken; `base`: the newest complete checkpoint, 0 for none."""
        found = self._written.get(base)
        for m in [m for m in list(self._written) if m < base]:
            del self._written[m]
        layers: dict[OperatorId, dict[str, tuple[KeyedHandle, ...]]] = {}
        files: dict[OperatorId, Files] = {}
        for operator in () if found is None else found.operators:
            mine = layers.setdefault(operator.operator, {})
            for handle in operator.keyed:
                if handle.layer != "whole":
                    mine[handle.name] = (*mine.get(handle.name, ()), handle)
            if operator.database is not None:
                named = operator.database.files
                files[operator.operator] = {name: file for name, file in named if file.shared}
        return Increment(n, NO_CHECKPOINT if found is None else base, layers, files)


class Increment:
    """What one snapshot may leave out."""

    def __init__(
        self,
        n: CheckpointId,
        base: CheckpointId,
        layers: Mapping[OperatorId, Layers],
        files: Mapping[OperatorId, Files] | None = None,
    ) -> None:
        self._n = n
        self._base = base
        self.layers = layers
        self.files: Mapping[OperatorId, Files] = files or {}
        """Of local databases, which need not be written again."""

    def since(self, operator: OperatorId) -> Since:
        """For the state of one operator."""
        mine = self.layers.get(operator, {})
        folded = frozenset(name for name, layers in mine.items() if outgrown(layers))
        return Since(self._n, self._base, folded)


def outgrown(layers: tuple[KeyedHandle, ...]) -> bool:
    """Whether a new base is to be written: the deltas together are larger than the base, or too
    many. So a restore reads at most twice what a whole snapshot has, and what is written for a
    change of the share f of a state is about 2 f of it: the delta, and its part of the next base.
    """
    deltas = [layer.file.size for layer in layers if layer.layer == "delta"]
    base = sum(layer.file.size for layer in layers if layer.layer == "base")
    return len(deltas) >= MOST_DELTAS or sum(deltas) > base
