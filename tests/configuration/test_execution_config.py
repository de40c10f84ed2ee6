"""`env.get_config()`, and what else PyFlink's environment can be told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from strom import (
    ConfigurationError,
    ExecutionConfig,
    JobConfig,
    MapFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)

make = StreamExecutionEnvironment.get_execution_environment


def test_it_is_the_environments_own_and_changes_in_place() -> None:
    env = make()
    config = env.get_config()
    assert isinstance(config, ExecutionConfig)
    assert env.get_config() is config
    config.set_parallelism(3).set_max_parallelism(64).set_auto_watermark_interval(50)
    config.set_task_cancellation_timeout(4000)
    assert (env.get_parallelism(), env.get_max_parallelism()) == (3, 64)
    job = env.get_job_config()
    assert (job.parallelism, job.max_parallelism) == (3, 64)
    assert job.auto_watermark_interval == timedelta(milliseconds=50)
    assert job.cancellation_timeout == timedelta(seconds=4)
    assert (config.get_parallelism(), config.get_max_parallelism()) == (3, 64)
    assert config.get_auto_watermark_interval() == 50
    assert config.get_task_cancellation_timeout() == 4000
    env.set_parallelism(5)
    assert config.get_parallelism() == 5


def test_parallelism_goes_back_to_the_default() -> None:
    env = make(JobConfig(parallelism=4)).set_parallelism(7)
    config = env.get_config()
    assert config.set_parallelism(ExecutionConfig.PARALLELISM_UNKNOWN).get_parallelism() == 7
    assert config.set_parallelism(ExecutionConfig.PARALLELISM_DEFAULT).get_parallelism() == 4
    with pytest.raises(ConfigurationError, match="at least 1"):
        config.set_parallelism(0)


class Scale(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.factor = int(runtime_context.get_job_parameter("factor", "1"))

    def map(self, value: int) -> int:
        return value * self.factor


def test_functions_get_the_global_job_parameters() -> None:
    env = make()
    env.get_config().set_global_job_parameters({"factor": 3})
    assert env.get_config().get_global_job_parameters() == {"factor": "3"}
    assert env.from_collection([2]).map(Scale()).execute_and_collect(limit=1) == [6]


def test_what_changes_nothing_is_given_back() -> None:
    env = make()
    before, config = env.get_job_config(), env.get_config()
    assert config.is_closure_cleaner_enabled()
    assert not config.disable_closure_cleaner().is_closure_cleaner_enabled()
    assert config.enable_closure_cleaner().is_closure_cleaner_enabled()
    assert config.disable_generic_types().has_generic_types_disabled()
    assert not config.enable_generic_types().has_generic_types_disabled()
    assert config.enable_object_reuse().is_object_reuse_enabled()
    assert not config.disable_object_reuse().is_object_reuse_enabled()
    assert config.set_use_snapshot_compression(True).is_use_snapshot_compression()
    assert config.get_task_cancellation_interval() == 30_000
    assert config.set_task_cancellation_interval(9).get_task_cancellation_interval() == 9
    assert config.has_auto_generated_uids_enabled()
    config.disable_auto_generated_uids().enable_auto_generated_uids()
    assert env.get_job_config() == before


def test_modes_of_execution() -> None:
    env = make()
    for mode in (RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.AUTOMATIC):
        env.set_runtime_mode(mode)
    with pytest.raises(ConfigurationError, match="runtime mode BATCH is not there yet"):
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    with pytest.raises(ConfigurationError, match="execution_mode must be"):
        env.set_runtime_mode("STREAMING")  # type: ignore[arg-type]


def test_the_default_parallelism_of_environments() -> None:
    env = make()
    assert env.get_default_local_parallelism() == 1
    env.set_default_local_parallelism(3)
    try:
        assert make().get_parallelism() == 3
        assert make(JobConfig()).get_parallelism() == 1
        assert make().get_config().set_parallelism(-1).get_parallelism() == 3
    finally:
        env.set_default_local_parallelism(1)
    assert env.get_parallelism() == 1


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("set_python_executable", ("python3",), "the Python of Ray's workers"),
        ("add_jars", ("file:///a.jar", "file:///b.jar"), "no JVM"),
        ("add_classpaths", ("file:///a.jar",), "no JVM"),
        ("create_input", (object(), None), "use from_source"),
    ],
)
def test_what_cannot_be_says_what_to_do(
    method: str, arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"{method}: .*{message}"):
        getattr(make(), method)(*arguments)


def test_a_stream_knows_the_settings() -> None:
    env = make()
    assert env.from_collection([1]).get_execution_config() is env.get_config()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.configure({"a": "b"}), "configuration must be Configuration"),
        (lambda e: e.get_config().set_global_job_parameters([]), "must be Mapping"),
        (lambda e: e.get_config().set_use_snapshot_compression(1), "must be bool"),
        (lambda e: e.get_config().set_auto_watermark_interval("1"), "timedelta or milliseconds"),
        (lambda e: e.register_slot_sharing_group("g"), "must be SlotSharingGroup"),
    ],
)
def test_what_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        call(make())
