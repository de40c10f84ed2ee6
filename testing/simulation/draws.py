"""What a seed draws: the one place where faults and modes are chosen.

A new one is a field of `Case` with a default that leaves it out, a line here, and what it does in
`running`. Cases that are written down (`regressions`) stay what they are.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from typing import get_args

from ...core.errors import ConfigurationError
from .case import Backend, Case, End, Mode, Sink, Storage
from .records import VARIANTS
from .topologies import TOPOLOGIES


@dataclass(frozen=True)
class Faults:
    """The most of what may go wrong in one run; each seed draws how much does.

    crashes: tasks, at any step. coordinators: coordinators, and all tasks with them; beside these,
    now and then one while the job is stopped with a savepoint. after: tasks right behind a
    completed checkpoint. savepoints: asked for meanwhile. rescales: so often the job is stopped,
    and goes on at another parallelism from a checkpoint or savepoint. live: so often it is rescaled
    while it runs. deals: whether key groups are dealt unevenly then, now and then. own: so often
    its autoscaler does that. short: so often there is too little room for it. amid: tasks or
    coordinators while it is rescaled. storage: whether calls of the checkpoint storage fail. hangs:
    whether some take longer than checkpoints may. slow: whether some tasks and writers are slow.
    rocksdb: whether state is in RocksDB now and then. cut_offs: coordinators that are taken for
    dead, with all their tasks, and go on while others begin. late: those that come for one that has
    crashed, and are held up before they have begun, while others take over. partitions: tasks that
    are cut off from others, or from the coordinator, for a time. commits: whether what sinks write
    to is away now and then. modes, storages: which are drawn.
    """

    crashes: int = 2
    coordinators: int = 1
    after: int = 1
    savepoints: int = 1
    rescales: int = 1
    live: int = 2
    deals: bool = True
    own: int = 4
    short: int = 2
    amid: int = 2
    storage: bool = True
    hangs: bool = True
    slow: bool = True
    rocksdb: bool = True
    cut_offs: int = 1
    late: int = 1
    partitions: int = 1
    commits: bool = True
    modes: tuple[Mode, ...] = ("aligned", "unaligned", "unaligned", "timeout")
    storages: tuple[Storage, ...] = ("memory", "files", "files", "files", "files", "objects")

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, int) and value < 0:
                raise ConfigurationError(f"Faults: {one.name} is at least 0, is {value}")
        for name, values, known in (
            ("modes", self.modes, get_args(Mode)),
            ("storages", self.storages, get_args(Storage)),
        ):
            if not values or not set(values) <= set(known):
                raise ConfigurationError(
                    f"Faults: {name} are some of {', '.join(known)}, not {values!r}"
                )


EVERYTHING = Faults(
    crashes=3, after=2, cut_offs=2, late=2, partitions=3, modes=(*Faults.modes, "at_least_once")
)
"""What random jobs meet."""

PARALLELISMS = (1, 2, 2, 2, 3)

ROCKSDB_EVERY = 30
"""Seeds: to open a database takes longer than all the rest."""

OBJECTS_ONCE_IN = 4
"""Of those that are drawn: fsspec takes most of the time there."""


def drawn(seed: int) -> Case:
    """The case of a seed, of all topologies."""
    rng = random.Random(seed)
    job = rng.choice(sorted(TOPOLOGIES))
    case = draw(seed, EVERYTHING, rng, at_least_once=TOPOLOGIES[job].at_least is not None)
    if TOPOLOGIES[job].parts and not case.live:
        case = _rescaled(case)
    if TOPOLOGIES[job].stages and seed % 4:
        case = replace(case, mode="aligned")  # where they may stand still meanwhile
    refused = rng.choice((10, 30)) if case.mode != "at_least_once" and rng.random() < 0.2 else 0
    return replace(
        case,
        job=job,
        variant=rng.randrange(VARIANTS),
        sink=_staged(seed) if rng.random() < 0.3 else "collect",
        refused=refused,
        limit=rng.choice(("none", "exact", "short")) if refused else "none",
    )


def _staged(seed: int) -> Sink:
    kinds: tuple[Sink, ...] = ("staged", "counted", "blind")
    return random.Random(f"sink {seed}").choice(kinds)


def _rescaled(case: Case) -> Case:
    rng = random.Random(f"parts {case.seed}")
    return replace(
        case,
        parallelism=tuple(max(2, width) for width in case.parallelism),
        live=rng.randint(1, 3),
        amid=rng.randint(0, 2) if case.storage != "memory" else 0,
    )


def draw(
    seed: int, faults: Faults, rng: random.Random | None = None, at_least_once: bool = True
) -> Case:
    """The case of a seed, of a job that is none of ours."""
    rng = rng or random.Random(seed)
    mode: Mode = rng.choice(faults.modes)
    if mode == "at_least_once" and not at_least_once:
        mode = "aligned"
    storage: Storage = rng.choice(faults.storages)
    if storage == "objects" and "files" in faults.storages and rng.randrange(OBJECTS_ONCE_IN):
        storage = "files"
    rocksdb = faults.rocksdb and rng.randrange(ROCKSDB_EVERY) == 0
    backend: Backend = "rocksdb" if rocksdb else "memory"
    lives = 1 + (rng.randrange(faults.rescales + 1) if faults.rescales else 0)
    ends: tuple[End, ...] = ("itself", "itself", "savepoint")
    if storage == "objects":
        ends = ("itself", "savepoint", "checkpoint", "checkpoint")
    cuts = faults.cut_offs > 0 and storage != "memory" and rng.random() < 0.1
    rescales = random.Random(f"live {seed}")
    live = rescales.randint(1, faults.live) if faults.live and rescales.random() < 0.3 else 0
    shuffled = random.Random(f"deals {seed}")
    deals = shuffled.choice((0, 50, 100)) if live and faults.deals else 0
    whims = random.Random(f"own {seed}")
    own = whims.randint(1, faults.own) if faults.own and whims.random() < 0.25 else 0
    looks = whims.choice((1, 1, 2, 5)) if own else Case.looks
    room = random.Random(f"short {seed}")
    short = room.randint(1, faults.short) if faults.short and room.random() < 0.2 else 0
    held = random.Random(f"late {seed}")
    late = storage != "memory" and faults.late > 0 and held.random() < 0.15
    away = held.choice((0, 5, 30, 100)) if late else 0
    fates = random.Random(f"amid {seed}")
    moved = storage != "memory" and (live or own or short)
    amid = fates.randint(0, faults.amid) if moved and faults.amid else 0
    stops = random.Random(f"at_stop {seed}")
    at_stop = int(stops.random() < 0.5) if storage != "memory" and faults.coordinators else 0
    widths = tuple(rng.choice(PARALLELISMS) for _ in range(lives))
    if live or own or short:  # what is planned for one subtask stays at that
        widths = tuple(max(2, width) for width in widths)
    return Case(
        seed=seed,
        parallelism=widths,
        batch=rng.choice((1, 2, 3, 5, 8)),
        cramped=rng.random() < 0.5,
        mode=mode,
        interval=rng.choice((1, 1, 2, 4)),
        incremental=rng.random() < 0.8,
        retained=rng.choice((1, 1, 2, 3)),
        storage=storage,
        backend=backend,
        ends=(end := rng.choice(ends) if lives > 1 else "itself"),
        stop=rng.randint(1, 3),
        crashes=rng.randint(0, faults.crashes),
        coordinators=rng.randint(0, faults.coordinators),
        after=rng.randint(0, faults.after),
        window=rng.choice((60, 150, 300)),
        savepoints=rng.randint(0, faults.savepoints) if rng.random() < 0.2 else 0,
        failing=rng.choice((5, 20, 60)) if faults.storage and rng.random() < 0.4 else 0,
        hangs=rng.choice((5, 20)) if faults.hangs and rng.random() < 0.2 else 0,
        slow_tasks=rng.choice((20, 50)) if faults.slow and rng.random() < 0.3 else 0,
        slow_work=rng.choice((1, 5, 10)) if faults.slow and rng.random() < 0.5 else 0,
        at_once=rng.choice((1, 1, 2, 3)),
        full_every=rng.choice((None, None, 1, 2, 4)),
        cut_offs=rng.randint(1, faults.cut_offs) if cuts else 0,
        away=rng.choice((0, 5, 30, 100)) if cuts else away,
        late=held.randint(1, faults.late) if late else 0,
        partitions=rng.randint(0, faults.partitions) if rng.random() < 0.2 else 0,
        figures=rng.random() < 0.25,
        commits=rng.choice((100, 300)) if faults.commits and rng.random() < 0.15 else 0,
        live=live,
        deals=deals,
        own=own,
        looks=looks,
        short=short,
        amid=amid,
        at_stop=at_stop if end == "savepoint" else 0,
    )
