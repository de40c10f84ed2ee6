"""The environment: settings, submission, explain, hosts."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from strom.api.configuration.storage import FileSystemCheckpointStorage
from strom.api.jobs import host as host_module
from strom.api.jobs.host import open_host, register_host_opener
from strom.api.jobs.restart_strategies import RestartStrategies
from strom.api.streams.data_stream import StreamExecutionEnvironment
from strom.core.config import FixedDelayRestart, JobConfig, NoRestart
from strom.core.errors import (
    ConfigurationError,
    GraphError,
    JobFailedError,
    SerializationError,
)
from strom.core.job_status import JobStatus

Env = StreamExecutionEnvironment


def test_execute_submits_the_job_graph_and_returns_its_result(env: Env, host: Any) -> None:
    env.from_collection([1]).map(lambda x: x + 1).print()
    result = env.execute("numbers")
    (client,) = host.submitted
    assert client.graph.name == "numbers"
    assert [v.name for v in client.graph.vertices] == ["Source: Collection -> Map -> Sink: Print"]
    assert (result.get_job_id(), result.get_net_runtime()) == ("job-1", 12.5)


def test_execute_raises_what_the_job_ended_in(env: Env, host: Any) -> None:
    host.outcome = JobStatus.FAILED
    env.from_collection([1]).print()
    with pytest.raises(JobFailedError, match="boom"):
        env.execute()


def test_interrupt_cancels_the_job(env: Env, host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Any, timeout: Any = None) -> Any:
        raise KeyboardInterrupt

    env.from_collection([1]).print()
    client = env.execute_async()
    monkeypatch.setattr(type(client), "get_job_execution_result", interrupted)
    env.from_collection([1]).print()
    with pytest.raises(KeyboardInterrupt):
        env.execute()
    assert [c.cancelled for c in host.submitted] == [False, True]


def test_execute_starts_a_new_job_and_old_streams_can_be_read_again(env: Env, host: Any) -> None:
    numbers = env.from_collection([1])
    numbers.print("first")
    env.execute()
    with pytest.raises(GraphError, match="no operators"):
        env.execute()
    numbers.print("second")
    env.execute()
    first, second = (c.graph.vertices[0] for c in host.submitted)
    assert first.id == second.id, "the source keeps its id"
    assert [len(v.operators) for v in (first, second)] == [2, 2]


def test_unserialisable_function_is_refused_before_submission(env: Env, host: Any) -> None:
    lock = threading.Lock()
    env.from_collection([1]).map(lambda x: lock.locked()).name("locks").print()
    with pytest.raises(SerializationError, match="operator 'locks'"):
        env.execute()
    assert host.submitted == []


# --- settings ----------------------------------------------------------------------------------


def test_config_reaches_the_job(env: Env, host: Any) -> None:
    env.set_parallelism(2).set_max_parallelism(16).set_buffer_timeout(0)
    env.enable_checkpointing(timedelta(seconds=1), storage="/data/checkpoints")
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 500))
    env.disable_operator_chaining()
    env.from_collection([1]).print()
    env.execute()
    config = host.submitted[0].graph.config
    assert (config.parallelism, config.max_parallelism, config.chaining) == (2, 16, False)
    assert config.checkpoint.interval == timedelta(seconds=1)
    assert config.checkpoint.storage == "/data/checkpoints"
    assert config.restart == FixedDelayRestart(3, timedelta(milliseconds=500))
    assert config.exchange.buffer_timeout == timedelta(0)
    assert [v.parallelism for v in host.submitted[0].graph.vertices] == [1, 2]


def test_given_config_is_the_base() -> None:
    base = JobConfig(parallelism=3, batch_size=7, restart=NoRestart())
    env = Env.get_execution_environment(base)
    assert env.get_job_config() == base
    assert (env.get_parallelism(), env.get_max_parallelism()) == (3, 128)
    assert env.is_chaining_enabled()
    assert env.get_buffer_timeout() == 10


def test_parallelism_over_the_maximum_can_be_repaired_later() -> None:
    env = Env.get_execution_environment()
    env.set_parallelism(200)
    with pytest.raises(ConfigurationError, match="parallelism must be in"):
        env.get_job_config()
    env.set_max_parallelism(256)
    assert env.get_job_config().parallelism == 200


def test_operators_take_the_parallelism_of_their_creation(env: Env) -> None:
    stream = env.set_parallelism(2).from_collection([1])
    env.set_parallelism(3)
    stream.map(str).set_parallelism(5).print()
    assert [n.parallelism for n in env.get_stream_graph().nodes] == [1, 5, 3]


def test_checkpoint_config_is_a_view_of_the_environment(env: Env) -> None:
    config = env.get_checkpoint_config()
    assert not config.is_checkpointing_enabled()
    assert env.get_checkpoint_interval() == -1
    env.enable_checkpointing(1500)
    config.set_checkpoint_timeout(timedelta(minutes=2)).set_min_pause_between_checkpoints(250)
    config.set_tolerable_checkpoint_failure_number(4).set_num_retained_checkpoints(3)
    config.set_checkpoint_storage("s3://bucket/x")
    assert env.get_checkpoint_interval() == config.get_checkpoint_interval() == 1500
    assert config.get_checkpoint_timeout() == 120_000
    assert config.get_min_pause_between_checkpoints() == 250
    assert config.get_tolerable_checkpoint_failure_number() == 4
    assert config.get_num_retained_checkpoints() == 3
    assert config.get_checkpoint_storage() == FileSystemCheckpointStorage("s3://bucket/x")
    assert env.get_job_config().checkpoint == config.frozen()
    assert not config.disable_checkpointing().is_checkpointing_enabled()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.set_parallelism(0), "parallelism must be an int of at least 1, is 0"),
        (lambda e: e.set_parallelism(True), "parallelism"),
        (lambda e: e.set_max_parallelism(40_000), "at most 32768"),
        (lambda e: e.set_buffer_timeout(-2), "buffer_timeout must be at least"),
        (lambda e: e.enable_checkpointing(0), "checkpoint_interval must be at least"),
        (lambda e: e.enable_checkpointing("1s"), "timedelta or milliseconds"),
        (lambda e: e.set_restart_strategy("never"), "RestartStrategies"),
        (lambda e: e.from_source([1]), "expected a Source"),
        (lambda e: e.from_collection("text"), "expected a list of records or a table, got str"),
        (lambda e: e.get_checkpoint_config().set_num_retained_checkpoints(0), "at least 1"),
        (lambda e: RestartStrategies.fixed_delay_restart(-1, 0), "restart_attempts"),
        (lambda e: RestartStrategies.failure_rate_restart(0, 1, 1), "failure_rate"),
        (lambda e: RestartStrategies.exponential_delay_restart(100, 50), "max_backoff"),
    ],
)
def test_bad_settings_are_refused(env: Env, call: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        call(env)


def test_bad_config_object() -> None:
    config: Any = {"parallelism": 2}
    with pytest.raises(ConfigurationError, match="expected a Configuration or a JobConfig"):
        Env.get_execution_environment(config)


def test_source_type_must_be_what_the_source_gives(env: Env) -> None:
    from strom.api.connectors.collection import collection_source

    columns = collection_source(pa.table({"a": [1]}))
    env.from_source(columns, type_info={"a": int})
    with pytest.raises(ConfigurationError, match="gives columns a: int64"):
        env.from_source(columns, type_info={"b": int})
    with pytest.raises(ConfigurationError, match="gives Python objects"):
        env.from_source(collection_source([1]), type_info={"a": int})


# --- explain -----------------------------------------------------------------------------------


def test_explain_formats_and_levels(env: Env) -> None:
    env.set_parallelism(2).from_collection([("a", 1)]).key_by(lambda t: t[0]).sum(1).print()
    assert "HASH(<lambda>)" in env.explain()
    assert env.explain(level="stream").startswith("stream graph 'strom job': 3 nodes")
    assert env.explain(level="execution").startswith("execution graph 'strom job': 3 nodes")
    assert env.explain("mermaid").startswith("flowchart LR")
    assert json.loads(env.get_execution_plan())["level"] == "job"
    bad: Any = "svg"
    with pytest.raises(ConfigurationError, match="no format 'svg'"):
        env.explain(bad)
    with pytest.raises(ConfigurationError, match="no level 'svg'"):
        env.explain(level=bad)


# --- hosts -------------------------------------------------------------------------------------


class ClosingHost:
    closed = False

    def submit(self, graph: Any, job_name: str) -> Any:
        return None

    def close(self) -> None:
        self.closed = True


def test_a_named_host_is_opened_once_with_its_options_and_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[tuple[str, dict[str, Any], ClosingHost]] = []

    def opener(name: str, options: Mapping[str, Any]) -> Any:
        opened.append((name, dict(options), ClosingHost()))
        return opened[-1][2]

    monkeypatch.setattr(host_module, "_openers", [])
    register_host_opener(opener)
    with Env.get_execution_environment(host="ray", address="auto") as env:
        for _ in range(2):
            env.from_collection([1]).print()
            env.execute_async()
    ((name, options, opened_host),) = opened
    assert (name, options, opened_host.closed) == ("ray", {"address": "auto"}, True)


def test_a_host_object_is_used_and_left_open() -> None:
    mine = ClosingHost()
    env = Env.get_execution_environment(host=mine)
    env.from_collection([1]).print()
    env.execute_async()
    env.close()
    assert not mine.closed


def test_opening_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "_openers", [])
    with pytest.raises(ConfigurationError, match="'ray' cannot be opened by name"):
        open_host("ray")
    wrong: Any = 3
    with pytest.raises(ConfigurationError, match="neither a host nor the name"):
        open_host(wrong)
    with pytest.raises(ConfigurationError, match="options"):
        open_host(ClosingHost(), {"address": "auto"})


def test_set_host_closes_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = {"one": ClosingHost(), "two": ClosingHost()}
    monkeypatch.setattr(host_module, "_openers", [lambda name, options: hosts[name]])
    env = Env.get_execution_environment(host="one")
    env.from_collection([1]).print()
    env.execute_async()
    env.set_host("two")
    assert hosts["one"].closed
    env.from_collection([1]).print()
    env.execute_async()
    assert not hosts["two"].closed


def test_the_default_savepoint_directory_is_the_jobs() -> None:
    env = Env.get_execution_environment()
    assert env.get_default_savepoint_directory() is None
    assert env.set_default_savepoint_directory("s3://bucket/saved") is env
    assert env.get_default_savepoint_directory() == "s3://bucket/saved"
    assert env.get_job_config().savepoint_directory == "s3://bucket/saved"
    wrong: Any = 3
    with pytest.raises(ConfigurationError, match="directory"):
        env.set_default_savepoint_directory(wrong)
