"""What the commands do: from parsed options to result lines. Errors that a user can mend end the
program with a message."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from itertools import product
from typing import Any

from strom import StromError

from .measure import Setting, measure
from .nexmark.registry import NEXMARK, NEXMARK_ROWS
from .workloads import WORKLOADS

Line = dict[str, Any]

EVENTS = 20_000_000
SLOW = {"wordcount": 4_000_000, "kprocess": 4_000_000, **dict.fromkeys(NEXMARK_ROWS, 2_000_000)}
"""Default numbers of events."""

SNAPSHOT_COLUMNS = (
    "state",
    "keys",
    "sync_ms",
    "sync_worst_ms",
    "sync_cpu_ms",
    "after_ms",
    "total_ms",
    "bytes",
    "within",
    "peak_rss_mb",
)
"""What `snapshot` prints without --json."""

CHECKPOINT_COLUMNS = (
    "kind",
    "backend",
    "keys",
    "changed",
    "sync_ms",
    "total_ms",
    "new_bytes",
    "all_bytes",
    "of_base_bytes",
    "files",
    "within",
    "events_per_s",
    "loss",
)
"""What `checkpoint` prints without --json."""

CONNECTORS = (
    "kafka_native",
    "kafka_count",
    "kafka_latency",
    "kafka_spark",
    "kafka_peers",
    "parquet_native",
    "parquet_spark",
    "bridge",
)
"""What `connectors` measures."""


def chosen(names: str) -> list[str]:
    """The workloads that the text stands for."""
    if names == "all":
        return list(NEXMARK)
    if names == "rows":
        return list(NEXMARK_ROWS)
    found = [name for name in names.split(",") if name]
    unknown = [name for name in found if name not in WORKLOADS]
    if unknown or not found:
        raise SystemExit(f"no workload {unknown}: there are all, rows, {', '.join(WORKLOADS)}")
    return found


def settings(options: Namespace) -> list[Setting]:
    return [
        Setting(
            name,
            options.events or SLOW.get(name, EVENTS),
            options.parallelism,
            options.host,
            options.checkpoint_interval,
            options.whole_stream,
        )
        for name in chosen(options.queries)
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
    from .verify import WrongOutput, verify

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
    from . import latency, overload

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


def recovery(options: Namespace) -> Iterator[Line]:
    from .recovery import measure_recovery

    yield measure_recovery(options.kills, options.parallelism)


def before_after(options: Namespace) -> Iterator[Line]:
    """A line per benchmark, then prints the table. Ends the program if the other revision cannot
    be run, or if a benchmark failed."""
    from .before_after import chosen, kept, measure, table
    from .trees import NoTree

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
    from .history import keep, kept, measure, regressions
    from .trees import NoTree

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
        from .plots import history as draw

        draw(lines, options.draw)
    for found in regressions(lines):
        yield found.as_json()
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def connectors(options: Namespace) -> Iterator[Line]:
    """Lines of each measurement chosen. Ends the program if one failed; a target that was missed is
    no failure."""
    from .connectors.suite import Amounts, measure

    wanted = list(CONNECTORS) if options.only == "all" else options.only.split(",")
    unknown = [name for name in wanted if name not in CONNECTORS]
    if unknown:
        raise SystemExit(f"no connector {unknown}: there are {', '.join(CONNECTORS)}")
    amounts = Amounts(
        options.events,
        options.parallelism,
        options.host,
        options.micro_batches,
        options.rate,
        options.seconds,
        options.work,
    )
    failed = []
    for line in measure(wanted, amounts):
        failed += [line["name"]] if "error" in line else []
        yield line
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def snapshot(options: Namespace) -> Iterator[Line]:
    """A line per kind of state."""
    from .snapshot import measure_states
    from .states import STATES

    names = list(STATES) if options.states == "all" else options.states.split(",")
    unknown = [name for name in names if name not in STATES]
    if unknown:
        raise SystemExit(f"no state {unknown}: there are all, {', '.join(STATES)}")
    failed = []
    for line in measure_states(names, options.keys, options.rounds):
        failed += [line["state"]] if "error" in line else []
        yield line
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def checkpoint(options: Namespace) -> Iterator[Line]:
    """For each backend a line for each number of keys and share of them that changed, incremental
    and full; then one for each number of keys of a job's throughput."""
    from .checkpoint import measure_checkpoints, measure_throughput

    failed = []
    if options.only != "throughput":
        lines = measure_checkpoints(options.keys, options.changed, options.rounds, options.backends)
        for line in lines:
            failed += [f"{line['keys']} keys, {line['backend']}"] if "error" in line else []
            yield line
    if options.only != "task":
        for backend, keys in product(options.backends, options.keys):
            jobs = (options.events, options.runs, options.parallelism, options.host)
            yield measure_throughput(keys, backend, *jobs)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def autoscale(options: Namespace) -> Iterator[Line]:
    """A line per curve and seed; of `--keys` one per kind of keys. Ends the program if a promise
    was broken."""
    if options.keys:
        from .key_load import measure_key_load

        yield from measure_key_load()
        return
    from strom import StreamExecutionEnvironment

    from .autoscale import chosen, measure_autoscale

    told = StreamExecutionEnvironment.get_execution_environment().get_job_config().autoscaler
    failed = []
    for line in measure_autoscale(chosen(options.curves), options.seconds, options.seeds, told):
        failed += line["broken"]
        yield line
    if failed:
        raise SystemExit(f"promises that were broken: {'; '.join(failed)}")


