"""State, and what is written of it: snapshots, checkpoints, recordings, restores."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from itertools import product

from ..arguments import backends, count, counts, names_of, positive, shares, size
from ..states import STATES
from .options import Commands, Line, common, conf, told

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


def add_to(names: Commands) -> None:
    _snapshot(names.add_parser("snapshot", help="how long a snapshot holds up a task, by state"))
    _checkpoint(names.add_parser("checkpoint", help="incremental checkpoints of a task"))
    _unaligned(names.add_parser("unaligned", help="checkpoints under full backpressure"))
    _recording(names.add_parser("recording", help="what recording an operator costs"))
    _statesize(names.add_parser("statesize", help="keyed state larger than its memory, in RocksDB"))
    _restore(names.add_parser("restore", help="from much state to the first record"))
    _manifest(names.add_parser("manifest", help="of a checkpoint of many subtasks and states"))


# --- options ------------------------------------------------------------------------------------


def _snapshot(command: ArgumentParser) -> None:
    command.set_defaults(run=snapshot, columns=SNAPSHOT_COLUMNS)
    command.add_argument("--keys", type=count, default=1_000_000)
    command.add_argument("--rounds", type=count, default=5, help="snapshots of each")
    command.add_argument(
        "--states", default="all", help=f"all, or names with commas: {','.join(STATES)}"
    )
    command.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    told(command)


def _checkpoint(command: ArgumentParser) -> None:
    command.set_defaults(run=checkpoint, columns=CHECKPOINT_COLUMNS)
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
    common(command)
    conf(command)


def _unaligned(command: ArgumentParser) -> None:
    command.set_defaults(run=unaligned)
    command.add_argument("--events", type=count, default=8_000_000)
    command.add_argument(
        "--rate", type=count, default=200_000, help="records a second of each slow subtask"
    )
    command.add_argument("--interval", type=float, default=1.0, help="seconds between checkpoints")
    command.add_argument("--parallelism", type=count, default=2)
    command.add_argument("--host", choices=("ray", "local"), default="ray")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")
    told(command)


def _recording(command: ArgumentParser) -> None:
    command.set_defaults(run=recording)
    command.add_argument("--events", type=count, default=8_000_000)
    command.add_argument("--interval", type=float, default=1.0, help="seconds between checkpoints")
    command.add_argument("--parallelism", type=count, default=2)
    command.add_argument("--host", choices=("ray", "local"), default="ray")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")
    told(command)


def _statesize(command: ArgumentParser) -> None:
    command.set_defaults(run=statesize)
    command.add_argument("--bytes", type=size, default=5 << 30, help="of keys and values: 5gb")
    command.add_argument(
        "--memory", type=size, default=512 << 20, help="what the state may take: 512mb"
    )
    command.add_argument("--steps", type=count, default=5, help="sizes at which is measured")
    command.add_argument("--seconds", type=positive, default=10.0, help="of each measurement")
    command.add_argument("--faces", default="values,columns,rows")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")
    conf(command)


def _restore(command: ArgumentParser) -> None:
    command.set_defaults(run=restore)
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
    conf(command)


def _manifest(command: ArgumentParser) -> None:
    command.set_defaults(run=manifest)
    command.add_argument("--subtasks", type=count, default=10_000)
    command.add_argument("--states", type=count, default=3, help="of each subtask")
    command.add_argument("--layers", type=count, default=1, help="of each state")
    command.add_argument("--key-groups", type=count, default=32_768)
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")


# --- what is run --------------------------------------------------------------------------------


def snapshot(options: Namespace) -> Iterator[Line]:
    """A line per kind of state."""
    from ..snapshot import measure_states
    from ..states import STATES

    names = names_of(options.states, "state", STATES, all=STATES)
    failed = []
    for line in measure_states(names, options.keys, options.rounds):
        failed += [line["state"]] if "error" in line else []
        yield line
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def checkpoint(options: Namespace) -> Iterator[Line]:
    """For each backend a line for each number of keys and share of them that changed, incremental
    and full; then one for each number of keys of a job's throughput."""
    from ..checkpoint import measure_checkpoints, measure_throughput

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


def unaligned(options: Namespace) -> Iterator[Line]:
    """A line per way of taking checkpoints."""
    from ..unaligned import measure_unaligned

    o = options
    yield from measure_unaligned(o.events, o.rate, o.parallelism, o.host, o.interval)


def recording(options: Namespace) -> Iterator[Line]:
    """A line per kind of records, not recorded and recorded."""
    from ..recording import measure_recording

    o = options
    yield from measure_recording(o.events, o.parallelism, o.host, o.interval)


def statesize(options: Namespace) -> Iterator[Line]:
    """A line per face and size."""
    from ..statesize import ROW_BYTES, lines

    faces = tuple(names_of(options.faces, "face", ROW_BYTES))
    failed = []
    for line in lines(options.bytes, options.memory, options.seconds, options.steps, faces):
        failed += [line["face"]] if "error" in line else []
        yield line
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def restore(options: Namespace) -> Iterator[Line]:
    """A line per backend and parallelism; of restarts two."""
    from ..restart import measure_restarts
    from ..restore import measure_restores

    measured = measure_restarts if options.local_recovery else measure_restores
    yield from measured(options.bytes, options.backends, options.parallelisms, options.host)


def manifest(options: Namespace) -> Iterator[Line]:
    """One line."""
    from ..manifest import lines

    yield from lines(options.subtasks, options.states, options.layers, options.key_groups)
