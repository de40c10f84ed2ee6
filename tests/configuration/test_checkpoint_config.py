"""`CheckpointConfig`: one class for a JobConfig and for the environment, with PyFlink's setters."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta
from typing import Any

import pytest
import strom
from strom import (
    CheckpointConfig,
    CheckpointingMode,
    ConfigurationError,
    ExternalizedCheckpointRetention,
    FileSystemCheckpointStorage,
    HashMapStateBackend,
    JobConfig,
    JobManagerCheckpointStorage,
    StreamExecutionEnvironment,
)
from strom.core import config as core

make = StreamExecutionEnvironment.get_execution_environment
SECOND = timedelta(seconds=1)


def test_one_class_for_both() -> None:
    env = make()
    assert type(env.get_checkpoint_config()) is strom.CheckpointConfig
    written = CheckpointConfig(interval=SECOND, storage="/data", retained=3)
    config = JobConfig(checkpoint=written)
    assert config.checkpoint == core.CheckpointConfig(SECOND, "/data", retained=3)
    assert type(config.checkpoint) is core.CheckpointConfig
    assert make(config).get_checkpoint_config() == written
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_job_config_takes_what_it_holds_at_that_time() -> None:
    written = CheckpointConfig(interval=SECOND)
    config = JobConfig(checkpoint=written)
    written.set_checkpoint_interval(5)
    assert config.checkpoint.interval == SECOND
    copied = copy.copy(written).set_checkpoint_interval(7)
    assert (written.get_checkpoint_interval(), copied.get_checkpoint_interval()) == (5, 7)
    env = make(config)
    env.get_checkpoint_config().set_num_retained_checkpoints(9)
    assert config.checkpoint.retained == 1


def test_intervals_that_are_off_are_minus_one() -> None:
    env = make()
    assert env.get_checkpoint_interval() == -1
    env.enable_checkpointing(100)
    assert env.get_checkpoint_interval() == 100
    assert env.get_checkpoint_config().disable_checkpointing().get_checkpoint_interval() == -1


def test_local_recovery() -> None:
    """Under Flink's keys, new and old, and by setters; off by default."""
    env = make()
    assert not env.get_job_config().checkpoint.keeps_copies
    env.configure(strom.Configuration.from_dict({"state.backend.local-recovery": "true"}))
    given = env.get_job_config().checkpoint
    assert (given.local_recovery, given.keeps_copies, given.local_dirs) == (True, True, ())
    enabled = "execution.checkpointing.local-backup.enabled"
    env.configure(strom.Configuration.from_dict({enabled: "false"}))
    given = env.get_job_config().checkpoint
    assert (given.local_recovery, given.keeps_copies) == (True, False)
    old = {"taskmanager.state.local.root-dirs": "/a,/b", enabled: "true"}
    new = {"execution.checkpointing.local-backup.dirs": "/a;/b", enabled: "true"}
    for keys in (old, new):
        given = make(strom.Configuration.from_dict(keys)).get_job_config().checkpoint
        assert (given.local_recovery, given.keeps_copies) == (False, True)
        assert given.local_dirs == ("/a", "/b")
    config = CheckpointConfig().enable_local_recovery().set_local_backup_dirs("/c")
    assert config.frozen() == core.CheckpointConfig(local_recovery=True, local_dirs=("/c",))
    assert CheckpointConfig().set_local_backup(True).frozen().keeps_copies
    with pytest.raises(ConfigurationError, match="local_dirs must be tuple"):
        CheckpointConfig(local_dirs="/a")  # type: ignore[arg-type]


def test_modes() -> None:
    env = make()
    assert env.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
    env.enable_checkpointing(timedelta(seconds=2), CheckpointingMode.AT_LEAST_ONCE)
    assert env.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert env.get_checkpointing_consistency_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert env.get_checkpoint_interval() == 2000
    assert env.get_job_config().checkpoint.storage is None
    assert env.get_job_config().checkpoint.mode is CheckpointingMode.AT_LEAST_ONCE


@pytest.mark.parametrize("mode", ["checkpoints", 5, True])
def test_the_second_argument_of_enable_checkpointing_is_a_mode(mode: Any) -> None:
    env = make()
    with pytest.raises(ConfigurationError, match=r"must be (a )?CheckpointingMode"):
        env.enable_checkpointing(100, mode)
    assert env.get_checkpoint_interval() == -1


def test_storages() -> None:
    config = CheckpointConfig()
    assert config.get_checkpoint_storage() == JobManagerCheckpointStorage()
    assert not config.is_externalized_checkpoints_enabled()
    for storage in ("s3://x", FileSystemCheckpointStorage("s3://x")):
        config.set_checkpoint_storage(storage)
        assert config.get_checkpoint_storage() == FileSystemCheckpointStorage("s3://x")
        assert config.frozen().storage == "s3://x"
        assert config.is_externalized_checkpoints_enabled()
        config.set_checkpoint_storage(JobManagerCheckpointStorage())
        assert config.frozen().storage is None
    assert config.set_checkpoint_storage_dir("/d").frozen().storage == "/d"
    for wrong in (5, "", b"x"):
        with pytest.raises(ConfigurationError, match="expected a URL or path"):
            config.set_checkpoint_storage(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="checkpoint_path must be"):
        FileSystemCheckpointStorage("")


