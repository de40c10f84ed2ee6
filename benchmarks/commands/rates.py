"""Throughput and latency of workloads, also beside another revision, other commits, and a peer."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from strom import StromError

from ..arguments import count, counts, milliseconds, names_of, positive
from ..before_after import GROUPS, WHOLE
from ..compare import PEERS
from ..history import HISTORY, KEPT
from ..measure import Setting, measure
from ..nexmark.registry import NEXMARK, NEXMARK_ROWS
from ..workloads import WORKLOADS
from .options import Commands, Line, common, default_events, told


def add_to(names: Commands) -> None:
    for name, query in WORKLOADS.items():
        command = names.add_parser(name, help=query.summary)
        command.set_defaults(run=workloads, queries=name)
        _measured(command)
    _suite(names)
    _latency(names.add_parser("latency", help="delay through a keyed stage at a given rate"))
    _before_after(names.add_parser("before-after", help="another revision, then this, in turns"))
    _history(names.add_parser("history", help="commits, each beside a raw pass of the machine"))
    _compare(names.add_parser("compare", help="a peer on the same queries, alternating"))
    _scale(names.add_parser("scale", help="speedup from 1 to 2 to 4 tasks"))
    _report(names.add_parser("report", help="Markdown and pictures from lines of the others"))


# --- options ------------------------------------------------------------------------------------


def _suite(names: Commands) -> None:
    suite = names.add_parser("nexmark", help="Nexmark queries, a line each")
    suite.add_argument(
        "queries",
        help=f"all, rows (with Python functions), or names with commas: {','.join(NEXMARK)}",
    )
    suite.set_defaults(run=workloads)
    _measured(suite)


def _measured(command: ArgumentParser) -> None:
    command.add_argument("--events", type=count, help="default: as many as take some seconds")
    command.add_argument("--checkpoint-interval", type=positive, metavar="SECONDS")
    command.add_argument("--runs", type=count, default=1, help="the line is that of the median run")
    command.add_argument(
        "--verify", action="store_true", help="first compare the output with the reference's"
    )
    _stream(command)
    common(command)
    told(command)


def _stream(command: ArgumentParser) -> None:
    command.add_argument(
        "--whole-stream",
        action="store_true",
        help="Nexmark queries read one stream of all kinds, not only the kinds they need",
    )


def _latency(command: ArgumentParser) -> None:
    command.set_defaults(run=latency)
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
    common(command)
    told(command)


def _before_after(command: ArgumentParser) -> None:
    command.set_defaults(run=before_after, json=True)
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


def _history(command: ArgumentParser) -> None:
    command.set_defaults(run=history, json=True)
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


def _compare(command: ArgumentParser) -> None:
    command.set_defaults(run=compare)
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
    common(command)


def _scale(command: ArgumentParser) -> None:
    command.set_defaults(run=scale)
    command.add_argument("--queries", default="q5,q7c,kstate")
    command.add_argument("--tasks", type=counts, default=[1, 2, 4], help="default: 1,2,4")
    _measured(command)


def _report(command: ArgumentParser) -> None:
    command.set_defaults(run=report)
    command.add_argument("--out", required=True, metavar="DIR")
    command.add_argument(
        "files", nargs="*", help="JSON lines; none: a quick set is run first, into DIR"
    )
    common(command)


# --- what is run --------------------------------------------------------------------------------


def queries(said: str) -> list[str]:
    """The workloads that the text stands for."""
    return names_of(said, "workload", WORKLOADS, all=NEXMARK, rows=NEXMARK_ROWS)


def settings(options: Namespace) -> list[Setting]:
    return [
        Setting(
            name,
            options.events or default_events(name),
            options.parallelism,
            options.host,
            options.checkpoint_interval,
            options.whole_stream,
        )
        for name in queries(options.queries)
    ]


def workloads(options: Namespace) -> Iterator[Line]:
    """A line per workload; that of a job that failed says why, and the others are run all the same.
    Ends the program if one failed, and at once if an output is wrong."""
    failed = []
    for setting in settings(options):
        verified = verification(setting) if options.verify else {}
        try:
            yield {**measure(setting, options.runs), **verified}
        except StromError as error:
            failed.append(setting.name)
            yield {"name": setting.name, "events": setting.events, "error": str(error)}
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def verification(setting: Setting) -> Line:
    """What to add to a line. Ends the program if the output is wrong."""
    from ..verify import WrongOutput, verify

    try:
        events = verify(setting)
    except WrongOutput as error:
        raise SystemExit(f"wrong output: {error}") from error
    return {"verified": True, "verified_events": events}


def scale(options: Namespace) -> Iterator[Line]:
    """A line per workload and number of tasks, with the speedup over the first number."""
    from dataclasses import replace

    tasks = options.tasks
    for setting in settings(options):
        if options.verify:
            verification(setting)
        base = 0
        for n in tasks:
            line = measure(replace(setting, parallelism=n), options.runs)
            base = base or line["events_per_s"]
            speedup = round(line["events_per_s"] / base, 2)
            yield {**line, "command": "scale", "tasks": n, "speedup": speedup}


def latency(options: Namespace) -> Iterator[Line]:
    from .. import latency, overload

    if options.overload:
        yield overload.measure_overload(
            options.rate,
            options.seconds,
            options.parallelism,
            options.host,
            options.buffer_timeout,
        )
        return
    yield latency.measure_latency(
        options.rate, options.seconds, options.parallelism, options.host, options.buffer_timeout
    )


def before_after(options: Namespace) -> Iterator[Line]:
    """A line per benchmark, then prints the table. Ends the program if the other revision cannot
    be run, or if a benchmark failed."""
    from ..before_after import chosen, kept, measure, table
    from ..trees import NoTree

    lines = []
    try:
        for line in measure(chosen(options.benchmarks), options):
            lines.append(line)
            yield line
    except NoTree as error:
        raise SystemExit(str(error)) from error
    finally:
        if lines:
            print(table(kept(options.out, lines) if options.out else lines), flush=True)
    failed = [line["benchmark"] for line in lines if "error" in line]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def history(options: Namespace) -> Iterator[Line]:
    """A line per commit and benchmark, kept as it comes, then one per regression that is found in
    all that is kept. Ends the program if a commit cannot be run, or if a benchmark failed."""
    from ..history import keep, kept, measure, regressions
    from ..trees import NoTree

    failed: list[str] = []
    try:
        for line in () if options.only_look else measure(options):
            keep(options.file, line)
            failed += [str(line.get("benchmark", line["commit"]))] if "error" in line else []
            yield line
    except NoTree as error:
        raise SystemExit(str(error)) from error
    lines = kept(options.file)
    if options.draw:
        from ..plots import history as draw

        draw(lines, options.draw)
    for found in regressions(lines):
        yield found.as_json()
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def compare(options: Namespace) -> Iterator[Line]:
    """A line per query of the peer. Ends the program if the peer is not installed."""
    from ..compare import NotInstalled, compare, find

    try:
        peer = find(options.peer, options.peers, options.work)
    except NotInstalled as error:
        raise SystemExit(str(error)) from error
    kind = peer.kind
    names = options.queries.split(",") if options.queries else list(kind.queries)
    chosen = {name: kind.ours(name) for name in names}
    unknown = [name for name, ours in chosen.items() if ours is None]
    if unknown:
        has = ", ".join((*kind.queries, *kind.variants))
        raise SystemExit(f"{options.peer} has no query {unknown}: {has}")
    for name, ours in chosen.items():
        assert ours is not None
        events = options.events or default_events(ours)
        setting = Setting(
            ours, events, options.parallelism, options.host, whole_stream=options.whole_stream
        )
        yield compare(peer, name, setting, options.runs, options.peer_events)


def report(options: Namespace) -> Iterator[Line]:
    """Writes the report; the line says where. Without files, a quick set is measured first."""
    from .. import quick, report

    files = options.files or [quick.run(options.out, options.parallelism, options.host)]
    yield {"name": "report", "files": report.write(options.out, files)}
