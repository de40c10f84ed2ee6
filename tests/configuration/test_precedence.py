"""Where an environment's settings come from, and which of them counts."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from strom import (
    Configuration,
    ConfigurationError,
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    JobConfig,
    MetricsConfig,
    NoRestart,
    RestartStrategies,
    StreamExecutionEnvironment,
)
from strom.api.configuration import foreign
from strom.api.configuration.adaptive_options import ADAPTIVE
from strom.api.configuration.known import BY_KEY, KNOWN
from strom.api.configuration.loading import key_of_variable

make = StreamExecutionEnvironment.get_execution_environment


def configured(values: dict[str, Any]) -> JobConfig:
    return make(Configuration.from_dict(values)).get_job_config()


@pytest.fixture
def ambient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def say(file: str | None = None, properties: str | None = None, **variables: str) -> None:
        if file is not None:
            (tmp_path / "config.yaml").write_text(file)
            monkeypatch.setenv("STROM_CONF_DIR", str(tmp_path))
        if properties is not None:
            monkeypatch.setenv("STROM_PROPERTIES", properties)
        for name, value in variables.items():
            monkeypatch.setenv(f"STROM_CONF__{name}", value)

    return say


def test_code_over_command_line_over_environment_over_file_over_defaults(ambient: Any) -> None:
    keys = ["a", "b", "c", "d", "e"]
    ambient("\n".join(f"my.{key}: file" for key in keys[1:]))
    assert read(make(), keys) == {"b": "file", "c": "file", "d": "file", "e": "file"}
    ambient(properties="my.c: properties\nmy.d: properties", MY__D="variable", MY__E="variable")
    expected = {"b": "file", "c": "properties", "d": "variable", "e": "variable"}
    assert read(make(), keys) == expected
    env = make(Configuration.from_args(["-Dmy.e=line", "-Dparallelism.default=3"]))
    assert read(env, keys) == {**expected, "e": "line"}
    assert env.get_parallelism() == 3
    assert env.set_parallelism(5).get_parallelism() == 5


def test_an_old_key_over_the_new_one_below(ambient: Any) -> None:
    ambient("execution.checkpointing.dir: /file\npipeline.global-job-parameters: {a: 1, b: 2}")
    env = make(
        Configuration.from_dict(
            {"state.checkpoints.dir": "/code", "pipeline.global-job-parameters.a": "3"}
        )
    )
    assert env.get_job_config().checkpoint.storage == "/code"
    assert env.get_job_config().job_parameters == {"a": "3"}, "a map is one value"
    ambient("state.checkpoints.dir: /old\nexecution.checkpointing.dir: /new")
    assert make().get_job_config().checkpoint.storage == "/new"
    ambient("restart-strategy: never")
    with pytest.raises(ConfigurationError, match=r"'restart-strategy\.type' in .* \(as 'restart"):
        make()


def read(env: StreamExecutionEnvironment, keys: list[str]) -> dict[str, str]:
    found = env.get_configuration()
    return {key: found.get_string(f"my.{key}", "") for key in keys if f"my.{key}" in found}


def test_settings_from_the_file(ambient: Any) -> None:
    ambient("parallelism: {default: 2}\nexecution.checkpointing: {interval: 1 s, dir: /data}\n")
    config = make().get_job_config()
    assert config.parallelism == 2
    assert config.checkpoint.interval == timedelta(seconds=1)
    assert config.checkpoint.storage == "/data"


def test_a_job_config_is_all_there_is(ambient: Any) -> None:
    ambient("parallelism.default: 7", PARALLELISM__DEFAULT="8")
    assert make(JobConfig()).get_job_config() == JobConfig()
    assert make().get_parallelism() == 8


def test_a_job_config_as_defaults_lies_below_the_file(ambient: Any) -> None:
    ambient("parallelism.default: 7")
    metrics = MetricsConfig(prometheus_port=0)
    defaults = JobConfig(parallelism=3, batch_size=10, metrics=metrics)
    code = Configuration.from_dict({"strom.attached": "true"})
    config = make(code, defaults=defaults).get_job_config()
    assert (config.parallelism, config.batch_size, config.attached) == (7, 10, True)
    assert config.metrics == metrics
    with pytest.raises(ConfigurationError, match="give it as defaults alone"):
        make(JobConfig(), defaults=defaults)


def test_errors_name_where_the_key_was_set(ambient: Any, tmp_path: Path) -> None:
    ambient("parallelism.default: many")
    with pytest.raises(ConfigurationError) as raised:
        make()
    assert f"'parallelism.default' in {tmp_path / 'config.yaml'}: 'many' is no" in str(raised.value)
    ambient("parallelism.default: 1")
    with pytest.raises(ConfigurationError, match="on the command line: 'x' is no integer"):
        make(Configuration.from_args(["-Dparallelism.default=x"]))
    ambient(EXECUTION__CHECKPOINTING__INTERVALL="1 s")
    with pytest.raises(ConfigurationError, match="STROM_CONF__EXECUTION__CHECKPOINTING__INTERVALL"):
        make()


def test_a_conf_dir_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STROM_CONF_DIR", "nowhere")
    with pytest.raises(ConfigurationError, match=r"nowhere/config\.yaml cannot be read"):
        make()


@pytest.mark.parametrize("name", ["STROM_CONF_PARALLELISM__DEFAULT", "STROM_CONFIG_DIR"])
def test_variables_that_are_nearly_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(
        ConfigurationError, match=f"{name} means nothing: an option is STROM_CONF__"
    ):
        make()


def test_names_of_variables() -> None:
    name = "STROM_CONF__EXECUTION__CHECKPOINTING__MIN_PAUSE"
    assert key_of_variable(name) == "execution.checkpointing.min-pause"
    for key in BY_KEY:
        assert key == key.lower().replace("_", "-"), "no variable could name it"


# --- keys --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("execution.checkpointing.intervall", "'execution.checkpointing.interval'"),
        ("paralelism.default", "'parallelism.default'"),
        ("parallelism", "'parallelism.default'"),
        ("strom.batch.size", "'strom.batch-size'"),
        ("restart-strategy.fixed-delay.attempt", "'restart-strategy.fixed-delay.attempts'"),
    ],
)
def test_misspelt_keys_are_refused_with_the_nearest(key: str, nearest: str) -> None:
    with pytest.raises(ConfigurationError, match=f"option '{key}': there is no such.*{nearest}"):
        configured({key: "1"})


def test_a_key_that_resembles_none() -> None:
    with pytest.raises(ConfigurationError, match=r"docs/configuration\.md"):
        configured({"state.zzzzzzzzzz": "1"})


def test_keys_of_the_program_are_its_own() -> None:
    env = make(Configuration.from_dict({"my.app.threads": 4}))
    assert env.get_configuration().get_integer("my.app.threads", 0) == 4


def test_keys_of_flink_without_effect_are_named_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "_told", set())
    keys = {"taskmanager.numberOfTaskSlots": "4", "rest.port": "8081", "pipeline.jars": "a;b"}
    with caplog.at_level(logging.WARNING, logger="strom"):
        assert configured(keys) == JobConfig()
        assert configured({**keys, "jobmanager.rpc.address": "x"}) == JobConfig()
    assert [record.getMessage() for record in caplog.records] == [
        "options of Flink that have no effect here: pipeline.jars, rest.port, "
        "taskmanager.numberOfTaskSlots",
        "options of Flink that have no effect here: jobmanager.rpc.address",
    ]


def test_what_flinks_autoscaler_has_beyond_this_one_is_said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit that does not hold would be a surprise; so would one that is misspelt."""
    monkeypatch.setattr(foreign, "_told", set())
    keys = {"job.autoscaler.quota.cpu": "4", "job.autoscaler.memory.tuning.enabled": "true"}
    with caplog.at_level(logging.WARNING, logger="strom"):
        configured(keys)
    (record,) = caplog.records
    assert record.getMessage().endswith(": " + ", ".join(sorted(keys)))
    with pytest.raises(ConfigurationError, match=r"did you mean 'job\.autoscaler\.vertex\.max-par"):
        configured({"job.autoscaler.max-parallelism": "4"})


