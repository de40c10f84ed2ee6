"""`strom run`: the program, what it is told, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from strom.cli.main import app
from typer.testing import CliRunner

PROGRAM = """
import json, os, sys
from strom import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
told = [sys.argv[1:], env._host_now(), env._settings.base.attached, env._settings.base.wait]
json.dump([*told, os.environ.get("RAY_ADDRESS")], open(sys.argv[1], "w"))
sys.exit(3)
"""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], ["ray", None, True, "nowhere:1"]),
        (["-d", "--address", "there:2"], ["ray", False, False, "there:2"]),
    ],
)
def test_it_is_told_where_and_exits_as_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], told: list[object]
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "nowhere:1")
    program, out = tmp_path / "program.py", str(tmp_path / "told")
    program.write_text(PROGRAM)
    done = CliRunner().invoke(app, ["run", *options, str(program), out, "--detached", "x"])
    assert done.exit_code == 3
    assert json.loads(Path(out).read_text()) == [[out, "--detached", "x"], *told]


def test_the_ids_of_its_jobs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As RayHost says them: tests/rest/test_rest_on_ray.py finds those of its programs so."""
    said = "strom: job 'x' has the id {} and outlives this program; from another: ..."
    ids = ["0123456789abcdef", "fedcba9876543210"]
    lines = [said.format(one) for one in ids]
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys\nprint('mine')\nprint(*{lines}, sep='\\n', file=sys.stderr)\nsys.exit(4)\n"
    )
    done = CliRunner().invoke(app, ["run", "--json", str(program)])
    assert done.exit_code == 4
    assert json.loads(done.stdout) == {"jobs": ids, "exit_code": 4}
    assert sorted(capfd.readouterr().err.splitlines()) == sorted(["mine", *lines])


def test_a_program_that_is_not_there() -> None:
    done = CliRunner().invoke(app, ["run", "nix.py"])
    assert done.exit_code == 2
    assert "there is no file 'nix.py'" in done.output