def test_sizes_of_storages_are_given_back() -> None:
    files = FileSystemCheckpointStorage("s3://x", file_state_size_threshold=7, write_buffer_size=9)
    assert (files.get_checkpoint_path(), files.get_savepoint_path()) == ("s3://x", None)
    assert (files.get_min_file_size_threshold(), files.get_write_buffer_size()) == (7, 9)
    assert FileSystemCheckpointStorage("x").get_write_buffer_size() == 4096
    assert FileSystemCheckpointStorage("x").get_min_file_size_threshold() == 20480
    memory = JobManagerCheckpointStorage(max_state_size=3)
    assert (memory.get_checkpoint_path(), memory.get_savepoint_path()) == (None, None)
    assert memory.get_max_state_size() == 3
    assert JobManagerCheckpointStorage().get_max_state_size() == 5 << 20
    with pytest.raises(ConfigurationError, match="use FileSystemCheckpointStorage"):
        JobManagerCheckpointStorage("s3://x")  # type: ignore[arg-type]


def test_what_pyflink_sets_besides() -> None:
    config = CheckpointConfig()
    assert config.is_fail_on_checkpointing_errors()
    config.set_fail_on_checkpointing_errors(False)
    assert config.get_tolerable_checkpoint_failure_number() == 2**31 - 1
    assert not config.is_fail_on_checkpointing_errors()
    config.set_max_concurrent_checkpoints(3).set_aligned_checkpoint_timeout(SECOND)
    assert config.get_max_concurrent_checkpoints() == config.frozen().at_once == 3
    config.enable_unaligned_checkpoints()
    assert config.get_max_concurrent_checkpoints() == 3
    assert config.frozen().at_once == 1, "barriers that overtake have no place behind others"
    config.disable_unaligned_checkpoints().set_min_pause_between_checkpoints(1)
    assert config.frozen().at_once == 1, "a pause is behind the end of each"
    assert config.get_full_checkpoint_every() is None
    assert config.set_full_checkpoint_every(9).frozen().full_every == 9
    config.set_full_checkpoint_every(None).set_min_pause_between_checkpoints(0)
    assert config.get_aligned_checkpoint_timeout() == config.get_alignment_timeout() == SECOND
    kept = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    assert config.get_externalized_checkpoint_retention() is kept
    assert config.frozen().retention is kept
    config.set_checkpoint_storage("/x")
    for retention in ExternalizedCheckpointRetention:
        config.set_externalized_checkpoint_retention(retention)
        assert config.get_externalized_checkpoint_retention() is retention
        assert config.frozen().retention is retention
        assert config.is_externalized_checkpoints_enabled() is (
            retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        )
    assert not config.is_unaligned_checkpoints_enabled()
    assert not config.is_force_unaligned_checkpoints()
    config.enable_unaligned_checkpoints().set_force_unaligned_checkpoints(True)
    assert config.is_unaligned_checkpoints_enabled()
    assert config.is_force_unaligned_checkpoints()
    assert config.frozen().overtakes
    assert config.frozen().alignment_timeout == SECOND
    config.set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
    assert not config.frozen().overtakes
    assert not config.disable_unaligned_checkpoints().frozen().unaligned


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.enable_unaligned_checkpoints("yes"), "enabled must be bool"),
        (lambda c: c.set_force_unaligned_checkpoints(1), "force_unaligned_checkpoints must be"),
        (lambda c: c.set_aligned_checkpoint_timeout(-1), "alignment_timeout must be"),
        (lambda c: c.set_externalized_checkpoint_retention("RETAIN"), "retention_mode must be"),
        (lambda c: c.set_checkpointing_mode("EXACTLY_ONCE"), "checkpointing_mode must be"),
        (lambda c: c.set_max_concurrent_checkpoints(0), "at least 1"),
        (lambda c: c.set_checkpoint_timeout(0), "checkpoint_timeout must be at least"),
        (lambda c: c.set_min_pause_between_checkpoints(-1), "min_pause_between_checkpoints"),
        (lambda c: c.set_tolerable_checkpoint_failure_number(-1), "at least 0"),
        (lambda c: setattr(c, "interval", SECOND), "cannot assign to field 'interval'"),
    ],
)
def test_what_is_refused(call: Any, message: str) -> None:
    config = CheckpointConfig(interval=SECOND)
    with pytest.raises((ConfigurationError, AttributeError), match=message):
        call(config)
    assert config == CheckpointConfig(interval=SECOND), "nothing has changed"


def test_state_backends() -> None:
    env = make().set_state_backend(HashMapStateBackend())
    assert env.get_state_backend() == HashMapStateBackend()
    assert not env.enable_changelog_state_backend(False).is_changelog_state_backend_enabled()
    with pytest.raises(ConfigurationError, match="no changelog state backend"):
        env.enable_changelog_state_backend(True)