def test_no_known_key_is_taken_for_one_of_flinks() -> None:
    assert [key for key in BY_KEY if foreign.is_foreign(key)] == []
    adaptive = {key for one in ADAPTIVE for key in (one.option.key, *one.option.old_keys)}
    taken = {key for key in BY_KEY if key.startswith(foreign.FOREIGN)} - adaptive
    assert sorted(taken) == [
        "cluster.evenly-spread-out-slots",
        "heartbeat.interval",
        "heartbeat.timeout",
        "jobmanager.execution.failover-strategy",
        "security.ssl.internal.enabled",
        "taskmanager.load-balance.mode",
        "taskmanager.state.local.root-dirs",
    ]


# --- values ------------------------------------------------------------------------------------


ALONE = [known for known in KNOWN if "<name>" not in known.option.key]
"""Those that mean something by themselves; those of a reporter: `test_reporters`."""


@pytest.mark.parametrize("known", ALONE, ids=lambda known: known.option.key)
def test_each_default_is_what_holds_without_it(known: Any) -> None:
    option = known.option
    if option.default is None:
        return
    expected = make().get_job_config()
    values = {option.key: option.type.write(option.default)}
    assert configured(values) == expected, "the documented default changes something"
    for old in option.old_keys:
        assert configured({old: option.type.write(option.default)}) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"restart-strategy.type": "none"}, NoRestart()),
        ({"restart-strategy": "off"}, NoRestart()),
        ({"restart-strategy.fixed-delay.attempts": "9"}, None),
        (
            {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": 9},
            FixedDelayRestart(9, timedelta(seconds=1)),
        ),
        (
            {
                "restart-strategy.type": "failure-rate",
                "restart-strategy.failure-rate.max-failures-per-interval": "2",
                "restart-strategy.failure-rate.failure-rate-interval": "5 min",
                "restart-strategy.failure-rate.delay": "3 s",
            },
            FailureRateRestart(2, timedelta(minutes=5), timedelta(seconds=3)),
        ),
        (
            {
                "restart-strategy.type": "exponentialdelay",
                "restart-strategy.exponential-delay.initial-backoff": "10 ms",
                "restart-strategy.exponential-delay.max-backoff": "20 ms",
                "restart-strategy.exponential-delay.backoff-multiplier": "1.2",
                "restart-strategy.exponential-delay.jitter-factor": "0",
                "restart-strategy.exponential-delay.reset-backoff-threshold": "1 s",
            },
            ExponentialDelayRestart(
                timedelta(milliseconds=10),
                timedelta(milliseconds=20),
                1.2,
                0.0,
                timedelta(seconds=1),
            ),
        ),
    ],
)
def test_restart_strategies(values: dict[str, Any], expected: Any) -> None:
    assert configured(values).restart == expected


