"""One part of the engine, or of what is around it: functions, asynchronous requests, times to live,
metrics, connectors, ported programs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from ..arguments import count, names_of, positive
from ..measure import Setting
from ..ported import MODES, PROGRAMS
from ..workloads import WORKLOADS
from .options import Commands, Line, common, default_events, told

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


def add_to(names: Commands) -> None:
    _functions(
        names.add_parser("functions", help="functions of a record, by rows and compiled to columns")
    )
    _async(names.add_parser("async", help="asynchronous requests of 10 ms, thousands at once"))
    _ttl(names.add_parser("ttl", help="what a time to live costs; memory while keys come for ever"))
    _observe(names.add_parser("observe", help="what metrics, a dashboard and latency markers cost"))
    _pyflink(names.add_parser("pyflink", help="the same programs in PyFlink and here"))
    _connectors(names.add_parser("connectors", help="sources and sinks of real systems"))


# --- options ------------------------------------------------------------------------------------


def _functions(command: ArgumentParser) -> None:
    command.set_defaults(run=functions)
    command.add_argument("--events", type=count, default=500_000)
    command.add_argument("--rounds", type=count, default=5, help="runs each way, in turns")
    command.add_argument("--cases", default="all", help="all, or names with commas")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")
    told(command)


def _async(command: ArgumentParser) -> None:
    command.set_defaults(run=async_io)
    command.add_argument("--events", type=count, default=1_000_000)
    command.add_argument("--capacity", type=count, default=10_000, help="requests in flight")
    command.add_argument("--checkpoint-interval", type=positive, metavar="SECONDS")
    common(command)


def _ttl(command: ArgumentParser) -> None:
    command.set_defaults(run=ttl)
    command.add_argument("--events", type=count, default=8_000_000)
    command.add_argument("--rounds", type=count, default=3, help="runs with and without, in turns")
    command.add_argument("--cases", default="all", help="all, or names with commas")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")
    told(command)


def _observe(command: ArgumentParser) -> None:
    command.set_defaults(run=observe)
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
    common(command)
    told(command)


def _pyflink(command: ArgumentParser) -> None:
    command.set_defaults(run=pyflink)
    command.add_argument(
        "--programs", default="all", help=f"all, or names with commas: {','.join(PROGRAMS)}"
    )
    command.add_argument(
        "--modes", default="all", help=f"of PyFlink: all, or names with commas: {','.join(MODES)}"
    )
    command.add_argument(
        "--seconds", type=positive, default=15.0, help="what is measured of each, at least"
    )
    common(command)


def _connectors(command: ArgumentParser) -> None:
    command.set_defaults(run=connectors)
    command.add_argument(
        "--only", default="all", help=f"all, or names with commas: {','.join(CONNECTORS)}"
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
    common(command)


# --- what is run --------------------------------------------------------------------------------


def functions(options: Namespace) -> Iterator[Line]:
    """A line per case."""
    from ..functions import CASES, measure

    names = names_of(options.cases, "case", CASES, all=CASES)
    yield from measure(names, options.events, options.rounds)


def async_io(options: Namespace) -> Iterator[Line]:
    """A line for results in order and one for results as they come."""
    from ..async_io import ORDERS, measure_async

    for order in ORDERS:
        yield measure_async(
            order,
            options.events,
            options.capacity,
            options.parallelism,
            options.host,
            options.checkpoint_interval,
        )


def ttl(options: Namespace) -> Iterator[Line]:
    """A line per case. Ends the program if one broke."""
    from ..ttl import CASES, measure

    names = names_of(options.cases, "case", CASES, all=CASES)
    failed = []
    for line in measure(names, options.events, options.rounds):
        failed += [line["case"]] if "error" in line else []
        yield line
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def observe(options: Namespace) -> Iterator[Line]:
    """A line per workload; of `--rest` one."""
    from .. import observe

    if options.rest:
        from ..rest_answers import answers

        yield answers(options.ended, options.running, options.requests)
        return
    for name in names_of(options.workloads, "workload", WORKLOADS):
        events = options.events or default_events(name)
        setting = Setting(name, events, options.parallelism, options.host)
        how = observe.starts if options.start else observe.measure
        yield how(setting, options.rounds)


def pyflink(options: Namespace) -> Iterator[Line]:
    """A line per program. Ends the program if there is no PyFlink, or if a program failed."""
    from ..ported import MODES, PROGRAMS, NoPyFlink, measure

    programs = names_of(options.programs, "program", PROGRAMS, all=PROGRAMS)
    modes = names_of(options.modes, "mode", MODES, all=MODES)
    failed = []
    try:
        for line in measure(programs, modes, options.seconds, options.parallelism, options.host):
            failed += [line["program"]] if "error" in line else []
            yield line
    except NoPyFlink as error:
        raise SystemExit(str(error)) from error
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def connectors(options: Namespace) -> Iterator[Line]:
    """Lines of each measurement chosen. Ends the program if one failed; a target that was missed is
    no failure."""
    from ..connectors.suite import Amounts, measure

    wanted = names_of(options.only, "connector", CONNECTORS, all=CONNECTORS)
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
