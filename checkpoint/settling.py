"""Which checkpoints of the epochs before one's own count: said once of each, by whoever needs it
first (`epochs`)."""

from __future__ import annotations

from ..core.errors import CheckpointFormatError, CorruptCheckpointError
from ..core.ids import NO_CHECKPOINT, CheckpointId
from .storage import CheckpointStorage


def settle_before(storage: CheckpointStorage, epoch: int) -> None:
    """Of all epochs before this one, which has begun: those count that are published by now, unless
    it is said already which do. From then on what counts is there, and changes no more. What cannot
    be read counts for nobody. Raises CheckpointError."""
    last: dict[int, CheckpointId] = {
        e: NO_CHECKPOINT for e in storage.known_epochs(epoch) if storage.settled(e) is None
    }
    missing = set(last)
    for n in reversed(storage.list()):
        if not missing:
            break
        try:
            of = storage.load(n).epoch
        except (CorruptCheckpointError, CheckpointFormatError):
            continue
        if of in missing:
            last[of] = n
            missing.discard(of)
    for e, n in sorted(last.items()):
        storage.settle(e, n)