def test_options_of_a_group_come_from_several_places(ambient: Any) -> None:
    ambient("restart-strategy.type: fixed-delay", RESTART_STRATEGY__FIXED_DELAY__ATTEMPTS="4")
    env = make().configure(Configuration.from_dict({"restart-strategy.fixed-delay.delay": "2 s"}))
    assert env.get_job_config().restart == FixedDelayRestart(4, timedelta(seconds=2))
    env.set_restart_strategy(RestartStrategies.no_restart())
    assert env.get_restart_strategy() == NoRestart()
    env.set_restart_strategy(RestartStrategies.fall_back_restart())
    assert env.get_restart_strategy() == FixedDelayRestart(4, timedelta(seconds=2))


def test_all_other_values() -> None:
    config = configured(
        {
            "pipeline.max-parallelism": "64",
            "pipeline.auto-watermark-interval": "50 ms",
            "pipeline.operator-chaining": "false",
            "pipeline.global-job-parameters": "a:1",
            "pipeline.global-job-parameters.b": "2",
            "execution.buffer-timeout.interval": "0",
            "execution.checkpointing.min-pause": "1 s",
            "execution.checkpointing.timeout": "2 min",
            "execution.checkpointing.tolerable-failed-checkpoints": "3",
            "state.checkpoints.num-retained": "4",
            "state.checkpoints.dir": "s3://bucket/x",
            "execution.savepoint.path": "s3://bucket/x/job/chk-1",
            "execution.state-recovery.ignore-unclaimed-state": "true",
            "state.backend.type": "memory",
            "task.cancellation.timeout": "5000",
            "slot.request.timeout": "3 s",
            "strom.attached": "false",
            "strom.slot.cpus": "0.5",
            "strom.exchange.buffer-size": "256 kb",
            "strom.exchange.bind-host": "0.0.0.0",
        }
    )
    second = timedelta(seconds=1)
    assert (config.max_parallelism, config.chaining) == (64, False)
    assert config.auto_watermark_interval == timedelta(milliseconds=50)
    assert config.job_parameters == {"a": "1", "b": "2"}
    assert config.exchange.buffer_timeout == timedelta(0)
    assert (config.exchange.buffer_bytes, config.exchange.bind_host) == (256 << 10, "0.0.0.0")
    assert (config.checkpoint.min_pause, config.checkpoint.timeout) == (second, 120 * second)
    assert (config.checkpoint.tolerable_failures, config.checkpoint.retained) == (3, 4)
    assert config.checkpoint.storage == "s3://bucket/x"
    assert config.restore_from == "s3://bucket/x/job/chk-1"
    assert config.allow_unmatched_state
    assert (config.cancellation_timeout, config.slot_request_timeout) == (5 * second, 3 * second)
    assert (config.attached, config.slot_cpus) == (False, 0.5)


