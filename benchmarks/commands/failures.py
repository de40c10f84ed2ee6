"""Jobs that are killed, rescaled and started, and their coordinator."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from strom.testing.autoscaling.curves import CURVES

from ..arguments import count, counts, names_of, positive
from ..soak_plan import KINDS
from .options import Commands, Line, common, conf, told


def add_to(names: Commands) -> None:
    _recovery(names.add_parser("recovery", help="SIGKILL a task, time until all run again"))
    _failover(names.add_parser("failover", help="a running job whose processes are killed"))
    _start(names.add_parser("start", help="how long a job takes to start on Ray"))
    _soak(names.add_parser("soak", help="minutes of kills, outages and rescales: is it right?"))
    _rescale(names.add_parser("rescale", help="a running job that gets another parallelism"))
    _machines(
        names.add_parser("machines", help="two tasks with a network between, late, encrypted")
    )
    _regions(names.add_parser("regions", help="pipelines beside one whose task is killed"))
    _coordinator(names.add_parser("coordinator", help="the coordinator's CPU, by number of tasks"))
    _autoscale(names.add_parser("autoscale", help="the autoscaler on simulated loads"))


# --- options ------------------------------------------------------------------------------------


def _recovery(command: ArgumentParser) -> None:
    command.set_defaults(run=recovery)
    command.add_argument("--kills", type=count, default=3)
    common(command)
    told(command)


def _failover(command: ArgumentParser) -> None:
    command.set_defaults(run=failover)
    command.add_argument("--rate", type=int, default=20_000, help="records a second")
    command.add_argument("--kills", type=int, default=5, help="of each kind")
    command.add_argument(
        "--only", choices=("task", "coordinator", "node", "gcs"), help="what is killed"
    )
    command.add_argument("--parallelism", type=int, default=2)
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")


def _start(command: ArgumentParser) -> None:
    command.set_defaults(run=start)
    command.add_argument("--rounds", type=count, default=5, help="of each way")
    command.add_argument("--parallelism", type=count, default=2)
    kept = "task processes that a session keeps ready"
    command.add_argument("--ready", type=count, default=4, help=kept)
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")


def _soak(command: ArgumentParser) -> None:
    command.set_defaults(run=soak)
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
    told(command)


def _rescale(command: ArgumentParser) -> None:
    command.set_defaults(run=rescale)
    command.add_argument("--state-mb", type=count, default=100, help="of values in its state")
    command.add_argument("--rate", type=count, default=20_000, help="records a second")
    steps = "parallelisms, one after the other"
    command.add_argument("--steps", type=counts, default=[2, 3, 2], help=steps)
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")


def _machines(command: ArgumentParser) -> None:
    command.set_defaults(run=machines)
    command.add_argument("--seconds", type=positive, default=5.0, help="of each way")
    command.add_argument("--late-ms", type=positive, default=20.0, help="from one to the other")
    command.add_argument("--columns", type=count, default=3, help="of 8 bytes in a record")
    floating = "credits shared by a task's inputs"
    command.add_argument("--floating-buffers", type=count, default=8, help=floating)
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")


def _regions(command: ArgumentParser) -> None:
    command.set_defaults(run=regions)
    command.add_argument("--pipelines", type=count, default=10)
    command.add_argument("--rate", type=count, default=5_000, help="records a second of each")
    command.add_argument("--quiet", type=positive, default=10.0, help="seconds before the kills")
    command.add_argument("--seconds", type=positive, default=20.0, help="of kills, one each")
    command.add_argument("--exchange", action="store_true", help="two tasks in each pipeline")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")
    told(command)


def _coordinator(command: ArgumentParser) -> None:
    command.set_defaults(run=coordinator)
    command.add_argument("--tasks", type=count, default=10_000)
    command.add_argument("--pipelines", type=count, default=1, help="of ten vertices each")
    command.add_argument("--rounds", type=count, default=3, help="of which the least counts")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")


def _autoscale(command: ArgumentParser) -> None:
    command.set_defaults(run=autoscale)
    command.add_argument("--curves", default="all", help=f"all, or names: {','.join(CURVES)}")
    command.add_argument("--seconds", type=count, default=6 * 3600, help="of each, simulated")
    command.add_argument("--seeds", type=count, default=1, help="so many of each curve")
    command.add_argument(
        "--keys", action="store_true", help="instead: what looking at keys takes of a task's time"
    )
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")
    conf(command)


# --- what is run --------------------------------------------------------------------------------


def recovery(options: Namespace) -> Iterator[Line]:
    from ..recovery import measure_recovery

    yield measure_recovery(options.kills, options.parallelism)


def failover(options: Namespace) -> Iterator[Line]:
    """What the death of processes costs a job that runs: a line for each kind."""
    from ..failover import measure_coordinator, measure_gcs, measure_node, measure_task

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
    from ..start import measure_start

    yield from measure_start(options.rounds, options.parallelism, options.ready)


def soak(options: Namespace) -> Iterator[Line]:
    """One line. Ends the program if the output is not right."""
    from ..soak import Soak, measure_soak
    from ..soak_job import Input
    from ..soak_plan import KINDS

    o = options
    kinds = names_of(o.faults, "fault", KINDS, all=KINDS, none=())
    given = Input(o.rate, max(1, round(60 * o.minutes)), o.keys)
    line = measure_soak(Soak(given, kinds, o.every, o.seed, o.parallelism, o.checkpoint_interval))
    yield line
    if not line["right"]:
        raise SystemExit("the output is not right")


def rescale(options: Namespace) -> Iterator[Line]:
    """One line: how long no records come out while a running job is rescaled."""
    from ..rescale import measure_rescale

    yield measure_rescale(options.state_mb, options.rate, options.steps)


def machines(options: Namespace) -> Iterator[Line]:
    """A line per way between two machines."""
    from ..machines import measure_machines

    o = options
    exchange = {"floating_buffers": o.floating_buffers}
    yield from measure_machines(o.seconds, o.late_ms, o.columns, exchange)


def regions(options: Namespace) -> Iterator[Line]:
    """One line."""
    from ..regions import measure_regions

    o = options
    yield measure_regions(o.pipelines, o.rate, o.quiet, o.seconds, o.exchange)


def coordinator(options: Namespace) -> Iterator[Line]:
    """A line per part."""
    from ..coordinator import lines

    yield from lines(options.tasks, options.pipelines, options.rounds)


def autoscale(options: Namespace) -> Iterator[Line]:
    """A line per curve and seed; of `--keys` one per kind of keys. Ends the program if a promise
    was broken."""
    if options.keys:
        from ..key_load import measure_key_load

        yield from measure_key_load()
        return
    from strom import StreamExecutionEnvironment

    from ..autoscale import chosen, measure_autoscale

    told = StreamExecutionEnvironment.get_execution_environment().get_job_config().autoscaler
    failed = []
    for line in measure_autoscale(chosen(options.curves), options.seconds, options.seeds, told):
        failed += line["broken"]
        yield line
    if failed:
        raise SystemExit(f"promises that were broken: {'; '.join(failed)}")
