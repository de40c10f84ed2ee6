"""What `strom run` says before it runs anything: places and graphs that are not there."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
from strom.cli import answers, children
from strom.cli.main import app
from strom.engine.graph.model import SAVED
from typer.testing import CliRunner


def refused(*words: str) -> str:
    done = CliRunner().invoke(app, ["run", "--json", *words])
    assert done.exit_code == 2, done.output
    why: str = json.loads(done.stdout)["error"]
    done = CliRunner().invoke(app, ["run", *words])
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"strom: {why}\n")
    return why


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    path = tmp_path / "program.py"
    path.write_text("")
    return str(path)


def test_nothing_to_restore_from(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = str(tmp_path / "nix")
    assert refused("-s", nowhere, program) == f"--restore-from: there is no folder '{nowhere}'"

    def told(words: list[str], environment: dict[str, str], folder: object) -> int:
        places.append(environment["STROM_CONF__EXECUTION__STATE_RECOVERY__PATH"])
        return 0

    places: list[str] = []
    monkeypatch.setattr(children, "exit_code", told)
    there = ["--address", "ray://there:10001"]  # its folders are not this machine's
    for words in (["-s", str(tmp_path)], ["-s", "s3://b/nix"], [*there, "-s", nowhere]):
        assert CliRunner().invoke(app, ["run", *words, program]).exit_code == 0
    assert places == [str(tmp_path), "s3://b/nix", nowhere]


def test_graphs_that_are_none(tmp_path: Path) -> None:
    """Nothing of them is run for that."""
    path = tmp_path / "graph"
    assert "No such file" in refused("--graph", str(path))
    assert "cannot be read" in refused("--graph", str(tmp_path))
    whole = SAVED + pickle.dumps(["x"] * 10)
    for data, why in (
        (b"", "it is no graph"),
        (b"\x00\xffgarbage", "it is no graph"),
        (SAVED.replace(b"graph 1", b"graph 9"), "it begins with 'strom graph 9"),
        (SAVED, "its end is missing"),
        (whole[:-1], "its end is missing"),
    ):
        path.write_bytes(data)
        found = refused("--graph", str(path))
        assert why in found
        assert "save it anew" in found


def test_a_graph_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "graph"
    path.write_bytes(SAVED + pickle.dumps(["x"]))
    monkeypatch.setattr(children, "exit_code", lambda words, *how: 7 if str(path) in words else 0)
    assert CliRunner().invoke(app, ["run", "--graph", str(path)]).exit_code == 7


def test_the_ids_of_jobs_do_not_need_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    line = "strom: job 'x' has the id 0123456789abcdef and ends"
    program.write_text(f"import sys; print('first', {line!r}, sep='\\n', file=sys.stderr)")
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(answers, "STDERR", full)
    done = CliRunner().invoke(app, ["run", "--json", str(program)])
    os.close(full)
    assert json.loads(done.stdout) == {"jobs": ["0123456789abcdef"], "exit_code": 0}