def test_where_checkpoints_go() -> None:
    folder = {"execution.checkpointing.dir": "/data"}
    kind = "execution.checkpointing.storage"
    assert configured(folder).checkpoint.storage == "/data"
    assert configured({**folder, kind: "filesystem"}).checkpoint.storage == "/data"
    assert configured({**folder, kind: "jobmanager"}).checkpoint.storage is None
    with pytest.raises(ConfigurationError, match=r"it needs a folder: set 'execution"):
        configured({kind: "filesystem"})


def test_buffers_that_are_sent_when_full() -> None:
    env = make(Configuration.from_dict({"execution.buffer-timeout.enabled": "false"}))
    assert env.get_buffer_timeout() == -1
    assert make().set_buffer_timeout(-1).get_buffer_timeout() == -1


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("execution.runtime-mode", "batch", "runtime mode BATCH is not there yet"),
        ("execution.checkpointing.unaligned.enabled", "perhaps", "perhaps"),
        ("execution.checkpointing.interval", "0 s", "checkpoint_interval must be at least"),
        ("execution.state-recovery.claim-mode", "LEGACY", "claim mode LEGACY is not there"),
        ("parallelism.default", "0", "at least 1"),
        ("pipeline.max-parallelism", "99999", r"in 1\.\.32768"),
        ("restart-strategy.type", "sometimes", "'sometimes' is none of disable, exponential"),
        ("strom.exchange.exclusive-buffers", "0", "at least 1"),
    ],
)
def test_values_that_cannot_be_name_their_key(key: str, value: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as raised:
        configured({key: value})
    assert f"option '{key}'" in str(raised.value)


def test_the_name_of_jobs() -> None:
    env = make(Configuration.from_dict({"pipeline.name": "mine"}))
    env.from_collection([1]).print()
    assert env.get_job_graph().name == "mine"
    assert env.get_job_graph("yours").name == "yours"


def test_a_job_runs_as_configured() -> None:
    values = {"parallelism.default": "2", "execution.checkpointing.interval": "20 ms"}
    env = make(Configuration.from_dict(values))
    stream = env.from_collection(range(10)).map(lambda n: n + 1)
    with stream.execute_and_collect() as results:
        assert sorted(results) == list(range(1, 11))
    assert results.client.get_job_execution_result().checkpoints >= 1
