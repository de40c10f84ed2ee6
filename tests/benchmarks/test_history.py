"""Speed by commit: what is measured in which order, what is kept, and which commit is named."""

from __future__ import annotations

import json
import subprocess
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from strom.benchmarks import cli, history, trees
from strom.benchmarks.history import HISTORY, keep, kept, line_of, lines_of, regressions
from strom.benchmarks.raw_pass import VERSION, passed, raw_pass
from strom.benchmarks.trees import Tree


def course(*ratios: float, benchmark: str = "q5", **more: Any) -> list[dict[str, Any]]:
    """A measurement of each commit, `c0` first."""
    about = {"benchmark": benchmark, "parallelism": 2, "events": 7, **more}
    return [{**about, "commit": f"c{n}", "ratio": ratio} for n, ratio in enumerate(ratios)]


@pytest.mark.parametrize(
    ("ratios", "named"),
    [
        ((1.0, 1.0, 1.0, 0.89, 0.89, 0.89), ["c3"]),
        ((1.0, 0.8, 0.8, 0.8), ["c1"]),
        ((1.0, 1.0, 1.0, 0.91, 0.91, 0.91), []),
        ((1.0, 1.0, 1.0, 0.5, 0.5), []),
        ((1.0, 1.0, 1.0, 0.5, 1.0, 0.5, 1.0, 0.5), []),
        ((0.9, 1.1, 1.0, 0.8, 0.7, 0.85, 0.8, 0.8), ["c3"]),
        ((1.0, 1.0, 1.0, 0.8, 0.8, 0.8, 0.6, 0.6, 0.6), ["c3", "c6"]),
        ((0.5, 0.5, 0.5, 1.0, 1.0, 1.0, 0.8, 0.8, 0.8), ["c6"]),
        ((1.0, 1.0, 9.0, 1.0, 1.0, 1.0), []),
        ((1.0,), []),
        ((), []),
    ],
)
def test_which_commit_is_named(ratios: tuple[float, ...], named: list[str]) -> None:
    """The first one of three that are all slower by a tenth than the three before."""
    assert [found.commit for found in regressions(course(*ratios))] == named


def test_a_regression_says_what_it_cost_and_what_was_measured_before() -> None:
    (found,) = regressions(course(1.0, 1.0, 1.0, 0.8, 0.7, 0.75))
    line = found.as_json()
    assert (line["regression"], line["commit"], line["since"]) == ("q5", "c3", "c2")
    assert (line["before"], line["after"], line["loss"]) == (1.0, 0.75, 0.25)


def test_courses_are_of_what_is_alike() -> None:
    other = course(0.5, 0.5, 0.5, events=8)
    slower = course(2.0, 2.0, 2.0, 1.0, 1.0, 1.0, benchmark="q8")
    assert regressions([*course(1.0, 1.0, 1.0), *other]) == []
    assert [found.benchmark for found in regressions([*other, *slower])] == ["q8"]


class ScriptedTree(Tree):
    """Writes down what it runs; each run is as fast as there were runs."""

    log: list[str] = []  # noqa: RUF012

    def lines(self, arguments: Any, limit_s: float) -> list[dict[str, Any]]:
        self.log.append(arguments[0])
        return [{"events": 7, "events_per_s": len(self.log), "parallelism": 2}]


def test_each_round_lies_between_two_raw_passes(tmp_path: Path) -> None:
    options = Namespace(rounds=2, parallelism=2, limit=1.0, events=7, host="local")
    rates = iter((10, 30, 40, 80))

    def raw(processes: int) -> float:
        ScriptedTree.log.append(f"raw {processes}")
        return next(rates)

    q5, q8 = lines_of(ScriptedTree("abc", tmp_path), ["q5", "q8"], options, raw)
    assert ScriptedTree.log == ["raw 2", "q5", "q8", "raw 2"] * 2
    assert q5["ratios"] == [2 / 20, 6 / 60]
    assert q8["ratios"] == [3 / 20, round(7 / 60, 4)]
    assert (q8["ratio"], q8["events_per_s"], q8["raw_per_s"]) == (0.1333, 5, 40)


