"""`strom savepoint` and `strom stop` where no job is asked; with jobs: tests/chaos."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
import strom
from strom.cli.main import app
from strom.core.errors import ConfigurationError, CorruptCheckpointError
from typer.testing import CliRunner


def asked(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, words)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.fixture
def path(tmp_path: Path) -> str:
    data = pa.table({"k": ["a", "b"], "v": [1, 2]})
    return strom.state.write().value("u", "total", data, key="k", value="v").save(f"{tmp_path}/one")


@pytest.fixture
def _no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))


def test_a_savepoint_is_removed_wherever_it_is(path: str, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.move(path, moved)
    code, said = asked("savepoint", "--dispose", str(moved))
    assert (code, said) == (0, f"removed {moved}\n")
    assert not moved.exists()
    code, said = asked("savepoint", "--dispose", str(moved), "--json")
    assert code == 2
    assert "there is no savepoint in" in said


def test_nothing_else_is_removed(path: str, tmp_path: Path) -> None:
    env = strom.StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(60_000, storage=str(tmp_path / "checkpoints"))
    env.from_collection([1]).sink_to(strom.DiscardSink())
    env.execute()
    (manifest,) = (tmp_path / "checkpoints").glob("*/chk-*/manifest.json")
    with pytest.raises(ConfigurationError, match=r"is checkpoint 1 of job .*only savepoints are"):
        strom.state.dispose(str(manifest.parent))
    assert manifest.exists()
    with pytest.raises(ConfigurationError, match="there is no savepoint"):
        strom.state.dispose(str(tmp_path / "checkpoints"))
    altered = Path(path) / "manifest.json"
    altered.write_bytes(altered.read_bytes().replace(b'"savepoint":true', b'"savepoint":false'))
    with pytest.raises(CorruptCheckpointError, match="was altered"):
        strom.state.dispose(path)
    assert altered.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("savepoint",),
        ("savepoint", "a-job", "--dispose", "somewhere"),
        ("stop",),
        ("stop", "a-job", "--timeout", "-1"),
    ],
)
def test_wrong_use_is_exit_code_2(words: tuple[str, ...]) -> None:
    assert asked(*words)[0] == 2


@pytest.mark.usefixtures("_no_cluster")
@pytest.mark.parametrize("words", [("savepoint", "a-job", "somewhere"), ("stop", "a-job")])
def test_without_a_cluster_none_is_started(words: tuple[str, ...]) -> None:
    import ray

    code, said = asked(*words, "--json")
    assert code == 2
    assert "no Ray cluster is named" in said
    assert not ray.is_initialized()
