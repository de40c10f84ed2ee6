"""`strom state`: what it prints, for people and for scripts, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import strom
from strom.cli.main import app
from typer.testing import CliRunner


def asked(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["state", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def document(*words: str) -> tuple[int, Any]:
    code, text = asked(*words, "--json")
    return code, json.loads(text)


@pytest.fixture
def path(tmp_path: Path) -> str:
    data = pa.table({"k": ["a", "b", "[red]c\x1b[31m"], "v": [1, 2, 3]})
    written = strom.state.write(job_name="Job [bold]")
    return written.value("totals", "total", data, key="k", value="v").save(str(tmp_path / "one"))


@pytest.fixture
def other(path: str, tmp_path: Path) -> str:
    return strom.state.open(path).edit().set("totals", "total", "a", 7).save(str(tmp_path / "two"))


def test_ls(path: str) -> None:
    code, found = document("ls", path)
    assert code == 0
    assert found["job"] == {"id": "written", "name": "Job [bold]"}
    assert found["savepoint"]
    (operator,) = found["operators"]
    assert (operator["uid"], operator["max_parallelism"]) == ("totals", 128)
    (state,) = operator["states"]
    assert (state["name"], state["kind"], state["rows"], state["key_groups"]) == (
        "total",
        "value",
        3,
        3,
    )
    code, text = asked("ls", path)
    assert code == 0
    assert "savepoint of job 'Job [bold]' (written)" in text
    assert all(word in text for word in ("totals", "total", "value", "1 of 128"))


def test_show(path: str) -> None:
    code, found = document("show", path, "totals", "total")
    assert (code, found["rows"], found["columns"]) == (0, 3, ["key", "namespace", "value"])
    assert {row["key"]: row["value"] for row in found["data"]} == {
        "a": 1,
        "b": 2,
        "[red]c\x1b[31m": 3,
    }
    code, text = asked("show", path, "totals", "total")
    assert "[red]c\\x1b[31m" in text  # what a file holds does not steer the terminal
    assert "\x1b[31m" not in text
    code, text = asked("show", path, "totals", "total", "--limit", "1")
    assert "1 of 3 rows" in text
    assert document("show", path, "totals", "total", "--raw")[1]["columns"][0] == "__key_group"


def test_sql(path: str) -> None:
    code, found = document("sql", path, "SELECT sum(value) AS s FROM state.total")
    assert (code, found["data"]) == (0, [{"s": 6}])
    assert asked("sql", path, "SELECT value FROM state.total WHERE key = 'b'")[0] == 0
    code, found = document("sql", path, "SELECT nonsense FROM state.total")
    assert code == 2
    assert "nonsense" in found["error"]


def test_diff(path: str, other: str) -> None:
    assert asked("diff", path, path) == (0, "no difference\n")
    code, text = asked("diff", path, other)
    assert code == 1
    assert "totals.total: 0 added, 0 removed, 1 changed" in text
    code, found = document("diff", path, other)
    assert (code, found["different"]) == (1, True)
    assert found["states"][0]["after"] == [{"key": "a", "namespace": None, "value": 7}]


def test_verify(path: str) -> None:
    code, text = asked("verify", path)
    assert code == 0
    assert text.startswith("1 files, ")
    assert "3 rows: fine" in text
    (file,) = Path(path).glob("*.arrow")
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(content)
    code, found = document("verify", path)
    assert (code, found["ok"]) == (1, False)
    assert file.name in found["problems"][0]
    assert asked("show", path, "totals", "total")[0] == 1


@pytest.mark.parametrize(
    "words",
    [("ls", "nowhere"), ("ls",), ("show", "PATH", "none", "total"), ("diff", "PATH", "nowhere")],
)
def test_wrong_use_is_exit_code_2(path: str, words: tuple[str, ...]) -> None:
    assert asked(*[path if word == "PATH" else word for word in words])[0] == 2


def test_the_entry_point_runs_in_a_process_of_its_own(path: str) -> None:
    words = [sys.executable, "-m", "strom.cli", "state", "verify", path, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["ok"]) == (0, True), done.stderr
