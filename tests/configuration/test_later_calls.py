"""Options and setters, one after the other: the later one counts, for what it says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from strom import (
    ConfigOptions,
    Configuration,
    FailureRateRestart,
    FixedDelayRestart,
    JobConfig,
    NoRestart,
    RestartStrategies,
    StreamExecutionEnvironment,
)
from strom.api.configuration.current import READ
from strom.api.configuration.known import BY_KEY
from strom.api.jobs import host

make = StreamExecutionEnvironment.get_execution_environment


def test_an_option_that_is_given_later_changes_nothing_that_a_setter_said() -> None:
    env = make(
        Configuration.from_dict(
            {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "7"}
        )
    )
    env.set_restart_strategy(RestartStrategies.no_restart())
    delay = Configuration.from_dict({"restart-strategy.fixed-delay.delay": "2 s"})
    assert env.configure(delay).get_restart_strategy() == NoRestart()
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 100))
    assert env.configure(delay).get_restart_strategy() == FixedDelayRestart(5, timedelta(seconds=2))
    env.configure(Configuration.from_dict({"restart-strategy.type": "failure-rate"}))
    assert env.get_restart_strategy() == FailureRateRestart(
        1, timedelta(minutes=1), timedelta(seconds=1)
    )
    env.set_restart_strategy(RestartStrategies.fall_back_restart())
    assert isinstance(env.get_restart_strategy(), FailureRateRestart)
    given = make(JobConfig(restart=FixedDelayRestart(5))).configure(delay)
    assert given.get_restart_strategy() == FixedDelayRestart(5, timedelta(seconds=2))


def test_a_kind_of_storage_that_is_given_later_keeps_the_folder_of_a_setter() -> None:
    kind = "execution.checkpointing.storage"
    env = make(Configuration.from_dict({"execution.checkpointing.dir": "/a"}))
    env.get_checkpoint_config().set_checkpoint_storage("/b")
    env.configure(Configuration.from_dict({kind: "filesystem"}))
    assert env.get_job_config().checkpoint.storage == "/b"
    env.configure(Configuration.from_dict({kind: "jobmanager"}))
    assert env.get_job_config().checkpoint.storage is None
    env.configure(Configuration.from_dict({"execution.checkpointing.dir": "/c"}))
    assert env.get_job_config().checkpoint.storage is None, "they stay in memory"
    env.configure(Configuration.from_dict({kind: "filesystem"}))
    assert env.get_job_config().checkpoint.storage == "/c"
    env.enable_checkpointing(1000, storage="/d")
    assert env.get_job_config().checkpoint.storage == "/d"


def test_half_of_a_buffer_timeout_that_is_given_later_keeps_the_other_half() -> None:
    enabled = "execution.buffer-timeout.enabled"
    env = make(Configuration.from_dict({"execution.buffer-timeout.interval": "70 ms"}))
    env.set_buffer_timeout(30).configure(Configuration.from_dict({enabled: "true"}))
    assert env.get_buffer_timeout() == 30
    assert env.configure(Configuration.from_dict({enabled: "false"})).get_buffer_timeout() == -1
    interval = Configuration.from_dict({"execution.buffer-timeout.interval": "50 ms"})
    assert env.configure(interval).get_buffer_timeout() == -1
    assert env.configure(Configuration.from_dict({enabled: "true"})).get_buffer_timeout() == 50


# --- what is told ------------------------------------------------------------------------------

OTHER = {
    "parallelism.default": 3,
    "pipeline.max-parallelism": 64,
    "pipeline.name": "mine",
    "pipeline.global-job-parameters": {"a": "1"},
    "execution.buffer-timeout.interval": "20 ms",
    "execution.checkpointing.interval": "2 s",
    "execution.checkpointing.mode": "AT_LEAST_ONCE",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "execution.checkpointing.dir": "/data",
    "execution.checkpointing.storage": "jobmanager",
    "execution.checkpointing.savepoint-dir": "/data/savepoints",
    "execution.checkpointing.local-backup.enabled": "true",
    "execution.checkpointing.incremental.full-every": 5,
    "execution.checkpointing.local-backup.dirs": "/fast/a,/fast/b",
    "execution.state-recovery.path": "/data/job/chk-1",
    "execution.state-recovery.claim-mode": "claim",
    "state.backend.type": "rocksdb",
    "strom.state.backend-by-uid": {"totals": "rocksdb"},
    "state.backend.rocksdb.localdir": "/data/a,/data/b",
    "strom.record.path": "/data/recorded",
    "strom.record.operators": "sums;texts",
    "strom.record.max-size": "2 mb",
    "strom.attached": "true",
    "strom.slot.cpus": "0.5",
    "strom.exchange.buffer-size": "256 kb",
    "strom.exchange.min-buffer-size": "16 kb",
    "strom.exchange.bind-host": "0.0.0.0",
}
"""Values other than the default, of options for which none can be worked out."""


def another(option: Any) -> Any:
    default = option.default
    if isinstance(default, bool):
        return not default
    return default + (timedelta(seconds=7) if isinstance(default, timedelta) else 7)


@pytest.mark.parametrize("key", READ)
def test_what_is_told_is_what_was_given(key: str) -> None:
    """And what is set can be given to another environment."""
    option = BY_KEY[key].option
    value = option.type.read(OTHER[key] if key in OTHER else another(option))
    env = make(JobConfig()).configure(Configuration.from_dict({key: value}))
    assert env.get_configuration().get(option) == value
    assert env.get_configuration().key_set() == {key}
    # The same, where no configuration has said it.
    silent = make(env.get_job_config())
    for name in ("job_name", "auto_uids", "ignored"):
        setattr(silent._settings, name, getattr(env._settings, name))
    theirs = env.get_checkpoint_config()
    silent.get_checkpoint_config().set_checkpointing_mode(theirs.get_checkpointing_mode())
    limit = theirs.get_max_concurrent_checkpoints()
    silent.get_checkpoint_config().set_max_concurrent_checkpoints(limit)
    forced = theirs.is_force_unaligned_checkpoints()
    silent.get_checkpoint_config().set_force_unaligned_checkpoints(forced)
    if value != option.default and key != "execution.checkpointing.storage":
        assert silent.get_configuration().get(option) == value


def test_what_setters_said_is_told() -> None:
    env = make(
        Configuration.from_dict(
            {
                "parallelism.default": "2",
                "my.key": "mine",
                "execution.checkpointing.interval": "1 s",
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "7",
            }
        )
    )
    env.set_parallelism(5).disable_operator_chaining()
    env.get_config().set_auto_watermark_interval(50)
    env.get_checkpoint_config().disable_checkpointing()
    env.get_checkpoint_config().set_checkpoint_storage("/b")
    env.set_restart_strategy(RestartStrategies.failure_rate_restart(2, 1000, 500))
    told = env.get_configuration()
    assert told.to_dict() == {
        "parallelism.default": "5",
        "my.key": "mine",
        "pipeline.operator-chaining.enabled": "false",
        "pipeline.auto-watermark-interval": "50 ms",
        "execution.checkpointing.dir": "/b",
        "restart-strategy.type": "failure-rate",
        "restart-strategy.failure-rate.max-failures-per-interval": "2",
        "restart-strategy.failure-rate.failure-rate-interval": "1 s",
        "restart-strategy.failure-rate.delay": "500 ms",
    }
    again = make(Configuration.from_dict(told.to_dict()))
    assert again.get_job_config() == env.get_job_config()
    odd = make(JobConfig(job_parameters={"n": 7, "b": b"x"})).get_configuration()
    parameters = ConfigOptions.key("pipeline.global-job-parameters").map_type()
    assert odd.get(parameters.no_default_value()) == {"n": "7", "b": "eA=="}


# --- hosts -------------------------------------------------------------------------------------


class Noted:
    """A host that runs nothing."""

    def __init__(self, name: str) -> None:
        self.name, self.closed = name, False

    def submit(self, graph: Any, job_name: str) -> Any:
        return self.name

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Noted]:
    hosts: list[Noted] = []

    def opener(name: str, options: Any) -> Noted:
        hosts.append(Noted(name))
        return hosts[-1]

    monkeypatch.setattr(host, "_openers", [opener])
    return hosts


def runs_on(env: StreamExecutionEnvironment) -> Any:
    env.from_collection([1]).print()
    return env.execute_async()


def test_the_host(opened: list[Noted]) -> None:
    ray = Configuration.from_dict({"strom.host": "ray"})
    assert runs_on(make()) == "local"
    assert runs_on(make(ray)) == "ray"
    assert runs_on(make(ray, "local")) == "local"
    assert runs_on(make(JobConfig()).configure(ray)) == "ray"
    assert runs_on(make(JobConfig(), "local").configure(ray)) == "local"


RAY_JOB = '{"runtime_env": {}, "metadata": {"job_submission_id": "raysubmit_7", "job_name": "x"}}'
"""What the entrypoint of `ray job submit` has in its environment."""


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"RAY_JOB_CONFIG_JSON_ENV_VAR": RAY_JOB}, "it is Ray job 'raysubmit_7'"),
        ({"STROM_SUBMITTED_BY": "`strom run`"}, "it was submitted by `strom run`"),
    ],
)
def test_what_was_handed_to_a_cluster_runs_on_it_unless_told_otherwise(
    opened: list[Noted],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variables: dict[str, str],
    why: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with caplog.at_level("INFO", "strom"):
        env = make()
        assert [runs_on(env), runs_on(env), runs_on(make(JobConfig()))] == ["ray"] * 3
    said = f"the jobs of this program run on host 'ray': {why}"
    assert [one.getMessage() for one in caplog.records] == [said] * 2  # once of each environment
    caplog.clear()
    with caplog.at_level("INFO", "strom"):
        assert runs_on(make(host="local")) == "local"
        assert runs_on(make().set_host("local")) == "local"
        assert runs_on(make(Configuration.from_dict({"strom.host": "local"}))) == "local"
        monkeypatch.setenv("STROM_CONF__STROM__HOST", "local")
        assert runs_on(make()) == "local"
    assert caplog.records == []


@pytest.mark.parametrize("config", ["", "{", "[]", '{"metadata": null}', '{"runtime_env": {}}'])
def test_what_is_no_ray_job(
    opened: list[Noted], monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    """Workers of Ray have `RAY_JOB_ID`; a configuration without the id is of whoever set it."""
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", config)
    monkeypatch.setenv("RAY_JOB_ID", "01000000")
    assert runs_on(make()) == "local"


def test_a_host_that_is_configured_later_takes_the_place_of_an_open_one(
    opened: list[Noted],
) -> None:
    env = make()
    assert runs_on(env) == "local"
    assert runs_on(env.configure(Configuration.from_dict({"my.key": "1"}))) == "local"
    assert runs_on(env.configure(Configuration.from_dict({"strom.host": "ray"}))) == "ray"
    assert [(one.name, one.closed) for one in opened] == [("local", True), ("ray", False)]
    mine = Noted("mine")
    env.set_host(mine)
    assert runs_on(env.configure(Configuration.from_dict({"strom.host": "local"}))) == "mine"
    env.close()
    assert not mine.closed
