"""Where slots lie: two keys of Flink that say the same."""

from __future__ import annotations

import pytest
from strom import Configuration, ConfigurationError, JobConfig, StreamExecutionEnvironment
from strom.core.config import JobConfig as Config

MODE, EVENLY = "taskmanager.load-balance.mode", "cluster.evenly-spread-out-slots"


def told(defaults: Config | None = None, **options: str) -> bool:
    values = {{"mode": MODE, "evenly": EVENLY}[name]: value for name, value in options.items()}
    configuration = Configuration.from_dict(values)
    env = StreamExecutionEnvironment.get_execution_environment(configuration, defaults=defaults)
    return env.get_job_config().spread_slots


@pytest.mark.parametrize(
    ("options", "spread"),
    [
        ({}, False),
        ({"evenly": "true"}, True),
        ({"evenly": "false"}, False),
        ({"mode": "SLOTS"}, True),
        ({"mode": "NONE", "evenly": "true"}, False),
        ({"mode": "slots", "evenly": "false"}, True),
    ],
)
def test_the_newer_one_counts(options: dict[str, str], spread: bool) -> None:
    assert told(**options) is spread
    later = StreamExecutionEnvironment.get_execution_environment()
    for key in ("evenly", "mode"):
        if key in options:
            name = MODE if key == "mode" else EVENLY
            later.configure(Configuration.from_dict({name: options[key]}))
    assert later.get_job_config().spread_slots is spread


def test_what_is_not_said_stays() -> None:
    assert told(JobConfig(spread_slots=True))


def test_tasks_are_not_balanced() -> None:
    with pytest.raises(ConfigurationError, match=r"load-balance\.mode.*TASKS is not there"):
        told(mode="tasks")