def async_io(options: Namespace) -> Iterator[Line]:
    """A line for results in order and one for results as they come."""
    from .async_io import ORDERS, measure_async

    for order in ORDERS:
        yield measure_async(
            order,
            options.events,
            options.capacity,
            options.parallelism,
            options.host,
            options.checkpoint_interval,
        )


def observe(options: Namespace) -> Iterator[Line]:
    """A line per workload; of `--rest` one."""
    from . import observe

    if options.rest:
        from .rest_answers import answers

        yield answers(options.ended, options.running, options.requests)
        return
    names = options.workloads.split(",")
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown:
        raise SystemExit(f"no workload {unknown}: there are {', '.join(WORKLOADS)}")
    for name in names:
        events = options.events or SLOW.get(name, EVENTS)
        setting = Setting(name, events, options.parallelism, options.host)
        how = observe.starts if options.start else observe.measure
        yield how(setting, options.rounds)


def ttl(options: Namespace) -> Iterator[Line]:
    """A line per case. Ends the program if one broke."""
    from .ttl import CASES, measure

    names = list(CASES) if options.cases == "all" else options.cases.split(",")
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise SystemExit(f"no case {unknown}: there are all, {', '.join(CASES)}")
    failed = []
    for line in measure(names, options.events, options.rounds):
        failed += [line["case"]] if "error" in line else []
        yield line
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def functions(options: Namespace) -> Iterator[Line]:
    """A line per case."""
    from .functions import CASES, measure

    names = list(CASES) if options.cases == "all" else options.cases.split(",")
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise SystemExit(f"no case {unknown}: there are all, {', '.join(CASES)}")
    yield from measure(names, options.events, options.rounds)


def pyflink(options: Namespace) -> Iterator[Line]:
    """A line per program. Ends the program if there is no PyFlink, or if a program failed."""
    from .ported import MODES, PROGRAMS, NoPyFlink, measure

    programs = list(PROGRAMS) if options.programs == "all" else options.programs.split(",")
    modes = list(MODES) if options.modes == "all" else options.modes.split(",")
    unknown = [name for name in programs if name not in PROGRAMS]
    unknown += [name for name in modes if name not in MODES]
    if unknown:
        raise SystemExit(f"no {unknown}: there are {', '.join([*PROGRAMS, *MODES])}")
    failed = []
    try:
        for line in measure(programs, modes, options.seconds, options.parallelism, options.host):
            failed += [line["program"]] if "error" in line else []
            yield line
    except NoPyFlink as error:
        raise SystemExit(str(error)) from error
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def compare(options: Namespace) -> Iterator[Line]:
    """A line per query of the peer. Ends the program if the peer is not installed."""
    from .compare import NotInstalled, compare, find

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
        events = options.events or SLOW.get(ours, EVENTS)
        setting = Setting(
            ours, events, options.parallelism, options.host, whole_stream=options.whole_stream
        )
        yield compare(peer, name, setting, options.runs, options.peer_events)


