"""The recording of one operator of a task: what is written besides what it gets."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ...checkpoint.folder_storage import FolderStorage
from ...checkpoint.manifest import Manifest, OperatorShape
from ...checkpoint.recordings import (
    FORMAT,
    OPERATOR,
    PICKLE,
    RecordingFolder,
    copied,
    recorded_subtask,
)
from ...checkpoint.snapshot_io import write_subtask
from ...core import code_pickles
from ...core.clock import Clock
from ...core.config import JobConfig
from ...core.failure_text import described
from ...core.ids import CheckpointId
from ...core.job_files import JobFiles
from ...core.metrics_config import MetricsConfig
from ...core.traces_config import TracesConfig
from ...operators.base import Operator, OperatorContext
from ..graph.model import ChainedOperator
from .deployment import TaskDeployment
from .recorded_operator import RecordedOperator, RecordingClock
from .recorder import Recorder, WriteBase

_log = logging.getLogger("strom")

START: Final = CheckpointId(0)
"""What the state of an operator that starts anew is said to be of."""


def recorded(
    d: TaskDeployment,
    chained: ChainedOperator,
    operator: Operator,
    clock: Clock,
    threads: bool,
    emitted: Callable[[], int],
) -> tuple[Operator, Clock]:
    """The operator, and the clock that it is to have: in disguise, if the job is to record it. What
    is against that is said in the log, and the task runs without. `emitted`: as `RecordedOperator`
    has it."""
    if not d.config.record.chooses(chained.uid, chained.name, str(chained.operator_id)):
        return operator, clock
    recording = _Recording(d, chained)
    try:
        pickled = code_pickles.dumps(recording.shipped())
    except Exception as error:
        _log.warning("%s is not recorded: it does not pickle: %s", recording.who, described(error))
        return operator, clock
    read = RecordingClock(clock)
    now = read.unread()
    folder = partial(recording.open_folder, pickled, now)
    recorder = Recorder(folder, d.config.record.max_bytes, recording.who, threads)
    restored = d.restore is not None
    first = CheckpointId(d.restore.checkpoint_id) if d.restore is not None else START
    begin = {"now_ms": now, "restored": restored, "alone": d.own_share}
    recorder.base(first, recording.write_first(now), begin)
    return RecordedOperator(operator, recorder, read, recording.write_base, emitted), read


class _Recording:
    """What it says of the operator, and how its states are written."""

    def __init__(self, d: TaskDeployment, chained: ChainedOperator) -> None:
        self._d = d
        self._chained = chained
        self.who = f"operator '{chained.name}', subtask {d.task.subtask},"

    def shipped(self) -> dict[str, Any]:
        """What the operator is made of again."""
        return {
            "operator": replace(self._chained, inner=(), outer=()),
            "config": _without_secrets(self._d.config),
            "vertex": self._d.task.vertex,
        }

    def open_folder(self, pickled: bytes, now_ms: int) -> RecordingFolder:
        d, chained = self._d, self._chained
        where = d.config.record.path
        assert where is not None
        subtask = recorded_subtask(where, d.job_id, chained.operator_id, int(d.task.subtask))
        folder = subtask.begin(int(d.attempt))
        about = {
            "format": FORMAT,
            "job": {"id": d.job_id, "name": d.job_name},
            "operator": str(chained.operator_id),
            "uid": chained.uid if chained.named else None,
            "name": chained.name,
            "subtask": int(d.task.subtask),
            "parallelism": d.vertex.parallelism,
            "max_parallelism": d.vertex.max_parallelism,
            "deal": d.vertex.deal,
            "attempt": int(d.attempt),
            "started_ms": now_ms,
            "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        }
        folder.put(PICKLE, pickled)
        folder.put(OPERATOR, json.dumps(about, indent=2).encode())
        return folder

    def write_first(self, now_ms: int) -> WriteBase:
        """What the task was restored from, copied; of one that starts anew, nothing."""
        d = self._d

        def write(base: FolderStorage) -> Manifest:
            if d.restore is None:
                return self._manifest(START, now_ms)
            operator = self._chained.operator_id
            shape = d.task, d.vertex.parallelism
            return copied(d.restore_storage, d.restore, operator, *shape, base, deal=d.vertex.deal)

        return write

    def write_base(self, ctx: OperatorContext, checkpoint_id: int) -> WriteBase:
        """All of its state, whatever the checkpoint has: that may continue others, this does
        not."""
        number = CheckpointId(checkpoint_id)
        keyed, own = ctx.keyed_state.snapshot(), ctx.operator_state.snapshot(for_itself=True)
        part = ctx.operator_id, keyed, own

        def write(base: FolderStorage) -> Manifest:
            made = write_subtask(base, number, self._d.task, [part])
            return replace(self._manifest(number, 0), subtasks=(made,))

        return write

    def _manifest(self, checkpoint_id: CheckpointId, now_ms: int) -> Manifest:
        d, chained = self._d, self._chained
        shape = OperatorShape(
            chained.operator_id,
            chained.name,
            d.vertex.parallelism,
            d.vertex.max_parallelism,
            chained.uid,
            d.vertex.deal,
        )
        about = d.job_id, d.job_name, checkpoint_id, now_ms
        return Manifest(*about, (shape,), (), savepoint=True)


def _without_secrets(config: JobConfig) -> JobConfig:
    """What operators may read of a configuration, without what the job as a whole was given:
    tokens, headers, environments. Recordings are kept and handed on."""
    return replace(
        config,
        metrics=MetricsConfig(),
        traces=TracesConfig(),
        runtime_env={},
        job_files=JobFiles(),
        restore_from=None,
    )
