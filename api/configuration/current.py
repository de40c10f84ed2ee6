"""What an environment's settings are as options, whether configurations or setters gave them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ...core.state_config import MEMORY, ROCKSDB
from .checkpoints import CheckpointConfig
from .configuration import Configuration
from .execution_config import ExecutionConfig
from .groups import RESTART
from .known import BY_KEY
from .memory import MemorySize
from .settings import Settings
from .values import to_text

Read = Callable[[Settings], Any]


def _of(name: str) -> Read:
    return lambda settings: getattr(settings, name)


def _of_job(name: str) -> Read:
    return lambda settings: getattr(settings.base, name)


def _of_exchange(name: str) -> Read:
    return lambda settings: getattr(settings.base.exchange, name)


def _of_checkpoints(read: Callable[[CheckpointConfig], Any]) -> Read:
    return lambda settings: read(settings.checkpoint)


def _given_back(read: Callable[[ExecutionConfig], Any]) -> Read:
    return lambda settings: read(ExecutionConfig(settings))


def _parameters(settings: Settings) -> dict[str, str] | None:
    """As text: a JobConfig may have others."""
    return {key: to_text(one) for key, one in settings.base.job_parameters.items()} or None


def _storage(settings: Settings) -> str | None:
    """A folder that is not said to be one needs no word."""
    if settings.checkpoint.stays_in_memory:
        return "jobmanager"
    return "filesystem" if _STORAGE in settings.configuration else None


_STORAGE: Final = "execution.checkpointing.storage"

_CHECKPOINTING: Final = "execution.checkpointing"

_BACKENDS: Final = {MEMORY: "hashmap", ROCKSDB: "rocksdb"}

READ: Final[Mapping[str, Read]] = {
    "parallelism.default": _of("parallelism"),
    "pipeline.max-parallelism": _of("max_parallelism"),
    "pipeline.name": _of("job_name"),
    "pipeline.auto-watermark-interval": _of_job("auto_watermark_interval"),
    "pipeline.operator-chaining.enabled": _of_job("chaining"),
    "pipeline.global-job-parameters": _parameters,
    "pipeline.auto-generate-uids": _of("auto_uids"),
    "pipeline.object-reuse": _given_back(ExecutionConfig.is_object_reuse_enabled),
    "execution.buffer-timeout.interval": _of("buffer_interval"),
    "execution.buffer-timeout.enabled": _of("buffers_timed"),
    f"{_CHECKPOINTING}.interval": _of_checkpoints(lambda config: config.interval),
    f"{_CHECKPOINTING}.timeout": _of_checkpoints(lambda config: config.timeout),
    f"{_CHECKPOINTING}.min-pause": _of_checkpoints(lambda config: config.min_pause),
    f"{_CHECKPOINTING}.max-concurrent-checkpoints": _of_checkpoints(
        CheckpointConfig.get_max_concurrent_checkpoints
    ),
    f"{_CHECKPOINTING}.mode": _of_checkpoints(CheckpointConfig.get_checkpointing_mode),
    f"{_CHECKPOINTING}.tolerable-failed-checkpoints": _of_checkpoints(
        CheckpointConfig.get_tolerable_checkpoint_failure_number
    ),
    f"{_CHECKPOINTING}.num-retained": _of_checkpoints(
        CheckpointConfig.get_num_retained_checkpoints
    ),
    f"{_CHECKPOINTING}.externalized-checkpoint-retention": _of_checkpoints(
        CheckpointConfig.get_externalized_checkpoint_retention
    ),
    f"{_CHECKPOINTING}.incremental": _of_checkpoints(
        CheckpointConfig.is_incremental_checkpoints_enabled
    ),
    f"{_CHECKPOINTING}.incremental.full-every": _of_checkpoints(
        CheckpointConfig.get_full_checkpoint_every
    ),
    "execution.state-recovery.from-local": _of_checkpoints(
        CheckpointConfig.is_local_recovery_enabled
    ),
    f"{_CHECKPOINTING}.local-backup.enabled": _of_checkpoints(lambda config: config.local_backup),
    f"{_CHECKPOINTING}.local-backup.dirs": _of_checkpoints(
        lambda config: ",".join(config.local_dirs) or None
    ),
    f"{_CHECKPOINTING}.unaligned.enabled": _of_checkpoints(
        CheckpointConfig.is_unaligned_checkpoints_enabled
    ),
    f"{_CHECKPOINTING}.unaligned.forced": _of_checkpoints(
        CheckpointConfig.is_force_unaligned_checkpoints
    ),
    f"{_CHECKPOINTING}.aligned-checkpoint-timeout": _of_checkpoints(
        CheckpointConfig.get_aligned_checkpoint_timeout
    ),
    f"{_CHECKPOINTING}.snapshot-compression": _given_back(
        ExecutionConfig.is_use_snapshot_compression
    ),
    f"{_CHECKPOINTING}.dir": _of_checkpoints(lambda config: config.folder),
    _STORAGE: _storage,
    "execution.state-recovery.path": _of_job("restore_from"),
    "execution.state-recovery.ignore-unclaimed-state": _of_job("allow_unmatched_state"),
    "execution.state-recovery.claim-mode": lambda s: (
        "claim" if s.base.claim_restored else "no_claim"
    ),
    "execution.checkpointing.savepoint-dir": _of_job("savepoint_directory"),
    "state.backend.type": lambda s: _BACKENDS[s.base.state.backend],
    "strom.state.backend-by-uid": lambda s: s.base.state.by_uid or None,
    "sink.committer.retries": lambda s: s.base.commit.retries,
    "strom.sink.committer.retry-delay": lambda s: s.base.commit.delay,
    "strom.sink.committer.longest-retry-delay": lambda s: s.base.commit.longest_delay,
    "strom.sink.committer.retry-timeout": lambda s: s.base.commit.timeout,
    "strom.record.path": lambda s: s.base.record.path,
    "strom.record.operators": lambda s: list(s.base.record.operators) or None,
    "strom.record.max-size": lambda s: MemorySize(s.base.record.max_bytes),
    "state.backend.rocksdb.localdir": lambda s: ",".join(s.base.state.local_dirs) or None,
    "task.cancellation.timeout": _of_job("cancellation_timeout"),
    "task.cancellation.interval": _given_back(ExecutionConfig.get_task_cancellation_interval),
    "slot.request.timeout": _of_job("slot_request_timeout"),
    "strom.attached": _of_job("attached"),
    "strom.wait": _of_job("wait"),
    "strom.batch-size": _of_job("batch_size"),
    "strom.column-pruning": _of_job("column_pruning"),
    "strom.local-combining": _of_job("local_combining"),
    "strom.compile-functions": _of_job("compile_functions"),
    "strom.metrics-interval": _of_job("metrics_interval"),
    "strom.slot.cpus": _of_job("slot_cpus"),
    "strom.exchange.buffer-size": lambda s: MemorySize(s.base.exchange.buffer_bytes),
    "strom.exchange.min-buffer-size": lambda s: MemorySize(s.base.exchange.min_buffer_bytes),
    "strom.exchange.exclusive-buffers": _of_exchange("exclusive_buffers"),
    "strom.exchange.floating-buffers": _of_exchange("floating_buffers"),
    "strom.exchange.bind-host": _of_exchange("bind_host"),
    "security.ssl.internal.enabled": _of_exchange("encrypted"),
    "heartbeat.interval": _of_exchange("heartbeat_interval"),
    "heartbeat.timeout": _of_exchange("heartbeat_timeout"),
}
"""Options that setters, or a JobConfig, may say as well."""


def current(settings: Settings) -> Configuration:
    """All that configurations have said, with what was set otherwise in its place. What is as by
    default, and nobody has said, is left out."""
    found = Configuration(settings.configuration)
    for key, read in READ.items():
        option = BY_KEY[key].option
        value = read(settings)
        if value is None:
            found.remove_config(key)
        elif option.type.read(value) != found.get(option):
            found.set(option, value)
    for one in RESTART:
        found.remove_config(one.option.key)
    found.add_all(settings.together.only(one.option.key for one in RESTART))
    return found
