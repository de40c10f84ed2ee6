"""What is said of a Ray cluster, whatever it answers; and one that is there."""

from __future__ import annotations

import platform
from typing import Any

import pytest
from shared_ray import stop_ray
from strom.diagnosis import cluster
from strom.diagnosis.findings import OK, PROBLEM, SKIPPED, WARNING
from strom.diagnosis.probing import ProbeError, ask
from strom.diagnosis.versions import installed

OURS = {"python": "3.11.9", "ray": "2.60.0", "strom": "0.1.0"}


def node(
    address: str, ahead_s: float = 0.0, unsure_s: float = 0.001, **other: Any
) -> dict[str, Any]:
    return {"address": address, **OURS, "ahead_s": ahead_s, "unsure_s": unsure_s, **other}


def told(*nodes: dict[str, Any], refused: str | None = None) -> Any:
    return lambda: {"refused": refused, "nodes": list(nodes)}


def silent() -> Any:
    raise ProbeError("no answer within 45 s")


def test_without_a_cluster_there_is_nothing_to_reach() -> None:
    assert cluster.reached(None, silent).status == SKIPPED


def test_a_cluster_is_reached_or_it_is_said_why_not() -> None:
    assert cluster.reached("c (given)", told(node("a"), node("b"))).found == "c (given): 2 nodes"
    for answer in (silent, told(refused="ResourceError: no Ray cluster is at c")):
        found = cluster.reached("c (given)", answer)
        assert found.status == PROBLEM
        assert found.found.startswith("c (given): ")
        assert "RAY_AUTH_TOKEN" in found.advice
        assert cluster.nodes(OURS, answer).status == SKIPPED
        assert cluster.clocks(answer).status == SKIPPED


def test_other_versions_than_the_clusters_are_told_as_that() -> None:
    refused = "RuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.50.0"
    found = cluster.reached("c", told(refused=refused))
    assert "started with: Ray: 2.50.0" in found.found
    assert "the Python and the Ray" in found.advice


def test_all_nodes_have_what_we_have() -> None:
    assert cluster.nodes(OURS, told(node("a"), node("b"))).status == OK
    other = cluster.nodes(OURS, told(node("a"), node("b", python="3.11.8", strom="0.0.9")))
    assert other.status == PROBLEM
    assert other.found == "b has python 3.11.8, here is 3.11.9; b has strom 0.0.9, here is 0.1.0"
    lacking = cluster.nodes(OURS, told(node("a", strom=None)))
    assert (lacking.status, lacking.found) == (WARNING, "strom is not installed on a")
    failed = cluster.nodes(OURS, told(node("a"), {"address": "b", "error": "GetTimeoutError: b"}))
    assert (failed.status, failed.found) == (PROBLEM, "b: GetTimeoutError: b")


def test_tasks_of_several_machines_reach_each_other() -> None:
    two = told(node("a"), node("b"))
    found = cluster.listening("127.0.0.1", two)
    assert (found.status, "strom.exchange.bind-host" in found.advice) == (WARNING, True)
    assert cluster.listening("0.0.0.0", two).status == OK
    assert cluster.listening("", two).status == OK
    assert cluster.listening("127.0.0.1", told(node("a"))).status == OK
    assert cluster.listening("127.0.0.1", silent).status == SKIPPED


@pytest.mark.parametrize(
    ("ahead_s", "unsure_s", "status", "said"),
    [
        (0.004, 0.001, OK, "within 5 ms"),
        (0.5, 0.45, OK, "within 950 ms"),  # it may be nothing but the way there
        (0.5, 0.1, WARNING, "400 ms ahead of"),
        (-2.0, 0.1, WARNING, "1.9 s behind"),
        (-3600.0, 0.1, PROBLEM, "3599.9 s behind"),
    ],
)
def test_clocks(ahead_s: float, unsure_s: float, status: str, said: str) -> None:
    found = cluster.clocks(told(node("a"), node("b", ahead_s, unsure_s)))
    assert (found.status, said in found.found) == (status, True)
    assert ("that of b" in found.found) == (status != OK)


def test_clocks_of_nobody() -> None:
    assert cluster.clocks(told({"address": "b", "error": "gone"})).status == SKIPPED


def test_the_cluster_is_asked_once() -> None:
    calls: list[str] = []

    def counted(probe: str, question: Any = None, limit_s: float = 0) -> Any:
        calls.append(probe)
        if len(calls) == 1:
            raise ProbeError("silence")
        return told()()

    answer = cluster.joined(None, counted)
    for _ in range(2):
        with pytest.raises(ProbeError, match="silence"):
            answer()
    assert calls == ["cluster"]


@pytest.mark.ray
def test_a_cluster_that_is_there() -> None:
    import ray
    from strom import connect_to_ray

    stop_ray()  # of modules before
    connect_to_ray(num_cpus=1)
    try:
        address = ray.get_runtime_context().gcs_address
        answer = ask("cluster", {"address": address, "node_s": 120}, 240)
    finally:
        ray.shutdown()
    assert answer["refused"] is None
    ours = {"python": platform.python_version(), **{n: installed(n) for n in ("ray", "strom")}}
    assert cluster.nodes(ours, lambda: answer).status == OK
    (one,) = answer["nodes"]
    assert abs(one["ahead_s"]) <= one["unsure_s"] + 0.001, "it is the same clock"


def test_nobody_at_an_address() -> None:
    """Whoever listens there may answer nothing: that is told by the probe's time."""
    answer = ask("cluster", {"address": "127.0.0.1:1", "node_s": 1}, 120)
    assert "no Ray cluster is at 127.0.0.1:1" in answer["refused"]
