"""Coordinators that are taken for dead and go on all the same, while others begin on their
storage."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from random import Random

from ...checkpoint.storage import CheckpointStorage, open_storage
from ...core.errors import CheckpointError
from ...core.ids import CheckpointId
from ..graph.model import JobGraph


def another_start(
    graph: JobGraph, storage: CheckpointStorage, job_id: str, rng: Random
) -> tuple[JobGraph, CheckpointStorage]:
    """What another coordinator begins with, as another process has it: the same job on the same
    storage, or, by chance once there is a checkpoint, job `job_id`, restored from it."""
    if storage.home is None or not _has_complete(storage) or rng.random() >= 0.5:
        return graph, copy(storage) if storage.shares else storage
    location = f"{storage.home.rstrip('/')}/{storage.job_id}"
    config = replace(graph.config, restore_from=location)
    return replace(graph, config=config), open_storage(storage.home, job_id)


def _has_complete(storage: CheckpointStorage) -> bool:
    """As far as the storage tells: it may be away."""
    try:
        listed = storage.list()
    except CheckpointError:
        return False
    return any(_is_complete(storage, n) for n in listed)


def _is_complete(storage: CheckpointStorage, n: CheckpointId) -> bool:
    try:
        storage.load(n)
    except CheckpointError:
        return False
    return True
