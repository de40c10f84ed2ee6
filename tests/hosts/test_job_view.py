"""A job as plain data, of the local host: what it says while it runs and when it is over."""

from __future__ import annotations

import json
import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from chaos_kit import config, environment, until, windows_of
from leashed_source import Leashed
from strom import DiscardSink, FixedDelayRestart, JobFailedError, MapFunction
from strom.api.functions.accumulators import Histogram, IntCounter
from strom.core.traces_config import TracesConfig
from strom.engine.exchange.pickling import Parcel
from strom.engine.hosts.shown_accumulators import shown_accumulators
from strom.engine.hosts.shown_config import shown_config


class Raising(MapFunction):
    def map(self, value: Any) -> Any:
        raise ValueError("no way: token=hush caf\udce9")


def job_of(
    folder: Path, function: MapFunction | None = None, name: str = "viewed", **settings: Any
) -> Any:
    env = environment(config(folder / "state", interval_ms=20, batch_size=20, **settings))
    windows_of(env, Leashed(folder / "release", 400), function).sink_to(DiscardSink())
    return env._submit(env.get_job_graph(name))


def test_a_job_that_runs_and_ends(tmp_path: Path) -> None:
    client = job_of(tmp_path, retained=1)
    until(lambda: client.view()["checkpoints"]["completed"] > 1, "checkpoints")
    view = client.view()
    assert json.loads(json.dumps(view, allow_nan=False)) == view
    assert (view["id"], view["status"]) == (str(client.get_job_id()), "RUNNING")
    assert {task["status"] for task in view["tasks"]} == {"RUNNING"}
    assert len(view["tasks"]) == sum(vertex["parallelism"] for vertex in view["vertices"])
    sums = view["vertices"][-1]
    assert sums["operators"][0]["name"] == "sums"
    assert sums["inputs"][0]["source"] == view["vertices"][0]["id"]
    done = view["checkpoints"]["latest_completed"]
    assert done is not None
    assert str(done["path"]).endswith(f"/chk-{done['id']}")
    until(lambda: all("numRecordsIn" in t["metrics"] for t in client.view()["tasks"]), "reports")
    (tmp_path / "release").touch()
    client.get_job_execution_result()
    view = client.view()
    assert (view["status"], view["error"]) == ("FINISHED", None)
    assert list(view["since"]) == ["CREATED", "RUNNING", "FINISHED"]
    assert {task["status"] for task in view["tasks"]} == {"FINISHED"}
    newest = view["checkpoints"]["history"][0]
    assert (newest["status"], newest["terminal"]) == ("COMPLETED", True)
    assert len(newest["parts"] or ()) == len(view["tasks"])
    assert newest["alignment_ms"] == max(part["alignment_ms"] for part in newest["parts"] or ())
    # One is retained: of the others no folder is named.
    kept = [one for one in view["checkpoints"]["history"] if one["path"] is not None]
    assert [Path(str(one["path"])).is_dir() for one in kept] == [True]
    assert kept == [newest]
    assert not newest["discarded"]
    done = [one for one in view["checkpoints"]["history"][1:] if one["status"] == "COMPLETED"]
    assert {one["discarded"] for one in done} == {True}


def test_a_job_that_fails(tmp_path: Path) -> None:
    client = job_of(
        tmp_path,
        Raising(),
        "caf\udce9",
        restart=FixedDelayRestart(1, timedelta(0)),
        job_parameters={"caf\udce9": "caf\udce9"},
    )
    with pytest.raises(JobFailedError):
        client.get_job_execution_result()
    view = client.view()
    assert (view["status"], view["restarts"]) == ("FAILED", 1)
    assert [one["attempt"] for one in view["failures"]] == [1, 0]
    newest = view["failures"][0]
    assert "ValueError: no way: token=***" in newest["cause"]
    assert "test_job_view.py" in newest["cause"]
    assert "behind the source" in str(newest["task"])
    assert "token=***" in str(view["error"])
    assert "hush" not in json.dumps(view)
    assert json.dumps(view, ensure_ascii=False).encode().count(b"caf\\\\udce9") >= 5


def test_configuration_without_secrets(tmp_path: Path) -> None:
    settings = config(
        "s3://bucket/x",
        interval_ms=1500,
        job_parameters={"topic": "bids", "db.password": "hush", "url": "http://me:hush@db/x"},
        traces=TracesConfig("http://c/v1", {"authorization": "Bearer hush", "x-team": "hush"}),
    )
    options, parameters = shown_config(settings)
    assert options["checkpoint.interval"] == "1500 ms"
    assert options["checkpoint.storage"] == "s3://bucket/x"
    assert options["traces.otlp_headers.authorization"] == "***"
    assert options["traces.otlp_headers.x-team"] == "***"
    assert "hush" not in str(options)
    assert options["restart"] == "ExponentialDelayRestart"
    assert options["restart.maximum"] == "20 ms"
    assert parameters == {"topic": "bids", "db.password": "***", "url": "http://***@db/x"}
    assert "job_parameters" not in options


def test_accumulators_are_shown_without_running_anything_of_the_users() -> None:
    def sealed(value: Any) -> Parcel:
        return Parcel(pickle.dumps(value))

    histogram = Histogram()
    histogram.add("a")
    evil = Parcel(b"cos\nsystem\n(S'exit 3'\ntR.")
    parts = [
        ("v", "lines", sealed(IntCounter(3))),
        ("v", "lines", sealed(IntCounter(4))),
        ("w", "lines", sealed(IntCounter(5))),
        ("w", "words", sealed(histogram)),
        ("w", "evil", evil),
        ("w", "large", Parcel(b"x" * 1_000_000)),
        ("v", "mixed", sealed(IntCounter(3))),
        ("v", "mixed", sealed(histogram)),
    ]
    found = {(a["vertex"], a["name"]): (a["type"], a["value"]) for a in shown_accumulators(parts)}
    assert found["v", "lines"] == ("IntCounter", "7")
    assert found[None, "lines"] == ("IntCounter", "12")
    assert found["w", "words"] == ("Histogram", "{'a': 1}")
    assert found["w", "evil"] == ("system", "(only the job's program can read it)")
    assert "more than" in found["w", "large"][1]
    assert "several classes" in found["v", "mixed"][1]
