"""Options of the autoscaler fit together, in whatever order they were given."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from strom import (
    CheckpointConfig,
    Configuration,
    ConfigurationError,
    JobConfig,
    StreamExecutionEnvironment,
)
from strom.api.jobs.autoscaled import check_autoscaled
from strom.core.autoscaler_config import AutoscalerConfig


def told(defaults: JobConfig | None = None, **options: str) -> AutoscalerConfig:
    values = {f"job.autoscaler.{key.replace('_', '.')}": value for key, value in options.items()}
    configuration = Configuration.from_dict(values)
    env = StreamExecutionEnvironment.get_execution_environment(configuration, defaults=defaults)
    return env.get_job_config().autoscaler


def test_bounds_are_looked_at_together() -> None:
    both = told(utilization_min="0.85", utilization_target="0.9", utilization_max="0.95")
    assert (both.utilization_min, both.target_utilization) == (0.85, 0.9)
    assert both.utilization_max == 0.95
    around = told(target_utilization="0.6", target_utilization_boundary="0.1")
    assert around.utilization_min == pytest.approx(0.5)
    assert around.utilization_max == pytest.approx(0.7)
    one = told(target_utilization_boundary="0.5", utilization_min="0.3")
    assert (one.utilization_min, one.utilization_max) == (0.3, 1.0)
    with pytest.raises(
        ConfigurationError, match=r"job\.autoscaler\.utilization\.min.*min < target"
    ):
        told(utilization_min="0.8")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("utilization.target", "nan", "job.autoscaler.utilization.target must be a finite number"),
        ("scale-up.max-factor", "-1", "job.autoscaler.scale-up.max-factor must be"),
        ("metrics.window", "0", "job.autoscaler.metrics.window must be"),
        ("vertex.min-parallelism", "0", "job.autoscaler.vertex.min-parallelism must be"),
        ("target.utilization.boundary", "-0.3", "utilizations must be min < target < max"),
    ],
)
def test_the_option_that_is_wrong_is_named(option: str, value: str, said: str) -> None:
    key = f"job.autoscaler.{option}"
    values = {"job.autoscaler.enabled": "true", key: value}
    with pytest.raises(ConfigurationError, match=re.escape(f"option '{key}': {said}")):
        StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(values))


def test_what_is_not_said_stays() -> None:
    defaults = JobConfig(autoscaler=AutoscalerConfig(catch_up=timedelta(0), excluded=("a",)))
    config = told(defaults, metrics_window="5 min")
    assert config == AutoscalerConfig(
        catch_up=timedelta(0), excluded=("a",), metrics_window=timedelta(minutes=5)
    )
    assert AutoscalerConfig.of_plain(config.plain()) == config
    assert AutoscalerConfig.of_plain({"of_another_version": 1}) == AutoscalerConfig()


def test_it_is_off_unless_asked_for_and_may_be_advice_only() -> None:
    assert not told().enabled
    on = told(enabled="true")
    assert (on.enabled, on.scaling) == (True, True)
    advice = told(enabled="true", scaling_enabled="false")
    assert (advice.enabled, advice.scaling) == (True, False)
    with pytest.raises(ConfigurationError, match="autoscaler enabled"):
        AutoscalerConfig(enabled="yes")  # type: ignore[arg-type]


def test_means_are_of_some_reports_or_the_job_is_refused() -> None:
    checkpoint = CheckpointConfig(timedelta(seconds=1))
    often, rarely = timedelta(seconds=40), timedelta(seconds=41)
    follows = AutoscalerConfig(enabled=True, metrics_window=timedelta(minutes=2))
    check_autoscaled(JobConfig(checkpoint=checkpoint, autoscaler=follows, metrics_interval=often))
    for scaling in (True, False):
        one = replace(follows, scaling=scaling)
        config = JobConfig(checkpoint=checkpoint, autoscaler=one, metrics_interval=rarely)
        with pytest.raises(ConfigurationError, match=r"each 0:00:41 \(strom\.metrics-interval\)"):
            check_autoscaled(config)
    check_autoscaled(JobConfig(metrics_interval=rarely))


def test_what_is_to_be_left_alone_and_is_not_there_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = {"job.autoscaler.enabled": "true", "job.autoscaler.scaling.enabled": "false"}
    told["job.autoscaler.vertex.exclude.ids"] = "doubled;nosuch"
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(told))
    env.from_collection([1, 2]).map(lambda one: 2 * one).name("doubled").print()
    env.execute("scaled")
    (said,) = [text for text in caplog.messages if "exclude.ids" in text]
    assert "job 'scaled' has no operator 'nosuch', and has " in said
    assert "'doubled'" in said
