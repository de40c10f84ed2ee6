"""`strom run`: the program, what it is told, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from strom import ConfigurationError, DiscardSink, StreamExecutionEnvironment
from strom.cli.main import app
from strom.cluster import saved_graphs
from typer.testing import CliRunner
from wheels_kit import make_wheel

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


BROUGHT = """
import json, os, sys
import helper
from strom import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
config = env.get_job_config()
told = [config.python_files, config.runtime_env, config.restore_from, os.environ["COLOUR"]]
json.dump([helper.SEVEN, os.getcwd(), *told], open(sys.argv[1], "w"))
"""


def test_what_a_program_is_brought_is_for_its_jobs_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    (folder / "jobs").mkdir(parents=True)
    (folder / "helper.py").write_text("SEVEN = 7\n")
    (folder / "jobs" / "one.py").write_text(BROUGHT)
    make_wheel(tmp_path, "strom_tiny", "1.0", "")
    (wheel,) = tmp_path.glob("*.whl")
    (tmp_path / "saved").mkdir()
    (tmp_path / "env.json").write_text('{"pip": ["one"], "env_vars": {"COLOUR": "red"}}')
    out = tmp_path / "told"
    monkeypatch.chdir(tmp_path)
    options = ["--working-dir", "folder", "--wheel", wheel.name, "--pip", "two>=2"]
    options += ["--env-var", "COLOUR=blue", "--runtime-env", "env.json", "-s", "./saved"]
    done = CliRunner().invoke(app, ["run", *options, "-m", "jobs.one", str(out)])
    assert done.exit_code == 0
    runtime_env = {"pip": {"packages": ["one", "two>=2"]}, "env_vars": {"COLOUR": "blue"}}
    saved = str(tmp_path / "saved")
    sent = [str(wheel), str(folder)]  # the last comes first
    assert json.loads(out.read_text()) == [7, str(folder), sent, runtime_env, saved, "blue"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--wheel", "nix.whl"], "'nix.whl' is no wheel"),
        (["--working-dir", "nix"], "there is no folder 'nix'"),
        (["--env-var", "COLOUR"], "'COLOUR' is not NAME=VALUE"),
        (["--runtime-env", "{"], "is not JSON"),
        (["--runtime-env", "nix.json"], "nix.json cannot be read"),
        (["--graph", "--pip", "one"], "from the program that saved it"),
    ],
)
def test_what_it_cannot_be_brought(tmp_path: Path, options: list[str], why: str) -> None:
    program = tmp_path / "program.py"
    program.write_text("")
    done = CliRunner().invoke(app, ["run", *options, str(program)])
    assert done.exit_code == 2
    assert why in " ".join(done.output.split())


def test_a_graph_of_another_version_is_not_opened(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1, 2]).map(lambda n: n + 1).sink_to(DiscardSink())
    path = tmp_path / "graph"
    env.get_job_graph("saved").save(path)
    assert saved_graphs.load(str(path)).name == "saved"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"strom graph 1 ", b"strom graph 9 ", 1))
    with pytest.raises(ConfigurationError, match=r"it begins with 'strom graph 9 .*save it anew"):
        saved_graphs.load(str(path))
    path.write_bytes(b"nonsense")
    assert saved_graphs.main([str(path)]) == 1
    with pytest.raises(ConfigurationError, match="it is no graph"):
        saved_graphs.load(str(path))
