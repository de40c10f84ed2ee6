"""Two revisions beside each other: which is run, in which order, and what is said of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import psutil
import pytest
from strom.benchmarks import before_after, cli, trees
from strom.benchmarks.before_after import arguments_of, chosen, in_turns, kept, line_of, table
from strom.benchmarks.trees import NoTree, Tree


def side(*rates: int, memory: int = 400, **more: Any) -> list[dict[str, Any]]:
    return [{"events": 7, "events_per_s": rate, "peak_rss_mb": memory, **more} for rate in rates]


def test_medians_and_ratios() -> None:
    line = line_of("q5", "abc", side(100, 300, 200), side(220, 180, 900, memory=410))
    assert (line["before"]["events_per_s"], line["after"]["events_per_s"]) == (200, 220)
    assert (line["speed"], line["memory"], line["flags"]) == (1.1, 1.025, [])
    assert line["after"]["runs"] == [220, 180, 900]
    assert (line["events"], line["base"]) == (7, "abc")


@pytest.mark.parametrize(
    ("before", "after", "flags"),
    [
        (side(100), side(96), []),
        (side(100), side(94), ["slower"]),
        (side(100), side(100, memory=419), []),
        (side(100), side(100, memory=421), ["memory"]),
        (side(100), side(50, memory=800), ["slower", "memory"]),
    ],
)
def test_what_is_flagged(before: Any, after: Any, flags: list[str]) -> None:
    assert line_of("q5", "abc", before, after)["flags"] == flags


def test_of_times_less_is_better() -> None:
    slower = line_of("recovery", "abc", [{"median_s": 1.0}], [{"median_s": 1.25}])
    assert (slower["speed"], slower["memory"], slower["flags"]) == (0.8, None, ["slower"])
    faster = line_of("latency", "abc", [{"p50_ms": 3.0, "p99_ms": 9.0}], [{"p50_ms": 2.0}])
    assert (faster["speed"], faster["flags"]) == (1.5, [])
    assert faster["before"]["p99_ms"] == 9.0


def test_a_run_that_failed_is_no_figure() -> None:
    line = line_of("q5", "abc", side(100), [{"error": "here ended | with 1"}])
    assert line["error"] == "here ended | with 1"
    assert "| q5 | here ended / with 1 |" in table([line])


def test_the_table_is_of_the_latest_lines_of_all_parts(tmp_path: Path) -> None:
    file = str(tmp_path / "lines.jsonl")
    first = line_of("q5", "abc", side(2_000_000), side(1_000_000))
    again = line_of("q5", "abc", side(2_000_000), side(2_200_000))
    other = line_of("recovery", "abc", [{"median_s": 1.5}], [{"median_s": 1.5}])
    assert kept(file, [first]) == [first]
    assert kept(file, [other, again]) == [again, other]
    assert len(Path(file).read_text().splitlines()) == 3
    text = table(kept(file, []))
    assert "| q5 | events_per_s | 2,000,000 | 2,200,000 | 1.10 | 400 | 400 | 1.00 |  |" in text
    assert "| recovery | median_s | 1.5 | 1.5 | 1.00 |  |  |  |  |" in text


def test_names_stand_for_several() -> None:
    everything = chosen("all")
    assert {"q0", "q23", "whole:q5", "kstate", "kprocess", "wordcount"} < set(everything)
    assert {"wordcount_columns", "latency", "recovery"} < set(everything)
    assert chosen("q5,state,q5")[:2] == ["q5", "kstate"]
    assert len(everything) == len(set(everything))
    for name in ("q99", "whole:kstate", ""):
        with pytest.raises(SystemExit, match="no benchmark"):
            chosen(name)


def test_every_benchmark_is_a_command_line() -> None:
    options = Namespace(events=11, parallelism=3, host="local", seconds=2.0, kills=1)
    for name in chosen("all"):
        options.host = "local" if name != "recovery" else "ray"
        arguments = arguments_of(name, options)
        parsed = cli.parser().parse_args([*arguments, "--json"])
        assert parsed.parallelism == 3
        if name not in before_after.FIGURES:
            assert parsed.events == 11
            assert parsed.whole_stream == name.startswith("whole:")


class ScriptedTree(Tree):
    """Writes down when it ran."""

    log: list[str] = []  # noqa: RUF012

    def lines(self, arguments: Any, limit_s: float) -> list[dict[str, Any]]:
        self.log.append(self.revision)
        return side(len(self.log))


def test_the_two_take_turns_in_beginning(tmp_path: Path) -> None:
    base, here = ScriptedTree("base", tmp_path / "b"), ScriptedTree("here", tmp_path / "h")
    before, after = in_turns(base, here, ["q5"], 3, 1.0)
    assert ScriptedTree.log == ["base", "here", "here", "base", "base", "here"]
    assert [line["events_per_s"] for line in before] == [1, 4, 5]
    assert [line["events_per_s"] for line in after] == [2, 3, 6]


def test_a_run_that_takes_too_long_ends_with_what_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', "
        "'import time; time.sleep(600)']); print(child.pid, flush=True); time.sleep(600)"
    )
    done = Tree("base", tmp_path).run(["-c", code], 3.0)
    assert done.returncode == -9
    assert "was ended after 3 s" in done.stderr
    child = int(done.stdout)
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)


def test_what_failed_says_why(tmp_path: Path) -> None:
    (tmp_path / "strom").mkdir()
    (tmp_path / "strom" / "__init__.py").write_text("raise ImportError('half written')")
    (line,) = Tree("abc", tmp_path).lines(["q5"], 30.0)
    assert line["error"].startswith("abc ended with 1:")
    assert line["error"].endswith("ImportError: half written")
    with pytest.raises(NoTree, match="abc has no kernels"):
        Tree("abc", tmp_path).prepare()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of this package with one commit, and a change that is not committed."""
    copy = tmp_path / "copy"
    unwanted = shutil.ignore_patterns(".git", ".venv", "tests", "docs", "examples", "out", "build")
    shutil.copytree(trees.HERE, copy, ignore=unwanted)
    (copy / "mark.py").write_text("MARK = 'before'\n")
    me = ["-c", "user.name=me", "-c", "user.email=me@localhost"]
    for arguments in (["init", "-q"], ["add", "."], [*me, "commit", "-q", "-m", "before"]):
        subprocess.run(["git", *arguments], cwd=copy, check=True)
    (copy / "mark.py").write_text("MARK = 'after'\n")
    monkeypatch.setattr(trees, "HERE", copy)
    return copy


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_trees(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is itself, with kernels; nothing stays behind; the command runs both."""
    with trees.base_and_here("HEAD") as both:
        code = "from strom.mark import MARK; print(MARK)"
        assert [tree.run(["-c", code], 60.0).stdout for tree in both] == ["before\n", "after\n"]
        folder = both[0].path.parent
        assert len(list((folder / "tree" / trees.LIBRARIES).glob("*.so"))) == 1
    assert not folder.exists()
    worktrees = ["git", "-C", str(repository), "worktree", "list"]
    listed = subprocess.run(worktrees, capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 1

    small = ["--benchmarks", "q2", "--events", "20000", "--host", "local", "--rounds", "1"]
    monkeypatch.setattr("sys.argv", ["benchmarks", "before-after", "--base", "HEAD", *small])
    cli.main()
    line, *rows = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["benchmark"], found["events"]) == ("q2", 20_000)
    assert found["speed"] > 0
    assert rows[-1].startswith("| q2 | events_per_s | ")


def test_a_revision_that_does_not_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    monkeypatch.setattr(trees, "HERE", tmp_path)
    options = cli.parser().parse_args(["before-after", "--base", "nowhere", "--benchmarks", "q2"])
    with pytest.raises(SystemExit, match=r"git worktree add .*nowhere"):
        list(cli.run(options))
