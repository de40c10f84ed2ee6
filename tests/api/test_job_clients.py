"""Answers of a job's client, read as values and as PyFlink's futures; states; durations."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pytest
from strom import (
    CompletableFuture,
    ConfigurationError,
    Duration,
    Instant,
    JobExecutionResult,
    JobID,
    JobStatus,
    RestartStrategies,
    RestartStrategyConfiguration,
    StreamExecutionEnvironment,
    Time,
)


def test_answers_of_a_running_job_are_values_and_futures() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).print("values and futures")
    client = env.execute_async()
    result = client.get_job_execution_result().result()
    assert isinstance(result, JobExecutionResult)
    assert result.get_job_id() == client.get_job_id()
    assert result.get_net_runtime() >= 0
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert client.get_job_status() is JobStatus.FINISHED
    cancelled = client.cancel()
    assert isinstance(cancelled, CompletableFuture)
    assert (cancelled.result(), cancelled.done(), cancelled.exception()) == (None, True, None)
    assert (cancelled.cancel(), cancelled.cancelled()) == (False, False)


def test_a_job_id_is_a_text() -> None:
    job = JobID("0a1b")
    assert (job, str(job), f"{job}", repr(job)) == ("0a1b", "0a1b", "0a1b", "JobID('0a1b')")
    assert type(str(job)) is str
    assert job.result() is job
    assert pickle.loads(pickle.dumps(job)) == job


def test_which_states_are_ends() -> None:
    ends = {status for status in JobStatus if status.is_terminal_state()}
    assert ends == {"FAILED", "CANCELED", "FINISHED", "SUSPENDED"}
    assert {s for s in ends if not s.is_globally_terminal_state()} == {JobStatus.SUSPENDED}
    assert not JobStatus.RECONCILING.is_terminal_state()
    assert not JobStatus.RUNNING.is_globally_terminal_state()
    for status in JobStatus:
        assert status.result() is status
        assert status.done()
        assert status.exception() is None
        assert pickle.loads(pickle.dumps(status)) is status


def test_restarts_that_fall_back() -> None:
    assert RestartStrategies.fall_back_restart() is None
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 10))
    env.set_restart_strategy(RestartStrategies.fall_back_restart())
    assert env.get_job_config().restart is None
    assert env.get_restart_strategy() == RestartStrategies.no_restart()


def test_restarts_describe_themselves() -> None:
    strategy = RestartStrategies.fixed_delay_restart(2, 10)
    assert isinstance(strategy, RestartStrategyConfiguration)
    assert "attempts=2" in strategy.get_description()


# --- durations ---------------------------------------------------------------------------------


def test_times_are_timedeltas_that_know_their_milliseconds() -> None:
    for time, expected in (
        (Time(1500), 1500),
        (Time.milliseconds(3), 3),
        (Time.seconds(2), 2000),
        (Time.minutes(2), 120_000),
        (Time.hours(1), 3_600_000),
        (Time.days(1), 86_400_000),
        (Duration.of_nanos(1_999_999), 1),
        (Duration.of_millis(7), 7),
    ):
        assert time.to_milliseconds() == expected
        assert isinstance(time, timedelta)
        assert pickle.loads(pickle.dumps(time)) == time
    assert Duration.of_nanos(1_500) == timedelta(microseconds=1)
    assert (Time.days(2).days, Time.seconds(5).seconds) == (2, 5)


def test_instants() -> None:
    assert Instant(1, 5).to_epoch_milli() == 1000
    assert Instant.of_epoch_milli(-1) == Instant(-1, 999_000_000)
    assert Instant(1, 0) < Instant(1, 1) < Instant(2, 0)
    with pytest.raises(ConfigurationError, match="nanos must be in"):
        Instant(0, 1_000_000_000)
