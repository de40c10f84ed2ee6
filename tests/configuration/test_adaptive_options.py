"""What an adaptive job is told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from strom import Configuration, ConfigurationError, StreamExecutionEnvironment
from strom.core.adaptive_config import AdaptiveConfig

PREFIX = "jobmanager.adaptive-scheduler"


def told(values: dict[str, str]) -> AdaptiveConfig:
    configuration = Configuration.from_dict(values)
    env: Any = StreamExecutionEnvironment.get_execution_environment(configuration)
    found: AdaptiveConfig = env.get_job_config().adaptive
    return found


def test_each_option_is_a_field() -> None:
    assert told({}) == AdaptiveConfig()
    found = told(
        {
            "jobmanager.scheduler": "Adaptive",
            "strom.adaptive.min-parallelism": "2",
            f"{PREFIX}.submission.resource-wait-timeout": "1 min",
            f"{PREFIX}.submission.resource-stabilization-timeout": "2 s",
            f"{PREFIX}.executing.cooldown-after-rescaling": "3 s",
            f"{PREFIX}.executing.resource-stabilization-timeout": "4 s",
        }
    )
    times = [timedelta(seconds=n) for n in (60, 2, 3, 4)]
    assert found == AdaptiveConfig(True, 2, *times)
    assert not told({"jobmanager.scheduler": "default"}).enabled


def test_the_keys_of_former_versions_of_flink() -> None:
    found = told(
        {
            f"{PREFIX}.resource-wait-timeout": "1 min",
            f"{PREFIX}.resource-stabilization-timeout": "2 s",
            f"{PREFIX}.scaling-interval.min": "3 s",
        }
    )
    assert (found.wait, found.stabilization) == (timedelta(minutes=1), timedelta(seconds=2))
    assert found.cooldown == timedelta(seconds=3)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("jobmanager.scheduler", "AdaptiveBatch", "none of adaptive, default"),
        ("strom.adaptive.min-parallelism", "0", "min_parallelism"),
    ],
)
def test_what_cannot_be(key: str, value: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        told({key: value})
