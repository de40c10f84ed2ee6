"""Runs a peer's scripts on the queries it has, in turns with strom, and gives the ratios.

The scripts are not part of strom: a folder with a `bench.py` that takes

    bench.py --workdir WORK --runs 1 --tries 1 --quiet-wait S SYSTEM QUERY[:EVENTS]

and prints one JSON line with `events_per_s` or `error`. WORK holds an environment per peer.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .measure import Run, Setting, run_once, summary

QUIET_WAIT_S = 5
"""How long a peer's run waits for the machine to be idle: both wait as long, so neither profits."""


@dataclass(frozen=True)
class Kind:
    """A peer. `queries`: its name of each query, and ours. `needs`: what must be in WORK.
    `variants`: other names of such queries, run where they are asked for."""

    queries: dict[str, str]
    needs: tuple[str, ...]
    variants: dict[str, str] = field(default_factory=dict)

    def ours(self, query: str) -> str | None:
        """Our name of a query of the peer's; None if it has none of that name."""
        return self.queries.get(query) or self.variants.get(query)


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_SINGLY = ("q3", "q4", "q9", "q12", "q14", "q18", "q19", "q20", "q21")
"""What Flink does fastest record by record, without the suite's mini-batches."""
_UNSPLIT = ("q15", "q16")
"""What it does fastest without the suite's split of distinct aggregates."""

_FLINK = {
    **_same("q0", "q1", "q2", "q5", "q7", "q8", "q11", "q7c", "kstate"),
    "wordcount": "wordcount_columns",  # neither runs Python for each record
    "q0s": "q0",
    "q1s": "q1",
    "q2s": "q2",
    "q7top": "q7",
    **_same("q10", "q13", "q17", "q22"),
    **{f"{name}+nominibatch": name for name in _SINGLY},
    **{f"{name}+nosplit": name for name in _UNSPLIT},
    "q23s+nominibatch": "q23",  # in the order of joins that strom's query has
}
"""Each query as Flink does it fastest, of the variants that its scripts have."""
_SUITES = {**_same(*_SINGLY, *_UNSPLIT, "q23"), "q14f+nominibatch": "q14", "q1f": "q1"}
"""As the suite's own configuration has it; with prices of strom's type."""
_PYTHON = _same("q1", "q2", "q7c", "wordcount", "kstate")

PEERS = {
    "flink-java": Kind(_FLINK, ("pyflink/bin/python", "flink-peers.jar"), _SUITES),
    "pyflink": Kind(_PYTHON, ("pyflink/bin/python",)),
    "pyflink-thread": Kind(_PYTHON, ("pyflink/bin/python",)),
    "bytewax": Kind({"q0": "q0", **_PYTHON}, ("bytewax/bin/python",)),
    "pathway-python": Kind(_PYTHON, ("pathway/bin/python",)),
    "pathway-csv": Kind(_same("q1", "q7c", "kstate"), ("pathway/bin/python",)),
    "spark": Kind(_PYTHON, ("spark/bin/python",)),
    "spark-python": Kind(_same("q1", "wordcount", "kstate"), ("spark/bin/python",)),
}


class NotInstalled(Exception):
    """The peer, or the folder of scripts, is not on this machine; the message says what."""


@dataclass(frozen=True)
class Peer:
    """One that is there."""

    name: str
    kind: Kind
    script: Path
    work: Path


def find(name: str, scripts: str | None = None, work: str | None = None) -> Peer:
    """From folders given, else from $STROM_PEERS and $PEERS_WORK. Raises NotInstalled."""
    scripts = scripts or os.environ.get("STROM_PEERS")
    work = work or os.environ.get("PEERS_WORK")
    if not scripts or not work:
        raise NotInstalled(
            f"{name} cannot be run: give the folder of the peers' scripts (--peers DIR or "
            "$STROM_PEERS) and that of their environments (--work DIR or $PEERS_WORK)"
        )
    kind = PEERS[name]
    wanted = [Path(scripts, "bench.py"), *(Path(work, part) for part in kind.needs)]
    missing = [str(path) for path in wanted if not path.exists()]
    if missing:
        raise NotInstalled(f"{name} is not installed: there is no {', no '.join(missing)}")
    return Peer(name, kind, wanted[0], Path(work))


def compare(
    peer: Peer, query: str, setting: Setting, runs: int, peer_events: int | None = None
) -> dict[str, Any]:
    """Each of both `runs` times in turns; medians and their ratio (above 1: strom does more)."""
    ours: list[Run] = []
    theirs: list[dict[str, Any]] = []
    for _ in range(runs):
        run, sources = run_once(setting)
        ours.append(run)
        theirs.append(run_peer(peer, query, peer_events))
    line = {"name": "compare", "peer": peer.name, "query": query, "workload": setting.name}
    failed = [one["error"] for one in theirs if "error" in one]
    if failed:
        return {**line, "error": failed[0]}
    mine = summary(setting, ours, sources)
    rates = [round(one["events_per_s"]) for one in theirs]
    rate = statistics.median_low(rates)
    middle = theirs[rates.index(rate)]
    return {
        **line,
        "ratio": round(mine["events_per_s"] / rate, 2),
        "strom_events_per_s": mine["events_per_s"],
        "peer_events_per_s": rate,
        "strom_runs": mine["runs"],
        "peer_runs": rates,
        "strom_cpu_s_per_m_events": mine["cpu_s_per_m_events"],
        "peer_cpu_s_per_m_events": middle.get("cpu_s_per_m_events"),
        "strom_peak_rss_mb": mine["peak_rss_mb"],
        "peer_peak_rss_mb": max((one.get("peak_rss_mb", 0) for one in theirs), default=0),
        "strom_events": setting.events,
        "peer_events": middle.get("events"),
    }


def run_peer(peer: Peer, query: str, events: int | None) -> dict[str, Any]:
    """One run's JSON line, or `error`."""
    asked = f"{query}:{events}" if events else query
    options = {"--workdir": peer.work, "--runs": 1, "--tries": 1, "--quiet-wait": QUIET_WAIT_S}
    words = [str(word) for pair in options.items() for word in pair]
    command = [sys.executable, str(peer.script), *words, peer.name, asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return {"error": f"{peer.script.name} ended with {done.returncode}: {done.stderr[-500:]}"}
    found: dict[str, Any] = json.loads(lines[-1])
    return found
