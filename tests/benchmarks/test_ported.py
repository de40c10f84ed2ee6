"""`pyflink`: the programs give what they should, and the command measures both engines alike."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
import strom
from strom.benchmarks import cli, ported, ported_programs, ported_runner

EVENTS = 2_400

FAKE = """#!{python}
import json, os, sys
from pathlib import Path
if sys.argv[1] == "-c":
    print("a folder of packages")
else:
    runner, module, program, parallelism, seconds, *options = sys.argv[1:]
    text = Path("ported_programs.py").read_text() + Path(runner).read_text()
    assert "strom" not in text and "from pyflink.datastream" in text
    assert module == "pyflink" and os.environ["PYTHONPATH"].endswith("a folder of packages")
    how = os.environ.get("_python_worker_execution_mode", "") + "".join(options)
    print("starting")
    print(json.dumps({{"events_per_s": 100 + len(how), "jobs": [how], "events": 1, "seconds": 1}}))
"""


def collected(program: str) -> list[Any]:
    env = strom.StreamExecutionEnvironment.get_execution_environment()
    stream = ported_programs.PROGRAMS[program](env.set_parallelism(2), EVENTS)
    with stream.execute_and_collect() as results:
        return list(results)


def test_word_count() -> None:
    words = Counter(f"word-{ported_programs.spread(n):05d}" for n in range(EVENTS))
    want = [(word, n + 1) for word, count in words.items() for n in range(count)]
    assert sorted(collected("word_count")) == sorted(want)


def test_keyed_process() -> None:
    totals: dict[int, int] = defaultdict(int)
    for n in range(EVENTS):
        totals[ported_programs.spread(n)] += n % 100
    found = collected("keyed_process")
    assert len(found) == EVENTS
    last: dict[int, int] = {}
    for key, total in found:
        last[key] = max(total, last.get(key, 0))
    assert last == totals


def test_window_aggregate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ported_programs, "WINDOW_S", 0.05)
    totals: dict[tuple[int, int], int] = defaultdict(int)
    for n in range(EVENTS):
        window = n // ported_programs.EVENTS_PER_MS // 50
        totals[ported_programs.spread(n), window * 50 + 50] += n % 100
    want = [(key, end, total) for (key, end), total in totals.items()]
    assert sorted(collected("window_aggregate")) == sorted(want)


def test_only_names_of_pyflink() -> None:
    text = Path(ported_programs.__file__).read_text()
    imported = re.findall(r"^from (strom\S*) import", text, re.M)
    assert all(one.startswith(("strom.common", "strom.datastream")) for one in imported)
    assert "strom" not in ported.ported(text)


def test_jobs_grow_until_one_takes_long_enough() -> None:
    """At 100 events/s and 3 s of start, the start is in neither number."""
    events, seconds, jobs = ported_runner.grown(lambda events: 3 + events / 100, 20, first=10)
    assert events / seconds == pytest.approx(100)
    assert seconds >= 20
    assert [n for n, _ in jobs[:4]] == [10, 10, 100, 1000]
    assert jobs[-1][0] <= 4000
    starts = iter([30, 9, 5, 6, 5, 5, 5])
    events, seconds, _ = ported_runner.grown(lambda n: next(starts) + n / 100, 1, first=10)
    assert events / seconds == pytest.approx(100)
    assert seconds >= 2 * 5


def test_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = tmp_path / "python"
    fake.write_text(FAKE.format(python=sys.executable))
    fake.chmod(0o755)
    monkeypatch.setenv("STROM_PYFLINK", str(fake))
    asked = "pyflink --programs keyed_process --modes process,thread --seconds 0.01 --host local"
    monkeypatch.setattr("sys.argv", ["benchmarks", *asked.split(), "--json"])
    cli.main()
    (line,) = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert (line["name"], line["program"]) == ("pyflink", "keyed_process")
    assert line["pyflink_jobs"] == {
        "process": ["process"],
        "thread": ["python.execution-mode=thread"],
    }
    fastest = line["pyflink_events_per_s"]["thread"]
    assert fastest == 100 + len("python.execution-mode=thread")
    assert line["ratio"] == round(line["strom_events_per_s"] / fastest, 1)


@pytest.mark.parametrize(
    ("setting", "message"),
    [(None, "set STROM_PYFLINK to the python"), ("/no/such/python", "which is not there")],
)
def test_no_pyflink(monkeypatch: pytest.MonkeyPatch, setting: str | None, message: str) -> None:
    if setting is None:
        monkeypatch.delenv("STROM_PYFLINK", raising=False)
    else:
        monkeypatch.setenv("STROM_PYFLINK", setting)
    monkeypatch.setattr("sys.argv", ["benchmarks", "pyflink", "--json"])
    with pytest.raises(SystemExit, match=message):
        cli.main()


def test_unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "pyflink", "--modes", "thread,warp"])
    with pytest.raises(SystemExit, match=r"no mode \['warp'\]"):
        cli.main()
