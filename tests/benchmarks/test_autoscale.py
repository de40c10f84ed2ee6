"""The command `autoscale`, on a short curve."""

from __future__ import annotations

import json

import pytest
from strom.benchmarks import cli, key_load
from strom.benchmarks.autoscale import chosen


def test_a_step_beside_an_oracle_and_fixed_parallelisms() -> None:
    arguments = ["autoscale", "--curves", "step", "--seconds", "1200", "--json"]
    told = ["--conf", "job.autoscaler.metrics.window=30 s"]
    told += ["--conf", "job.autoscaler.stabilization.interval=20 s"]
    options = cli.parser().parse_args([*arguments, *told])
    (line,) = json.loads(json.dumps(list(cli.run(options))))
    assert line["curve"] == "step"
    assert line["broken"] == []
    assert line["rescales"] >= 3
    assert 1 < line["cost"] < line["peak_cost"]
    assert line["peak_lag_max_s"] < line["lag_max_s"] < line["mean_lag_max_s"]
    with pytest.raises(SystemExit, match=r"no curve \['saw'\]"):
        chosen("step,saw")


def test_what_looking_at_keys_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_load, "TRIES", 2)
    options = cli.parser().parse_args(["autoscale", "--keys"])
    lines = list(cli.run(options))
    assert len(lines) == 4
    assert all(line["sample_us"] > 0 and 0 < line["share"] < 1 for line in lines)
