"""What a run was told reaches programs that give a `JobConfig`, and look at nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from strom import ConfigurationError, DiscardSink, JobConfig, StreamExecutionEnvironment
from strom.api.configuration.submitted import SUBMITTED_OPTIONS, with_submitted
from strom.cli.run_options import RunOptions
from strom.core.errors import StromError

GIVEN = JobConfig(parallelism=3)


def test_what_was_asked_for_the_run_counts_and_nothing_else() -> None:
    told = RunOptions(detached=True, restore_from="there", runtime_env='{"env_vars": {"A": "b"}}')
    environment = told.environment({"STROM_CONF__PARALLELISM__DEFAULT": "7"})
    found = with_submitted(GIVEN, environment)
    assert (found.restore_from, found.wait, found.parallelism) == ("there", False, 3)
    assert found != replace(GIVEN, restore_from="there", wait=False), "the runtime environment"
    assert with_submitted(GIVEN, {"STROM_CONF__PARALLELISM__DEFAULT": "7"}) is GIVEN
    assert with_submitted(GIVEN, RunOptions().environment({})) is GIVEN


def test_what_the_program_sets_counts_more() -> None:
    environment = RunOptions(restore_from="there").environment({})
    assert with_submitted(replace(GIVEN, restore_from="here"), environment).restore_from == "here"


def test_nonsense_names_its_variable() -> None:
    environment = {"STROM_CONF__STROM__WAIT": "perhaps", SUBMITTED_OPTIONS: "strom.wait"}
    with pytest.raises(ConfigurationError, match="STROM_CONF__STROM__WAIT"):
        with_submitted(GIVEN, environment)


def test_a_program_does_not_begin_from_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    empty = str(tmp_path_factory.mktemp("empty"))
    for name, value in RunOptions(restore_from=empty).environment({}).items():
        if name.startswith("STROM_CONF__") or name == SUBMITTED_OPTIONS:
            monkeypatch.setenv(name, value)
    env = StreamExecutionEnvironment.get_execution_environment(GIVEN, host="local")
    env.from_collection([1, 2]).sink_to(DiscardSink())
    with pytest.raises(StromError, match="no complete checkpoint or savepoint"):
        env.execute()
