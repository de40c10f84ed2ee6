"""The command line: `python -m benchmarks COMMAND [options]`, `strom bench COMMAND [options]`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import Any

from strom import StromError
from strom.testing.autoscaling.curves import CURVES

from . import commands
from .arguments import backends, count, counts, milliseconds, positive, shares, size
from .before_after import GROUPS, WHOLE
from .compare import PEERS
from .configured import configured, given, pair
from .history import HISTORY, KEPT
from .nexmark.registry import NEXMARK
from .ported import MODES, PROGRAMS
from .soak_plan import KINDS
from .states import STATES
from .workloads import WORKLOADS

HELP = "python -m benchmarks"


def parser(prog: str = HELP) -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(prog=prog, description=f"{prog} COMMAND [options]")
    names = main.add_subparsers(dest="name", required=True)
    for name, query in WORKLOADS.items():
        command = names.add_parser(name, help=query.summary)
        command.set_defaults(run=commands.workloads, queries=name)
        _measured(command)
    suite = names.add_parser("nexmark", help="Nexmark queries, a line each")
    suite.add_argument(
        "queries",
        help=f"all, rows (with Python functions), or names with commas: {','.join(NEXMARK)}",
    )
    suite.set_defaults(run=commands.workloads)
    _measured(suite)
    _compare(names.add_parser("compare", help="a peer on the same queries, alternating"))
    _latency(names.add_parser("latency", help="delay through a keyed stage at a given rate"))
    scale = names.add_parser("scale", help="speedup from 1 to 2 to 4 tasks")
    scale.set_defaults(run=commands.scale)
    scale.add_argument("--queries", default="q5,q7c,kstate")
    scale.add_argument("--tasks", type=counts, default=[1, 2, 4], help="default: 1,2,4")
    _measured(scale)
    report = names.add_parser("report", help="Markdown and pictures from lines of the others")
    report.set_defaults(run=commands.report)
    report.add_argument("--out", required=True, metavar="DIR")
    report.add_argument(
        "files", nargs="*", help="JSON lines; none: a quick set is run first, into DIR"
    )
    _common(report)
    recovery = names.add_parser("recovery", help="SIGKILL a task, time until all run again")
    recovery.set_defaults(run=commands.recovery)
    recovery.add_argument("--kills", type=count, default=3)
    _common(recovery)
    _told(recovery)
    _before_after(names.add_parser("before-after", help="another revision, then this, in turns"))
    _history(names.add_parser("history", help="commits, each beside a raw pass of the machine"))
    _connectors(names.add_parser("connectors", help="sources and sinks of real systems"))
    _snapshot(names.add_parser("snapshot", help="how long a snapshot holds up a task, by state"))
    _checkpoint(names.add_parser("checkpoint", help="incremental checkpoints of a task"))
    _recording(names.add_parser("recording", help="what recording an operator costs"))
    _unaligned(names.add_parser("unaligned", help="checkpoints under full backpressure"))
    _failover(names.add_parser("failover", help="a running job whose processes are killed"))
    _start(names.add_parser("start", help="how long a job takes to start on Ray"))
    _soak(names.add_parser("soak", help="minutes of kills, outages and rescales: is it right?"))
    _rescale(names.add_parser("rescale", help="a running job that gets another parallelism"))
    _machines(
        names.add_parser("machines", help="two tasks with a network between, late, encrypted")
    )
    _regions(names.add_parser("regions", help="pipelines beside one whose task is killed"))
    _statesize(names.add_parser("statesize", help="keyed state larger than its memory, in RocksDB"))
    _restore(names.add_parser("restore", help="from much state to the first record"))
    _manifest(names.add_parser("manifest", help="of a checkpoint of many subtasks and states"))
    _coordinator(names.add_parser("coordinator", help="the coordinator's CPU, by number of tasks"))
    _async(names.add_parser("async", help="asynchronous requests of 10 ms, thousands at once"))
    _functions(
        names.add_parser("functions", help="functions of a record, by rows and compiled to columns")
    )
    _ttl(names.add_parser("ttl", help="what a time to live costs; memory while keys come for ever"))
    _observe(names.add_parser("observe", help="what metrics, a dashboard and latency markers cost"))
    _autoscale(names.add_parser("autoscale", help="the autoscaler on simulated loads"))
    _pyflink(names.add_parser("pyflink", help="the same programs in PyFlink and here"))
    return main


def _common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--parallelism", type=count, default=2)
    command.add_argument("--host", choices=["ray", "local"], default="ray")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")


def _told(command: argparse.ArgumentParser) -> None:
    command.add_argument("--backend", metavar="NAME", help="where state is: memory or rocksdb")
    _conf(command)


def _conf(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--conf",
        type=pair,
        action="append",
        metavar="KEY=VALUE",
        help="an option of docs/configuration.md; may be given several times",
    )


def _measured(command: argparse.ArgumentParser) -> None:
    command.add_argument("--events", type=count, help="default: as many as take some seconds")
    command.add_argument("--checkpoint-interval", type=positive, metavar="SECONDS")
    command.add_argument("--runs", type=count, default=1, help="the line is that of the median run")
    command.add_argument(
        "--verify", action="store_true", help="first compare the output with the reference's"
    )
    _stream(command)
    _common(command)
    _told(command)


def _stream(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--whole-stream",
        action="store_true",
        help="Nexmark queries read one stream of all kinds, not only the kinds they need",
    )


def _latency(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.latency)
    command.add_argument("--rate", type=count, default=10_000, help="records per second")
    command.add_argument("--seconds", type=positive, default=10.0)
    command.add_argument(
        "--buffer-timeout", type=milliseconds, metavar="MS", help="default: the engine's"
    )
    command.add_argument(
        "--overload",
        action="store_true",
        help="for a third of the time offer twice what can be done, then RATE again",
    )
    _common(command)
    _told(command)


def _before_after(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.before_after, json=True)
    command.add_argument("--base", required=True, metavar="REV", help="what to compare with")
    command.add_argument(
        "--benchmarks",
        default="all",
        help=f"all, {', '.join(GROUPS)}, or names with commas; {WHOLE}q5 is q5 --whole-stream",
    )
    command.add_argument("--events", type=count, help="default: as many as take some seconds")
    command.add_argument("--rounds", type=count, default=3, help="runs of each of both")
    command.add_argument("--seconds", type=positive, default=10.0, help="of latency")
    command.add_argument("--kills", type=count, default=3, help="of recovery")
    command.add_argument("--limit", type=positive, default=600.0, help="seconds for one run")
    command.add_argument(
        "--out", metavar="FILE", help="append the lines to FILE; the table is of all in it"
    )
    command.add_argument("--parallelism", type=count, default=2)
    command.add_argument("--host", choices=["ray", "local"], default="ray")


def _history(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.history, json=True)
    command.add_argument(
        "--commits",
        metavar="REVS",
        help="a revision, several with commas, or a range as git has it; default: this tree",
    )
    command.add_argument("--every", type=count, default=1, help="of a range every so many-th")
    command.add_argument("--benchmarks", default=",".join(HISTORY), help="as of before-after")
    command.add_argument("--events", type=count, help="default: as many as take some seconds")
    command.add_argument("--rounds", type=count, default=3, help="runs of each")
    command.add_argument("--limit", type=positive, default=600.0, help="seconds for one run")
    command.add_argument(
        "--file", default=KEPT, help="where the lines are kept (default %(default)s)"
    )
    command.add_argument("--only-look", action="store_true", help="measure nothing")
    command.add_argument("--draw", metavar="FILE", help="a picture of all that is kept")
    command.add_argument("--parallelism", type=count, default=2)
    command.add_argument("--host", choices=["ray", "local"], default="ray")


def _snapshot(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.snapshot, columns=commands.SNAPSHOT_COLUMNS)
    command.add_argument("--keys", type=count, default=1_000_000)
    command.add_argument("--rounds", type=count, default=5, help="snapshots of each")
    command.add_argument(
        "--states", default="all", help=f"all, or names with commas: {','.join(STATES)}"
    )
    command.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    _told(command)


def _checkpoint(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.checkpoint, columns=commands.CHECKPOINT_COLUMNS)
    command.add_argument("--keys", type=counts, default=[1_000_000, 10_000_000])
    command.add_argument(
        "--changed",
        type=shares,
        default=[1.0, 0.1, 0.01],
        help="shares of the keys that change between two: 1,0.1,0.01",
    )
    command.add_argument("--rounds", type=count, default=5, help="checkpoints of each")
    command.add_argument("--backends", type=backends, default=["memory", "rocksdb"])
    command.add_argument(
        "--runs", type=count, default=3, help="of whole jobs, without and with checkpoints"
    )
    command.add_argument("--events", type=count, help="of each job; default: by backend")
    command.add_argument("--only", choices=["task", "throughput"], help="default: both")
    _common(command)
    _conf(command)


def _statesize(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.statesize)
    command.add_argument("--bytes", type=size, default=5 << 30, help="of keys and values: 5gb")
    command.add_argument(
        "--memory", type=size, default=512 << 20, help="what the state may take: 512mb"
    )
    command.add_argument("--steps", type=count, default=5, help="sizes at which is measured")
    command.add_argument("--seconds", type=positive, default=10.0, help="of each measurement")
    command.add_argument("--faces", default="values,columns,rows")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")
    _conf(command)


def _restore(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.restore)
    command.add_argument("--bytes", type=size, default=1 << 30, help="of keys and values: 1gb")
    command.add_argument("--backends", type=backends, default=["memory", "rocksdb"])
    command.add_argument("--parallelisms", type=counts, default=[1, 2, 3], help="default: 1,2,3")
    command.add_argument(
        "--local-recovery",
        action="store_true",
        help="restarts of one job after a failure, without and with copies on its machine",
    )
    command.add_argument("--host", choices=["ray", "local"], default="ray")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")
    _conf(command)


def _manifest(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.manifest)
    command.add_argument("--subtasks", type=count, default=10_000)
    command.add_argument("--states", type=count, default=3, help="of each subtask")
    command.add_argument("--layers", type=count, default=1, help="of each state")
    command.add_argument("--key-groups", type=count, default=32_768)
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")


def _coordinator(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.coordinator)
    command.add_argument("--tasks", type=count, default=10_000)
    command.add_argument("--pipelines", type=count, default=1, help="of ten vertices each")
    command.add_argument("--rounds", type=count, default=3, help="of which the least counts")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")


def _async(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.async_io)
    command.add_argument("--events", type=count, default=1_000_000)
    command.add_argument("--capacity", type=count, default=10_000, help="requests in flight")
    command.add_argument("--checkpoint-interval", type=positive, metavar="SECONDS")
    _common(command)


def _unaligned(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.unaligned)
    command.add_argument("--events", type=count, default=8_000_000)
    command.add_argument(
        "--rate", type=count, default=200_000, help="records a second of each slow subtask"
    )
    command.add_argument("--interval", type=float, default=1.0, help="seconds between checkpoints")
    command.add_argument("--parallelism", type=count, default=2)
    command.add_argument("--host", choices=("ray", "local"), default="ray")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")
    _told(command)


def _recording(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.recording)
    command.add_argument("--events", type=count, default=8_000_000)
    command.add_argument("--interval", type=float, default=1.0, help="seconds between checkpoints")
    command.add_argument("--parallelism", type=count, default=2)
    command.add_argument("--host", choices=("ray", "local"), default="ray")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")
    _told(command)


def _failover(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.failover)
    command.add_argument("--rate", type=int, default=20_000, help="records a second")
    command.add_argument("--kills", type=int, default=5, help="of each kind")
    command.add_argument(
        "--only", choices=("task", "coordinator", "node", "gcs"), help="what is killed"
    )
    command.add_argument("--parallelism", type=int, default=2)
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")


def _start(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.start)
    command.add_argument("--rounds", type=count, default=5, help="of each way")
    command.add_argument("--parallelism", type=count, default=2)
    kept = "task processes that a session keeps ready"
    command.add_argument("--ready", type=count, default=4, help=kept)
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")


def _soak(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.soak)
    command.add_argument("--minutes", type=positive, default=10.0, help="of input")
    command.add_argument("--rate", type=count, default=200_000, help="records a second")
    command.add_argument("--keys", type=count, default=5_000)
    command.add_argument("--every", type=positive, default=6.0, help="seconds from fault to fault")
    faults = f"all, none, or names with commas: {','.join(KINDS)}"
    command.add_argument("--faults", default="all", help=faults)
    command.add_argument("--seed", type=int, default=1, help="which faults come when")
    command.add_argument("--checkpoint-interval", type=positive, default=2.0, metavar="SECONDS")
    command.add_argument("--parallelism", type=count, default=2, help="that it begins with")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")
    _told(command)


def _rescale(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.rescale)
    command.add_argument("--state-mb", type=count, default=100, help="of values in its state")
    command.add_argument("--rate", type=count, default=20_000, help="records a second")
    steps = "parallelisms, one after the other"
    command.add_argument("--steps", type=counts, default=[2, 3, 2], help=steps)
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")


def _machines(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.machines)
    command.add_argument("--seconds", type=positive, default=5.0, help="of each way")
    command.add_argument("--late-ms", type=positive, default=20.0, help="from one to the other")
    command.add_argument("--columns", type=count, default=3, help="of 8 bytes in a record")
    floating = "credits shared by a task's inputs"
    command.add_argument("--floating-buffers", type=count, default=8, help=floating)
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")


def _regions(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.regions)
    command.add_argument("--pipelines", type=count, default=10)
    command.add_argument("--rate", type=count, default=5_000, help="records a second of each")
    command.add_argument("--quiet", type=positive, default=10.0, help="seconds before the kills")
    command.add_argument("--seconds", type=positive, default=20.0, help="of kills, one each")
    command.add_argument("--exchange", action="store_true", help="two tasks in each pipeline")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")
    _told(command)


def _functions(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.functions)
    command.add_argument("--events", type=count, default=500_000)
    command.add_argument("--rounds", type=count, default=5, help="runs each way, in turns")
    command.add_argument("--cases", default="all", help="all, or names with commas")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")
    _told(command)


def _ttl(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.ttl)
    command.add_argument("--events", type=count, default=8_000_000)
    command.add_argument("--rounds", type=count, default=3, help="runs with and without, in turns")
    command.add_argument("--cases", default="all", help="all, or names with commas")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")
    _told(command)


def _observe(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.observe)
    command.add_argument(
        "--workloads", default="kstate,wordcount_columns", help="names with commas"
    )
    command.add_argument("--events", type=count, help="default: as many as workloads have")
    command.add_argument("--rounds", type=count, default=5, help="each way in each, in turns")
    instead = command.add_mutually_exclusive_group()
    instead.add_argument(
        "--start", action="store_true", help="instead: how long a job takes to start in a session"
    )
    instead.add_argument(
        "--rest", action="store_true", help="instead: how long the REST API takes to answer"
    )
    command.add_argument("--ended", type=count, default=1000, help="of --rest: jobs that are over")
    command.add_argument("--running", type=count, default=20, help="of --rest: jobs that run")
    command.add_argument("--requests", type=count, default=200, help="of --rest: of each path")
    _common(command)
    _told(command)


def _autoscale(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.autoscale)
    command.add_argument("--curves", default="all", help=f"all, or names: {','.join(CURVES)}")
    command.add_argument("--seconds", type=count, default=6 * 3600, help="of each, simulated")
    command.add_argument("--seeds", type=count, default=1, help="so many of each curve")
    command.add_argument(
        "--keys", action="store_true", help="instead: what looking at keys takes of a task's time"
    )
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")
    _conf(command)


def _pyflink(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.pyflink)
    command.add_argument(
        "--programs", default="all", help=f"all, or names with commas: {','.join(PROGRAMS)}"
    )
    command.add_argument(
        "--modes", default="all", help=f"of PyFlink: all, or names with commas: {','.join(MODES)}"
    )
    command.add_argument(
        "--seconds", type=positive, default=15.0, help="what is measured of each, at least"
    )
    _common(command)


def _connectors(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.connectors)
    command.add_argument(
        "--only", default="all", help=f"all, or names with commas: {','.join(commands.CONNECTORS)}"
    )
    command.add_argument(
        "--events",
        type=count,
        default=5_000_000,
        help="records of 100 bytes; slower ways take fewer, Parquet 8 rows for each",
    )
    command.add_argument(
        "--micro-batches", type=count, default=200, help="through the bridge, to see what stays"
    )
    command.add_argument("--rate", type=count, default=20_000, help="records/s of the latencies")
    command.add_argument("--seconds", type=positive, default=10.0, help="of the latencies")
    command.add_argument(
        "--work", metavar="DIR", help="folder of the peers' environments; default: the user's cache"
    )
    _common(command)


def _compare(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.compare)
    command.add_argument("peer", choices=sorted(PEERS))
    command.add_argument("--queries", help="names with commas; default: all that the peer has")
    command.add_argument(
        "--peers", metavar="DIR", help="folder of the peers' scripts ($STROM_PEERS)"
    )
    command.add_argument("--work", metavar="DIR", help="folder of their environments ($PEERS_WORK)")
    command.add_argument("--events", type=count, help="default: as many as take some seconds")
    command.add_argument("--peer-events", type=count, help="default: what its scripts choose")
    command.add_argument("--runs", type=count, default=3, help="each of both, in turns")
    _stream(command)
    _common(command)


def main(prog: str = HELP) -> None:
    """`prog`: what it is called as."""
    options = parser(prog).parse_args()
    columns = getattr(options, "columns", ())
    if columns and not options.json:
        show_row({name: name for name in columns}, columns)
    try:
        for line in run(options):
            if columns and not options.json and "error" not in line:
                show_row(line, columns)
            else:
                show(line, options.json)
    except StromError as error:
        raise SystemExit(str(error)) from error


def run(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The result lines of one command, as they come."""
    told = given(getattr(options, "conf", None), getattr(options, "backend", None))
    with configured(told):
        yield from options.run(options)


def show(line: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(line), flush=True)
    else:
        print("  ".join(f"{name}={value}" for name, value in line.items()), flush=True)


def show_row(line: dict[str, Any], columns: Sequence[str]) -> None:
    """One row of a table, the first column's text to the left, numbers to the right."""
    first, *others = ("-" if line.get(name) is None else line[name] for name in columns)
    print(f"{first:<24}" + "".join(f"{other!s:>14}" for other in others), flush=True)
