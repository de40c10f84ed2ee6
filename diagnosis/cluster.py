"""Checks of a Ray cluster: can it be joined, what runs on its nodes, what do their clocks say?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from .findings import OK, PROBLEM, SKIPPED, WARNING, Finding
from .probing import Ask, ProbeError

JOIN_S: Final = 45.0
"""To join the cluster and hear of all nodes."""

NODES_S: Final = 25.0
"""Of that, for nodes to answer."""

CLOCKS_APART_S: Final = 0.1
"""Times by the clock of two machines are compared by users (processing time, Kafka's timestamps),
and in latencies."""

CLOCKS_FAR_APART_S: Final = 60.0
"""Storages and certificates refuse who is minutes off."""

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")

BIND_HOST: Final = "strom.exchange.bind-host"
"""The option that says where tasks listen."""

Answer = Mapping[str, Any]
"""`refused` and `nodes`, as the probe `cluster` says them."""


def once(ask: Callable[[], Answer]) -> Callable[[], Answer]:
    """The same answer, or error, for all checks that need it; asked by the first."""
    kept: list[Answer | Exception] = []

    def answer() -> Answer:
        if not kept:
            try:
                kept.append(ask())
            except Exception as error:
                kept.append(error)
        if isinstance(kept[0], Exception):
            raise kept[0]
        return kept[0]

    return answer


def joined(address: str | None, ask: Ask) -> Callable[[], Answer]:
    """Asks the cluster at `address`, as `ray_connect` finds it."""
    question = {"address": address, "node_s": NODES_S}
    return once(lambda: ask("cluster", question, JOIN_S))


def reached(named: str | None, answer: Callable[[], Answer]) -> Finding:
    """Whether the cluster can be joined by this Python and Ray. `named`: its address and who says
    so; None: nobody names one."""
    if named is None:
        return Finding(
            SKIPPED,
            "none is named: a program starts one for itself",
            "to check a cluster: --address, or RAY_ADDRESS",
        )
    advice = (
        "see that it runs (`ray status` there), that its ports are open to this machine, and that "
        "its token is here (RAY_AUTH_TOKEN) if it has one"
    )
    try:
        found = answer()
    except ProbeError as error:
        return Finding(PROBLEM, f"{named}: {error}", advice)
    refused = found["refused"]
    if refused is None:
        return Finding(OK, f"{named}: {len(found['nodes'])} nodes")
    if "mismatch" in refused.lower():
        advice = "use the Python and the Ray here that the cluster has, or the other way round"
    return Finding(PROBLEM, f"{named}: {' '.join(refused.split())}", advice)


def nodes(ours: Mapping[str, str | None], answer: Callable[[], Answer]) -> Finding:
    """Whether all nodes have what we have. `ours`: our versions of `python`, `ray`, `strom`."""
    told = _nodes(answer)
    if told is None:
        return NOT_REACHED
    wrong = [f"{one['address']}: {one['error']}" for one in told if "error" in one]
    lacking = []
    for one in told:
        for what in ("python", "ray", "strom"):
            if "error" in one or one[what] == ours[what]:
                continue
            if one[what] is None:
                lacking.append(one["address"])
            else:
                wrong.append(f"{one['address']} has {what} {one[what]}, here is {ours[what]}")
    if wrong:
        return Finding(
            PROBLEM,
            "; ".join(wrong),
            "give all nodes the same image, or environment: tasks read what others pickled",
        )
    if lacking:
        return Finding(
            WARNING,
            f"strom is not installed on {', '.join(lacking)}",
            "install it there, or have every job bring it (runtime_env)",
        )
    same = ", ".join(f"{what} {version}" for what, version in ours.items())
    return Finding(OK, f"all {len(told)} have {same}")


def listening(bind_host: str, answer: Callable[[], Answer]) -> Finding:
    """Whether tasks of several machines reach each other. `bind_host`: where they listen, as the
    configuration says; empty: it says nothing."""
    told = _nodes(answer)
    if told is None:
        return NOT_REACHED
    if not bind_host:
        return Finding(OK, "loopback, or each node's own for a job on several")
    if len(told) < 2:
        return Finding(OK, f"{bind_host}; it is one node")
    if bind_host not in LOOPBACK:
        return Finding(OK, f"{bind_host}; there are {len(told)} nodes")
    return Finding(
        WARNING,
        f"tasks listen at {bind_host}, where those of the other {len(told) - 1} nodes do not come",
        f"leave {BIND_HOST} out: jobs on several nodes listen at their nodes' addresses then",
    )


def clocks(answer: Callable[[], Answer]) -> Finding:
    """Whether the nodes' clocks agree with ours, as exactly as the way there and back lets know."""
    told = _nodes(answer)
    if told is None:
        return NOT_REACHED
    known = [one for one in told if "error" not in one]
    if not known:
        return Finding(SKIPPED, "no node answered")
    off = [(max(0.0, abs(one["ahead_s"]) - one["unsure_s"]), one) for one in known]
    furthest, node = max(off, key=lambda one: one[0])
    if furthest <= CLOCKS_APART_S:
        sure = max(abs(one["ahead_s"]) + one["unsure_s"] for one in known)
        return Finding(OK, f"within {_seconds(sure)} of this machine's on all {len(known)} nodes")
    way = "ahead of" if node["ahead_s"] > 0 else "behind"
    return Finding(
        PROBLEM if furthest > CLOCKS_FAR_APART_S else WARNING,
        f"that of {node['address']} is at least {_seconds(furthest)} {way} this machine's",
        "run NTP (chrony, systemd-timesyncd) on all machines: processing time is the clock's",
    )


NOT_REACHED: Final = Finding(SKIPPED, "the cluster was not reached")


def _nodes(answer: Callable[[], Answer]) -> Sequence[Mapping[str, Any]] | None:
    """What they said; None: the cluster was not reached, as `reached` says."""
    try:
        found = answer()
    except ProbeError:
        return None
    return None if found["refused"] is not None else found["nodes"]


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