def test_a_run_that_failed_is_no_figure(tmp_path: Path) -> None:
    good = {"events_per_s": 1, "raw": 1.0}
    line = line_of("q5", [good, {"error": "abc ended with 1", "raw": 1.0}])
    assert line["error"] == "abc ended with 1"
    assert "error" in line_of("q5", [])
    keep(str(tmp_path / "lines"), line)
    assert kept(str(tmp_path / "lines")) == []


def test_lines_are_kept_in_the_order_of_commits(tmp_path: Path) -> None:
    file = str(tmp_path / "lines")
    for day, version in (("03", VERSION), ("01", VERSION), ("02", VERSION - 1), ("01", VERSION)):
        keep(file, {"committed": f"2026-11-{day}", "raw_version": version})
    assert [line["committed"] for line in kept(file)] == [
        "2026-11-01",
        "2026-11-01",
        "2026-11-03",
    ]


def test_the_raw_pass_counts_rows_of_all_processes() -> None:
    assert passed(0.01) > 0
    assert raw_pass(2, 0.01) > 0


def test_what_is_measured_by_default_exists() -> None:
    assert history.chosen(",".join(HISTORY)) == list(HISTORY)
    options = cli.parser().parse_args(["history", "--benchmarks", "latency"])
    with pytest.raises(SystemExit, match="history keeps rates, and latency has none"):
        list(cli.run(options))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With three commits, of which the second cannot be run."""
    made = tmp_path / "made"
    made.mkdir()
    me = ["-c", "user.name=me", "-c", "user.email=me@localhost"]
    for n, text in enumerate(("", "raise ImportError('half written')", "")):
        (made / "__init__.py").write_text(f"{text}\n# {n}\n")
        for arguments in (["init", "-q"], ["add", "."], [*me, "commit", "-q", "-m", str(n)]):
            subprocess.run(["git", *arguments], cwd=made, check=True)
    monkeypatch.setattr(trees, "HERE", made)
    return made


def test_commits_of_a_range_are_the_oldest_first(repository: Path) -> None:
    three = trees.commits("HEAD~2,HEAD~1,HEAD")
    assert trees.commits("HEAD~2..HEAD") == three[1:]
    assert trees.commits(None) == three[2:]
    assert all(trees.committed_at(one) <= trees.committed_at(three[2]) for one in three)
    assert not trees.is_changed()
    (repository / "__init__.py").write_text("changed")
    assert trees.is_changed()
    with pytest.raises(SystemExit, match="changes that are not committed"):
        list(cli.run(cli.parser().parse_args(["history"])))


def test_a_commit_that_cannot_be_run_is_passed_over_among_several(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error is printed; of every other one lines are kept, and drawn."""
    file, picture = tmp_path / "kept.jsonl", tmp_path / "picture.png"

    def prepared(self: Tree) -> None:
        if self.run(["-c", "import strom"], 60.0).returncode:
            raise trees.NoTree("cannot be imported")

    monkeypatch.setattr(Tree, "prepare", prepared)
    monkeypatch.setattr(Tree, "lines", lambda *_: [{"events_per_s": 5, "events": 7}])
    monkeypatch.setattr(history, "raw_pass", lambda processes: 10.0)
    told = ["--benchmarks", "q5", "--file", str(file), "--draw", str(picture)]
    options = cli.parser().parse_args(["history", "--commits", "HEAD~2,HEAD~1,HEAD", *told])
    with pytest.raises(SystemExit, match="failed: "):
        list(cli.run(options))
    stored = [json.loads(text) for text in file.read_text().splitlines()]
    assert [line["ratio"] for line in stored] == [0.5, 0.5]
    assert [line["commit"] for line in stored] == [one[:12] for one in trees.commits("HEAD~2,HEAD")]
    assert picture.stat().st_size > 1000
    with pytest.raises(SystemExit, match="cannot be imported"):
        list(cli.run(cli.parser().parse_args(["history", "--commits", "HEAD~1", *told])))
