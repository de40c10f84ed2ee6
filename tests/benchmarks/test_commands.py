"""The commands: their lines, the peers they run, the report they write."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from strom.benchmarks import cli, compare, quick, report, workloads
from strom.benchmarks.measure import Run, Setting, Sources, processes_of, summary

FAKE_PEER = """
import json, sys
system, asked = sys.argv[-2:]
query, _, events = asked.partition(":")
with open(__file__ + ".calls", "a") as calls:
    calls.write(query + "\\n")
if query == "q2":
    print(json.dumps({"system": system, "query": query, "error": "no such luck"}))
else:
    rate = [1000, 500, 250][len(open(__file__ + ".calls").readlines()) % 3]
    line = {"events_per_s": rate, "events": int(events or 7), "cpu_s_per_m_events": 2.5}
    print("starting")
    print(json.dumps({"system": system, "query": query, "peak_rss_mb": rate, **line}))
"""


def lines_of(*arguments: str) -> list[dict[str, Any]]:
    """What a command prints, as JSON would bring it back."""
    options = cli.parser().parse_args(arguments)
    return [json.loads(json.dumps(line)) for line in cli.run(options)]


def test_a_workload_verified(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["q2", "--events", "20000", "--host", "local", "--verify", "--json"]
    options = cli.parser().parse_args(arguments)
    for line in cli.run(options):
        cli.show(line, options.json)
    line = json.loads(capsys.readouterr().out)
    assert (line["name"], line["events"], line["parallelism"]) == ("q2", 20_000, 2)
    assert line["verified"] is True
    assert line["verified_events"] == 20_000
    assert line["strings"] in ("string", "string_view", "large_string")


@pytest.mark.parametrize(
    "line",
    [
        "nexmark q1 --events -5",
        "nexmark q1 --events 0",
        "nexmark q1 --events 99999999999999999999",
        "nexmark q1 --events 1e6",
        "nexmark q1 --parallelism 0",
        "nexmark q1 --runs 0",
        "nexmark q1 --checkpoint-interval nan",
        "nexmark q1 --host mars",
        "latency --rate -1",
        "latency --rate 0",
        "latency --seconds inf",
        "latency --buffer-timeout -1",
        "scale --tasks 0",
        "scale --tasks 2,,4",
        "scale --tasks x",
        "recovery --kills 0",
        "snapshot --keys 0",
        "snapshot --rounds 0",
        "before-after",
        "before-after --base main --rounds 0",
        "compare nobody",
        "report",
        "nothing",
    ],
)
def test_nonsense_is_refused_before_anything_runs(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.parser().parse_args(line.split())
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["nexmark q99", "scale --queries q99", "nexmark ,"])
def test_an_unknown_query_is_named(line: str) -> None:
    with pytest.raises(SystemExit, match="no workload"):
        lines_of(*line.split())


def test_an_error_of_the_engine_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "latency", "--parallelism", "1000"])
    with pytest.raises(SystemExit, match="max_parallelism"):
        cli.main()


def test_the_kinds_that_are_made() -> None:
    common = ("nexmark", "q8", "--events", "20000", "--host", "local")
    (split,) = lines_of(*common)
    (whole,) = lines_of(*common, "--whole-stream", "--verify")
    assert (split["kinds"], whole["kinds"]) == ("auction+person", "all")
    assert split["rows_out"] == whole["rows_out"] > 0
    assert (split["strings"], whole["strings"]) == ("string", "string_view")


def test_a_wrong_output_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(workloads.WORKLOADS["q2"], reference=lambda events: [(1, 2)])
    monkeypatch.setitem(workloads.WORKLOADS, "q2", wrong)
    with pytest.raises(SystemExit, match=r"wrong output: q2, 20000 events: .*missing"):
        lines_of("q2", "--events", "20000", "--host", "local", "--verify")


def test_the_suite_and_runs() -> None:
    common = ("--events", "20000", "--host", "local", "--runs", "3", "--parallelism", "1")
    found = lines_of("nexmark", "q1,q10", *common, "--checkpoint-interval", "10")
    assert [line["name"] for line in found] == ["q1", "q10"]
    for line in found:
        assert len(line["runs"]) == 3
        assert line["events_per_s"] == sorted(line["runs"])[1]
        assert line["checkpoint_interval_s"] == 10
        assert line["rows_out"] == 18_400
    with pytest.raises(SystemExit, match=r"no workload \['q99'\]"):
        lines_of("nexmark", "q1,q99")


def test_the_line_is_that_of_the_median_run() -> None:
    run = Run(2.0, 500, 3.0, 1.5, 100, 7, 1, None, 0.5)
    slow = replace(run, seconds=4.0, events_per_s=250, peak_rss_mb=300)
    fast = replace(run, seconds=1.0, events_per_s=1000)
    line = summary(Setting("q3", 1000), [fast, slow, run], Sources("string", False, "bid"))
    assert (line["seconds"], line["events_per_s"], line["peak_rss_mb"]) == (2.0, 500, 300)
    assert line["runs"] == [1000, 250, 500]
    assert line["cpu_s_per_m_events"] == 3000.0
    assert line["unbounded_state"] is True


def test_scale() -> None:
    arguments = ("--queries", "q2", "--tasks", "1,3", "--events", "20000", "--host", "local")
    one, three = lines_of("scale", *arguments)
    assert (one["tasks"], one["speedup"], one["parallelism"]) == (1, 1.0, 1)
    assert (three["tasks"], three["parallelism"]) == (3, 3)
    assert three["speedup"] == round(three["events_per_s"] / one["events_per_s"], 2)


@pytest.fixture
def peers(tmp_path: Path) -> tuple[str, ...]:
    """Options for a folder of scripts and one of environments with bytewax in it."""
    python = tmp_path / "work" / "bytewax" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    (tmp_path / "bench.py").write_text(FAKE_PEER)
    return "--peers", str(tmp_path), "--work", str(tmp_path / "work")


def test_compare_runs_a_peer_in_turns(peers: tuple[str, ...], tmp_path: Path) -> None:
    small = ("--events", "20000", "--host", "local", "--peer-events", "11")
    q1, q2 = lines_of("compare", "bytewax", "--queries", "q1,q2", *small, *peers)
    assert q1["peer_runs"] == [500, 250, 1000]
    assert q1["peer_events_per_s"] == 500
    assert q1["ratio"] == round(q1["strom_events_per_s"] / 500, 2)
    assert len(q1["strom_runs"]) == 3
    assert (q1["strom_events"], q1["peer_events"]) == (20_000, 11)
    assert q1["peer_peak_rss_mb"] == 1000
    assert q2["error"] == "no such luck"
    calls = (tmp_path / "bench.py.calls").read_text().split()
    assert calls == ["q1"] * 3 + ["q2"] * 3


def test_a_peer_that_is_not_there(peers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"spark is not installed: there is no .*spark/bin/python"):
        lines_of("compare", "spark", *peers)
    with pytest.raises(SystemExit, match=r"bytewax has no query \['q8'\]: q0, q1"):
        lines_of("compare", "bytewax", "--queries", "q8", *peers)
    for name in ("STROM_PEERS", "PEERS_WORK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit, match=r"--peers DIR or \$STROM_PEERS"):
        lines_of("compare", "bytewax")
    monkeypatch.setenv("STROM_PEERS", peers[1])
    monkeypatch.setenv("PEERS_WORK", peers[3])
    assert compare.find("bytewax").script == Path(peers[1]) / "bench.py"


def test_a_peer_that_breaks(peers: tuple[str, ...]) -> None:
    Path(peers[1], "bench.py").write_text("raise SystemExit('broken')")
    options = ("--queries", "q1", "--runs", "1", "--events", "20000", "--host", "local")
    (line,) = lines_of("compare", "bytewax", *options, *peers)
    assert line["error"].startswith("bench.py ended with 1: broken")


def test_every_peers_query_is_a_workload() -> None:
    kinds = compare.PEERS.values()
    ours = {name for kind in kinds for name in (*kind.queries.values(), *kind.variants.values())}
    assert ours <= set(workloads.WORKLOADS)
    assert not any(kind.queries.keys() & kind.variants.keys() for kind in kinds)
    assert set(report.BESIDE) <= set(compare.PEERS)
    measured = {(system, query) for system, query in report.peers()}
    assert {("flink-java", "q5"), ("bytewax", "wordcount")} <= measured


def line(name: str, rate: int, interval: float | None = None, **more: Any) -> dict[str, Any]:
    base = {"name": name, "events_per_s": rate, "cpu_s_per_m_events": 0.5, "peak_rss_mb": 400}
    own = {"strings": "string", "pruned": False, "checkpoints": 3, "checkpoint_ms": 20}
    return {**base, **own, "checkpoint_interval_s": interval, **more}


LATENCY = {"name": "latency", "buffer_timeout_ms": 10, "p50_ms": 2.0, "p99_ms": 4.0}
LATENCY |= {"p999_ms": 9.0, "max_ms": 11.0}
OVERLOAD = {"name": "overload", "offered": 9, "capacity": 6, "rate": 2, "before_p99_ms": 3.0}
OVERLOAD |= {"worst_ms": 900.0, "recovery_s": 1.5, "in_flight_mb": 3.0}
OVERLOAD |= {"in_flight_bound_mb": 30.0, "peak_rss_mb": 500}
COMPARE = {"name": "compare", "peer": "bytewax", "query": "q1", "ratio": 5.0}
COMPARE |= {"strom_events_per_s": 5000, "peer_events_per_s": 1000}


def test_report(tmp_path: Path) -> None:
    lines = [
        line("q5", 4_000_000),
        line("q5", 3_000_000, kinds="bid"),
        line("q5", 2_400_000, 1.0),
        line("q5", 1_100_000, kinds="all"),
        line("kstate", 9_000_000),
        *(line("q5", 10 * n, command="scale", tasks=n, speedup=float(n)) for n in (1, 2, 4)),
        *({**LATENCY, "rate": rate} for rate in (1000, 50_000)),
        OVERLOAD,
        COMPARE,
        {"name": "recovery", "kills": 3},
    ]
    source = tmp_path / "lines.jsonl"
    source.write_text("a log line\n" + "\n".join(map(json.dumps, lines)))
    (printed,) = lines_of("report", "--out", str(tmp_path / "out"), str(source))
    written = {os.path.basename(file) for file in printed["files"]}
    assert written == {path.name for path in (tmp_path / "out").iterdir()}
    assert {"report.md", "events.png", "cpu.png", "memory.png", "checkpoints.png"} < written
    assert {"latency.png", "scale.png"} < written
    text = (tmp_path / "out" / "report.md").read_text()
    assert (
        "| q5 | 1,100,000 | 1,313,808 |  |  |  |  | 3,000,000 | 0.5 | 400 | string | False |"
        in text
    )
    assert "| kstate | 9,000,000 | 2,686,412 |" in text
    assert "| q5 | 3,000,000 | 2,400,000 | 0.8 | 1.0 | 3 | 20 |" in text
    assert "| q5 | 10 | 20 | 40 | 4.0 |" in text
    assert "| 50,000 | 10 | 2.0 | 4.0 | 9.0 | 11.0 |" in text
    assert "| bytewax q1 | 5,000 | 1,000 | 5.0 |" in text
    assert all(f"({name})" in text for name in written if name.endswith(".png"))


def test_a_report_of_little_has_what_there_is(tmp_path: Path) -> None:
    source = tmp_path / "lines.jsonl"
    source.write_text(json.dumps({**LATENCY, "rate": 5}))
    report.write(str(tmp_path), [str(source)])
    text = (tmp_path / "report.md").read_text()
    assert [row for row in text.splitlines() if row.startswith("## ")] == [
        "## Latency against load"
    ]


def test_the_quick_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report without files measures first."""
    monkeypatch.setattr(quick, "EVENTS", 5_000)
    monkeypatch.setattr(quick, "NEXMARK", {"q1": None})
    monkeypatch.setattr(quick, "CHECKPOINTED", ("kstate",))
    monkeypatch.setattr(quick, "RATES", (1_000,))
    monkeypatch.setattr(quick, "SECONDS", 0.2)
    lines_of("report", "--out", str(tmp_path), "--host", "local")
    text = (tmp_path / "report.md").read_text()
    found = [row for row in text.splitlines() if row.startswith("## ")]
    assert len(found) == 4


def test_processes_with_several_tasks_count_once() -> None:
    task = {"pid": 1, "peak_rss_bytes": 5, "cpu_s": 3.0, "opened_cpu_s": 1.0}
    later = {**task, "cpu_s": 4.0, "opened_cpu_s": 1.5}
    found = processes_of({"tasks": [task, later, {**task, "pid": 2}]})
    assert [(p["cpu_s"], p["opened_cpu_s"], p["peak_rss_bytes"]) for p in found] == [
        (4.0, 1.5, 5),
        (3.0, 1.0, 5),
    ]
