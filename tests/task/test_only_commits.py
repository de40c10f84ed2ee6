"""A job without checkpoints ends in one that holds what its sinks commit, and no state."""

from __future__ import annotations

from datetime import timedelta

import pytest
from strom import StreamExecutionEnvironment
from strom.core.config import CheckpointConfig
from strom.state.backend import NoSnapshot


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (CheckpointConfig(), True),
        (CheckpointConfig(interval=timedelta(seconds=1)), False),
        (CheckpointConfig(storage="somewhere"), False),
    ],
)
def test_who_could_start_from_it(config: CheckpointConfig, expected: bool) -> None:
    assert config.only_commits is expected


def test_nothing_is_in_it() -> None:
    assert list(NoSnapshot().tables()) == []


def test_results_are_committed_all_the_same() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    pairs = [(i % 3, i) for i in range(30)]
    sums = env.from_collection(pairs).key_by(lambda pair: pair[0]).sum(1)
    totals: dict[int, int] = {}
    with sums.execute_and_collect() as results:
        for key, total in results:
            totals[key] = max(total, totals.get(key, 0))
    assert totals == {k: sum(range(k, 30, 3)) for k in range(3)}
