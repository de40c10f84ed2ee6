"""Commands that start processes: plans of programs, benchmarks, completion in a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from strom.cli import bench, children
from strom.cli.main import app
from typer.completion import get_completion_script
from typer.testing import CliRunner

PROGRAM = """
import sys
from pathlib import Path

import strom
from strom.engine.hosts.local import LocalHost

env = strom.StreamExecutionEnvironment.get_execution_environment(host=LocalHost())
env.set_parallelism(2)
words = env.from_collection([{"k": 1}], type_info=strom.Types.ROW_NAMED(["k"], [strom.Types.LONG()]))
kept = words.key_by("k").map(lambda row: row).name(sys.argv[1]).cache()
kept.sink_to(strom.DiscardSink())
print("about to run")
try:
    env.execute("planned")
    Path(__file__).with_name("ran").touch()
finally:
    Path(__file__).with_name("cleaned").touch()
"""  # noqa: E501


def test_a_plan_of_a_program_which_runs_no_job(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "job.py"
    program.write_text(PROGRAM)
    words = ["plan", "--json", "--program", str(program), "--", "the step", "--other"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    planned = json.loads(done.stdout)
    assert planned["name"] == "planned"
    source, kept = planned["nodes"]
    assert source["kind"] == "source"
    assert kept["inputs"][0]["ship"] == "HASH(k)"
    assert kept["operators"][0]["name"] == "the step"
    assert kept["operators"][0]["implementation"]["kind"] == "batches or rows"
    assert {path.name for path in tmp_path.iterdir()} == {"job.py", "cleaned"}
    assert capfd.readouterr() == ("", "about to run\n")


def test_programs_that_come_to_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(app, ["plan", "--module", "json", "--json"])
    assert (done.exit_code, json.loads(done.stdout)) == (
        2,
        {"error": "'json' came to no job: it ended with exit code 1"},
    )
    for words in ([], ["a", "b"], ["--program", "x", "--module", "y"], ["--program", "nix.py"]):
        assert CliRunner().invoke(app, ["plan", *words]).exit_code == 2
    monkeypatch.setattr(children, "exit_code", lambda *words, **how: 130)
    assert CliRunner().invoke(app, ["plan", "--module", "json"]).exit_code == 130, "Ctrl-C"


def test_benchmarks_are_listed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CliRunner().invoke(app, ["bench", "--help"]).exit_code == 0
    out, _ = capfd.readouterr()
    assert out.startswith("usage: strom bench ")
    assert "\n    statesize " in out
    monkeypatch.setattr(bench, "PROGRAM", "import sys; sys.exit(len(sys.argv))")
    assert CliRunner().invoke(app, ["bench", "q5", "--json"]).exit_code == 3


SHELL = """
strom --install-completion; true
. ~/.bash_completions/strom.sh
of() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _strom_completion "$1"; echo "${COMPREPLY[*]}"; }
of strom che
of strom plan --pro
of strom state ver
"""


def test_a_shell_completes(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"HOME": str(tmp_path), "PATH": path}
    done = subprocess.run(
        ["bash", "--norc", "-c", SHELL], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-3:] == ["checkpoints", "--program", "verify"], done
    assert "bash_completions/strom.sh" in (tmp_path / ".bashrc").read_text()


def test_zsh_is_answered_by_what_it_has_just_loaded() -> None:
    """Its first Tab: else the script says nothing. Without zsh, which may not be there."""
    script = get_completion_script(prog_name="strom", complete_var="_STROM_COMPLETE", shell="zsh")
    assert script.splitlines()[-5:] == [
        "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then",
        '  _strom_completion "$@"',
        "else",
        "  compdef _strom_completion strom",
        "fi",
    ]
