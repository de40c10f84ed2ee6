"""What the command line says of the configuration holds for jobs, harnesses and processes."""

from __future__ import annotations

import pytest
from strom import ConfigurationError
from strom.benchmarks import cli
from strom.benchmarks.apart import Broken, apart
from strom.benchmarks.configured import BACKEND, backend, configured, job_config
from strom.benchmarks.measure import Setting, environment

MEMORY = "state.backend.rocksdb.memory.fixed-per-tm"


def told() -> list[object]:
    """Called in a process of its own, too."""
    state = job_config().state
    return [state.backend, state.memory]


def broken() -> None:
    raise SystemExit("no luck today")


def test_it_counts_more_than_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STROM_CONF__STATE__BACKEND__TYPE", "rocksdb")
    monkeypatch.setenv("STROM_PROPERTIES", f"{MEMORY}: 3 mb")
    assert told() == ["rocksdb", 3 << 20]
    with configured({BACKEND: "hashmap", MEMORY: "4 mb"}):
        assert told() == ["memory", 4 << 20]
    assert told() == ["rocksdb", 3 << 20]


def test_a_process_is_told_the_same() -> None:
    with configured({BACKEND: "rocksdb", MEMORY: "4 mb"}):
        assert apart(told) == ["rocksdb", 4 << 20]
    with pytest.raises(Broken, match="ended with 1: no luck today"):
        apart(broken)


def test_jobs_are_told() -> None:
    with configured({BACKEND: "rocksdb"}):
        config = environment(Setting("q1", 1, 3, "local")).get_job_config()
    assert (config.state.backend, config.parallelism) == ("rocksdb", 3)
    assert environment(Setting("q1", 1, 3, "local")).get_job_config().state.backend == "memory"


def test_the_options_of_a_command() -> None:
    words = ["kstate", "--events", "20000", "--host", "local", "--checkpoint-interval", "10"]
    words += ["--backend", "rocksdb", "--conf", f"{MEMORY}=8mb", "--verify"]
    (line,) = cli.run(cli.parser().parse_args(words))
    assert (line["state_backend"], line["verified"]) == ("rocksdb", True)
    assert backend() == "memory", "it holds as long as the command runs"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--backend", "rock"], "no state backend 'rock'"),
        (["--conf", "state.backend.tipe=rocksdb"], "did you mean 'state.backend.type'"),
    ],
)
def test_nonsense_is_named(words: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        list(cli.run(cli.parser().parse_args(["kstate", "--host", "local", *words])))
    assert backend() == "memory"


@pytest.mark.parametrize(
    "line",
    [
        "kstate --conf state.backend.type",
        "statesize --bytes much",
        "restore --backends memory,rock",
        "restore --parallelisms 0",
    ],
)
def test_what_cannot_be_read_is_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.parser().parse_args(line.split())
    assert "error:" in capsys.readouterr().err
