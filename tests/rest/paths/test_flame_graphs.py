"""Flame graphs: the tree that samples make, and what cannot be looked into."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

import pytest
from rest_kit import SOURCE, PlayedJobs, client_of
from strom.rest.paths import flame_graphs as module
from strom.rest.paths.flame_graphs import stacks_in, tree_of

PATH = f"/v1/jobs/0123456789abcdef/vertices/{SOURCE}/flamegraph"


def test_samples_make_a_tree() -> None:
    text = "main (a.py:1);work (a.py:9) 3\nmain (a.py:1);rest (a.py:7) 2\n\nodd\nmain (a.py:1) 1\n"
    assert tree_of(stacks_in(text)) == {
        "name": "root",
        "value": 6,
        "children": [
            {
                "name": "main (a.py:1)",
                "value": 6,
                "children": [
                    {"name": "work (a.py:9)", "value": 3, "children": []},
                    {"name": "rest (a.py:7)", "value": 2, "children": []},
                ],
            }
        ],
    }


def test_who_asks_again_is_shown_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def sampled(pids: Sequence[int], kind: str) -> Any:
        asked.append((list(pids), kind))
        return [(("f",), 1)]

    monkeypatch.setattr(module, "_sampled", sampled)
    catalog = PlayedJobs()
    for task in catalog.views["0123456789abcdef"]["tasks"]:
        task["host"] = socket.gethostname()
    with client_of(catalog) as client:
        first = client.get(PATH).json()
        assert client.get(PATH).json() == first
        assert first["data"]["children"][0]["name"] == "f"
        assert client.get(f"{PATH}?type=ON_CPU").status_code == 200
        assert client.get(f"{PATH}?type=OFF_CPU").status_code == 400
        assert client.get(f"{PATH}?subtaskindex=7").status_code == 409
    assert asked == [([100], "FULL"), ([100], "ON_CPU")]


def test_what_runs_elsewhere() -> None:
    with client_of(PlayedJobs()) as client:
        answer = client.get(PATH)
    assert answer.status_code == 409
    assert "it runs on node1" in answer.json()["errors"][0]


def test_processes_of_several_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of another machine are looked into there, at the same time as those here."""
    done: list[Any] = []

    def begun_on(host: str, pids: list[int], kind: str) -> Any:
        done.append((host, pids, kind))
        return lambda: done.append("answered") or [(("far",), 2)]

    def sampled(pids: Sequence[int], kind: str) -> Any:
        done.append((list(pids), kind))
        return [(("near",), 1)]

    monkeypatch.setattr(module, "_begun_on", begun_on)
    monkeypatch.setattr(module, "_sampled", sampled)
    here = socket.gethostname()
    found = module._sampled_everywhere([(here, 7), ("node1", 5), ("node1", 6)], "FULL")
    assert found == [(("near",), 1), (("far",), 2)]
    assert done == [("node1", [5, 6], "FULL"), ([7], "FULL"), "answered"]


def test_the_busiest_of_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = PlayedJobs()
    (task, *_) = catalog.views["0123456789abcdef"]["tasks"]
    many: Any = [
        {**task, "pid": pid, "metrics": {"busyTimeMsPerSecond": float(pid % 10)}}
        for pid in range(100, 130)
    ]
    found = [pid for _, pid in module._processes(many)]
    assert found == [107, 108, 109, 117, 118, 119, 128, 129]


def test_what_the_system_does_not_permit() -> None:
    said = "Permission Denied: Try running again with elevated permissions by going 'sudo env'"
    assert "SYS_PTRACE" in module._why(said)
    assert module._why("Error: Failed to find python version") == "Failed to find python version"


def test_without_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.shutil, "which", lambda name: "/nowhere/py-spy")
    with pytest.raises(module.Refused, match="pip install py-spy"):
        module._sampled([os.getpid()], "FULL")
