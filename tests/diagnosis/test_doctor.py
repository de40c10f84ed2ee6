"""`strom doctor`: which checks, what it prints, how it exits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from strom.cli.main import app
from strom.diagnosis import checkup, machine
from strom.diagnosis.checkup import LOCAL_FOLDERS, Request, Surroundings
from strom.diagnosis.findings import OK, PROBLEM, SKIPPED, WARNING, Finding
from strom.diagnosis.machine import GB, Room
from strom.diagnosis.probing import ProbeError
from strom.diagnosis.versions import wanted_by
from typer.testing import CliRunner

ANSWERS = {
    "kernels": {"library": "/x/k.so", "right": True, "said": []},
    "load": {},
    "rocks": {"same": True},
    "storage": {"steps": {"open": 0.001, "write": 0.002}, "step": None, "error": None},
}

BASE = ("python", "strom", "kernels", "packages", "ray", "pyarrow", "rocksdict", "spark", "java")


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What probes answer; an environment in which all else is well, and no cluster is named."""
    told: dict[str, Any] = dict(ANSWERS)

    def ask(probe: str, question: Any = None, limit_s: float = 0) -> Any:
        if isinstance(told[probe], Exception):
            raise told[probe]
        return told[probe]

    versions = {"strom": "0.1.0", "ray": "2.60", "pyarrow": "26", "rocksdict": "0.3.29"}
    needed = wanted_by("", ["ray>=2.50"], [])
    around = Surroundings({"TMPDIR": str(tmp_path)}, needed, versions.get, ask)
    monkeypatch.setattr(Surroundings, "here", staticmethod(lambda: around))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    room = Room(99 * GB, 98 * GB)
    monkeypatch.setattr(machine, "shared_memory_of", lambda path: room)
    monkeypatch.setattr(machine, "room_in", lambda path: room)
    monkeypatch.setattr(machine, "filesystem_of", lambda path: "ext4")
    monkeypatch.setattr(machine, "SLOW_SYNC_S", 1e9)
    monkeypatch.setattr(machine, "open_files_limit", lambda: (65536, 65536))
    monkeypatch.setattr(machine, "taken_ports", lambda ports: [])
    return told


def asked(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["doctor", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def statuses(output: str) -> dict[str, str]:
    return {one["name"]: one["status"] for one in json.loads(output)["checks"]}


def test_where_all_is_well(answers: dict[str, Any], tmp_path: Path) -> None:
    code, said = asked("--json", "--local-dir", str(tmp_path))
    found = statuses(said)
    assert (code, json.loads(said)["status"]) == (0, OK), said
    assert list(found)[: len(BASE)] == list(BASE)
    assert found["cluster"] == found["spark"] == found["java"] == SKIPPED
    assert found[f"local folder {tmp_path}"] == OK
    code, said = asked("--local-dir", str(tmp_path))
    assert code == 0
    assert said.rstrip().endswith("all is well")


def test_a_warning_is_no_failure(answers: dict[str, Any]) -> None:
    answers["kernels"] = {"library": None, "right": True, "said": []}
    code, said = asked("--json")
    assert (code, json.loads(said)["status"]) == (0, WARNING)
    code, said = asked()
    assert code == 0
    assert said.rstrip().endswith("1 warning")
    assert "python -m strom.core.native.build" in said


def test_a_problem_is_exit_code_1(answers: dict[str, Any]) -> None:
    answers["rocks"] = ProbeError("its process was ended by SIGILL")
    code, said = asked("--json")
    assert code == 1
    assert statuses(said)["rocksdict"] == PROBLEM
    code, said = asked()
    assert code == 1
    assert "1 problem" in said
    assert "SIGILL" in said


def test_a_check_that_crashes_does_not_end_the_others(
    answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash() -> Finding:
        raise RuntimeError("[bold] is no markup")

    monkeypatch.setattr(machine, "loopback", crash)
    code, said = asked()
    assert code == 1
    assert "RuntimeError: [bold] is no markup" in said
    assert "cluster" in said


def test_storages_are_named_without_their_secrets(answers: dict[str, Any]) -> None:
    words = ("--storage", "s3://me:hush@bucket/jobs", "--storage", "s3://other/jobs")
    for more in ((), ("--json",)):
        code, said = asked(*words, *more)
        assert code == 1
        assert "hush" not in said
        assert "storage s3://***@bucket/jobs" in said
    assert statuses(said)["storage s3://other/jobs"] == OK


def test_a_cluster_that_is_named(answers: dict[str, Any]) -> None:
    gone = {"address": "a", "error": "gone"}
    answers["cluster"] = {"refused": None, "nodes": [gone, gone]}
    code, said = asked("--json", "--address", "10.0.0.1:6379")
    found = statuses(said)
    assert (code, found["cluster"], found["cluster's nodes"]) == (1, OK, PROBLEM)
    assert found["tasks' address"] == OK
    assert found["ray's ports"] == found["cluster's clocks"] == SKIPPED


def test_wrong_use_is_exit_code_2() -> None:
    assert asked("--nonsense")[0] == 2


def test_folders_are_those_of_the_configuration(tmp_path: Path) -> None:
    options = {"state": {"backend": {"rocksdb": {"localdir": "/mnt/a,/mnt/b"}}}}
    (tmp_path / "config.yaml").write_text(json.dumps(options))
    environment = {"STROM_CONF_DIR": str(tmp_path)}
    found = dict(checkup.local_folders(Request(), environment))
    assert found[Path("/mnt/a")] == found[Path("/mnt/b")] == LOCAL_FOLDERS[0]
    assert len(found) == 3, "and the temporary one, for copies of checkpoints"
    given = checkup.local_folders(Request(local_dirs=("/x", "/x")), environment)
    assert given == [(Path("/x"), LOCAL_FOLDERS[0])]


@pytest.mark.parametrize(
    ("environment", "status", "said"),
    [
        ({}, OK, "0 options"),
        ({"STROM_CONF__STATE__BACKEND__TYPE": "rocksdb"}, OK, "1 options"),
        ({"STROM_CONF__STATE__BACKEND__TYPE": "rokcs"}, PROBLEM, "'rocksdb'"),
        ({"STROM_CONF_DIR": "/there/is/none"}, PROBLEM, "/there/is/none"),
        ({"STROM_CONFX": "1"}, PROBLEM, "STROM_CONFX"),
    ],
)
def test_the_configuration(environment: dict[str, str], status: str, said: str) -> None:
    found = checkup.configuration(environment)
    assert (found.status, said in found.found) == (status, True), found
    assert checkup.local_folders(Request(), environment)