def report(options: Namespace) -> Iterator[Line]:
    """Writes the report; the line says where. Without files, a quick set is measured first."""
    from . import quick, report

    files = options.files or [quick.run(options.out, options.parallelism, options.host)]
    yield {"name": "report", "files": report.write(options.out, files)}


def statesize(options: Namespace) -> Iterator[Line]:
    """A line per face and size."""
    from .statesize import ROW_BYTES, lines

    faces = tuple(options.faces.split(","))
    unknown = [face for face in faces if face not in ROW_BYTES]
    if unknown:
        raise SystemExit(f"no face {unknown}: there are {', '.join(ROW_BYTES)}")
    failed = []
    for line in lines(options.bytes, options.memory, options.seconds, options.steps, faces):
        failed += [line["face"]] if "error" in line else []
        yield line
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def unaligned(options: Namespace) -> Iterator[Line]:
    """A line per way of taking checkpoints."""
    from .unaligned import measure_unaligned

    o = options
    yield from measure_unaligned(o.events, o.rate, o.parallelism, o.host, o.interval)


def recording(options: Namespace) -> Iterator[Line]:
    """A line per kind of records, not recorded and recorded."""
    from .recording import measure_recording

    o = options
    yield from measure_recording(o.events, o.parallelism, o.host, o.interval)


def failover(options: Namespace) -> Iterator[Line]:
    """What the death of processes costs a job that runs: a line for each kind."""
    from .failover import measure_coordinator, measure_gcs, measure_node, measure_task

    o = options
    kinds = {
        "task": measure_task,
        "coordinator": measure_coordinator,
        "node": measure_node,
        "gcs": measure_gcs,
    }
    for kind, line in kinds.items():
        if o.only in (None, kind):
            yield line(o.rate, o.kills, o.parallelism)


def start(options: Namespace) -> Iterator[Line]:
    """A line for each way that a job may start on a cluster that runs."""
    from .start import measure_start

    yield from measure_start(options.rounds, options.parallelism, options.ready)


def soak(options: Namespace) -> Iterator[Line]:
    """One line. Ends the program if the output is not right."""
    from .soak import Soak, measure_soak
    from .soak_job import Input
    from .soak_plan import KINDS

    o = options
    kinds = KINDS if o.faults == "all" else tuple(name for name in o.faults.split(",") if name)
    unknown = [name for name in kinds if name not in KINDS]
    if unknown and o.faults != "none":
        raise SystemExit(f"no fault {unknown}: there are all, none, {', '.join(KINDS)}")
    given = Input(o.rate, max(1, round(60 * o.minutes)), o.keys)
    some = () if unknown else kinds
    line = measure_soak(Soak(given, some, o.every, o.seed, o.parallelism, o.checkpoint_interval))
    yield line
    if not line["right"]:
        raise SystemExit("the output is not right")


def rescale(options: Namespace) -> Iterator[Line]:
    """One line: how long no records come out while a running job is rescaled."""
    from .rescale import measure_rescale

    yield measure_rescale(options.state_mb, options.rate, options.steps)


def regions(options: Namespace) -> Iterator[Line]:
    """One line."""
    from .regions import measure_regions

    o = options
    yield measure_regions(o.pipelines, o.rate, o.quiet, o.seconds, o.exchange)


def machines(options: Namespace) -> Iterator[Line]:
    """A line per way between two machines."""
    from .machines import measure_machines

    o = options
    exchange = {"floating_buffers": o.floating_buffers}
    yield from measure_machines(o.seconds, o.late_ms, o.columns, exchange)


def restore(options: Namespace) -> Iterator[Line]:
    """A line per backend and parallelism; of restarts two."""
    from .restart import measure_restarts
    from .restore import measure_restores

    measured = measure_restarts if options.local_recovery else measure_restores
    yield from measured(options.bytes, options.backends, options.parallelisms, options.host)


def manifest(options: Namespace) -> Iterator[Line]:
    """One line."""
    from .manifest import lines

    yield from lines(options.subtasks, options.states, options.layers, options.key_groups)


def coordinator(options: Namespace) -> Iterator[Line]:
    """A line per part."""
    from .coordinator import lines

    yield from lines(options.tasks, options.pipelines, options.rounds)
