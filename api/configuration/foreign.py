"""Keys that mean nothing here: Flink's, a program's own, and those that nobody has.

Flink's are accepted, and named once in the log. Of the others a key that looks like one of ours,
by its first part or by its letters, is a mistake.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable
from typing import Final

from .known import BY_KEY, KNOWN, MAPS
from .reporters import PREFIX as REPORTER
from .reporters import is_of_reporters

log = logging.getLogger("strom")

STRICT: Final = (
    "strom.", "execution.", "pipeline.", "parallelism", "restart-strategy", "state.", "task.",
    "job.autoscaler."
)  # fmt: skip
"""Prefixes of which all keys are known: these, and those that follow."""

FOREIGN: Final = tuple(
    """
    execution.allowed-latency execution.attached execution.batch execution.flush.
    execution.checkpointing.approximate-local-recovery
    execution.checkpointing.checkpoints-after-tasks-finish execution.checkpointing.cleaner.
    execution.checkpointing.create-subdir execution.checkpointing.data-inline-threshold
    execution.checkpointing.file-merging. execution.checkpointing.force
    execution.checkpointing.id-of-ignored-in-flight-data
    execution.checkpointing.interval-during-backlog execution.checkpointing.local-copy.
    execution.checkpointing.max-subtasks
    execution.checkpointing.pause-sources execution.checkpointing.prefer
    execution.checkpointing.recover-without-channel-state.
    execution.checkpointing.unaligned.interruptible execution.checkpointing.unaligned.max-subtasks
    execution.checkpointing.unaligned.recover execution.checkpointing.write-buffer-size
    execution.job-listeners execution.job-status-changed-listeners execution.shutdown-on-
    execution.sorted-inputs. execution.submit- execution.target
    execution.state-recovery.approximate-local-recovery
    execution.state-recovery.without-channel-state. pipeline.classpaths
    pipeline.closure-cleaner-level pipeline.default-kryo-serializers pipeline.force-
    pipeline.generic-types pipeline.jars pipeline.jobvertex-
    pipeline.operator-chaining.chain-operators-with-different- pipeline.registered-
    pipeline.serialization-config pipeline.time-characteristic pipeline.vertex-
    pipeline.watermark-alignment. restart-strategy.exponential-delay.attempts-before-reset-backoff
    state.backend.async state.backend.changelog. state.backend.fs. state.backend.forst.
    state.backend.heap. state.backend.latency-track.
    state.backend.rocksdb.block. state.backend.rocksdb.bloom-filter.
    state.backend.rocksdb.checkpoint. state.backend.rocksdb.compaction.
    state.backend.rocksdb.files.
    state.backend.rocksdb.incremental-restore state.backend.rocksdb.log.
    state.backend.rocksdb.manual-compaction. state.backend.rocksdb.memory.fixed-per-slot
    state.backend.rocksdb.memory.high-prio state.backend.rocksdb.memory.managed
    state.backend.rocksdb.memory.partitioned state.backend.rocksdb.metrics.
    state.backend.rocksdb.options-factory state.backend.rocksdb.predefined-options
    state.backend.rocksdb.rescaling. state.backend.rocksdb.restore-
    state.backend.rocksdb.thread. state.backend.rocksdb.timer-service.
    state.backend.rocksdb.ttl. state.backend.rocksdb.use- state.backend.rocksdb.write
    state.changelog. state.checkpoint.
    state.checkpoints.create-subdir state.latency-track. state.size-track.
    state.storage. state.ttl. task.cancellation.timers. task.checkpoint. akka. blob. classloader.
    cleanup client. cluster. collect-sink. compiler. deployment. env. events. external-resource
    fs. heartbeat. high-availability historyserver. internal. io. job- jobmanager jobstore.
    job.autoscaler.excluded.periods job.autoscaler.flink. job.autoscaler.history.
    job.autoscaler.memory. job.autoscaler.metrics.busy- job.autoscaler.observed-
    job.autoscaler.quota. job.autoscaler.scaling.event.
    kubernetes. local-recovery metrics.fetcher. metrics.internal.
    metrics.job. metrics.latency.granularity metrics.latency.history metrics.partition.
    metrics.scope. metrics.system- metrics.task
    minihadoopcluster. net-ssl. parallelism.overrides pekko.
    plugin. process. python.client. python.executable python.execution-mode python.fn-execution.
    python.map-state. python.metric. python.operator-chaining. python.profile. python.pythonpath
    python.state. python.systemenv. queryable-state. resourcemanager. rest. s3. scheduler
    security. shuffle-service slotmanager. sql-client. sql-gateway. table. taskmanager.
    traces. web. yarn. zookeeper. $internal.
    """.split()  # noqa: SIM905 (a list would be a page long)
)
"""Beginnings of Flink's keys that mean nothing here."""

_NEAR: Final = 0.86
"""From which likeness on a key is one of ours, misspelt."""

_told: set[str] = set()
"""Keys that the log has named."""


def is_known(key: str) -> bool:
    return key in BY_KEY or is_of_reporters(key) or key.startswith(tuple(f"{m}." for m in MAPS))


def is_foreign(key: str) -> bool:
    """Whether Flink has it, or lets its reporters have it, and it means nothing here."""
    if key in BY_KEY:
        return False
    return key.startswith(FOREIGN) or (key.startswith(REPORTER) and not is_of_reporters(key))


def mistake_in(key: str) -> str | None:
    """What is wrong with a key that is not known; None: it is Flink's, or the program's own."""
    if is_foreign(key):
        return None
    keys = [known.option.key for known in KNOWN]
    near = difflib.get_close_matches(key, keys, 3, 0.6)
    if key.startswith(STRICT):
        if not near:
            return "there is no such option; docs/configuration.md has them all"
        return f"there is no such option: did you mean {' or '.join(map(repr, near))}?"
    if difflib.get_close_matches(key, keys, 1, _NEAR):
        return f"there is no such option: did you mean {near[0]!r}?"
    return None


def tell_of_foreign(keys: Iterable[str]) -> None:
    """Name Flink's keys that change nothing, each once per process."""
    new = sorted({key for key in keys if is_foreign(key)} - _told)
    if new:
        _told.update(new)
        log.warning("options of Flink that have no effect here: %s", ", ".join(new))
