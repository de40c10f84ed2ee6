"""How a pipeline is run by the equivalence harness: what each seed's runs are configured as."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from ..core.config import CheckpointConfig, ExchangeConfig, ExponentialDelayRestart, JobConfig
from ..core.metrics_config import MetricsConfig
from ..core.state_config import StateConfig
from .backends import IN_MEMORY, fast_dirs, state_of

RESTART = ExponentialDelayRestart(initial=timedelta(milliseconds=20), maximum=timedelta(seconds=1))
WATERMARK_INTERVAL = timedelta(milliseconds=1)
"""Short, so that event time advances while a short pipeline runs, not only at its end."""

CRAMPED = ExchangeConfig(
    buffer_bytes=64, min_buffer_bytes=16, exclusive_buffers=1, floating_buffers=0
)
"""Buffers that every batch fills, so that operators park their work at each pause."""


@dataclass(frozen=True)
class Ways:
    """How much of each way to run.

    crashes: tasks that crash right after a checkpoint; anytime: tasks that crash at random steps of
    the first `crash_window` of a job; coordinator: with odd seeds the coordinator crashes once as
    well.
    local: run on the local host, checkpointed; off where the output depends on real time.
    seeds: those that are run in any case; the `spare` that follow them only while nothing was
    interrupted.
    insist: it is an error if nothing was interrupted; off for pipelines that are over at once.
    rescales: so often each job in the simulator is asked to go on at another parallelism, as the
    same job; up to half as many tasks or coordinators crash meanwhile.
    deals: so often each simulated job goes on, while it runs, at any parallelism with its key
    groups dealt unevenly; it is an error if none ever did.
    """

    seeds: Sequence[int] = range(3)
    spare: int = 3
    crashes: int = 2
    anytime: int = 1
    coordinator: bool = True
    crash_window: int = 400
    checkpoint_interval: timedelta = timedelta(milliseconds=1)
    batch_size: int = 3
    local: bool = True
    ray: bool = False
    insist: bool = True
    rescales: int = 0
    deals: int = 0
    state: StateConfig | None = None
    """Where all ways but the first keep their state, but for jobs that go on in memory. None: in
    the simulator the seed says where, elsewhere it is in memory."""
    mixed_keys: bool = False
    """Whether keys are of several types: then a subtask of another job may first meet keys of one
    that it restored none of."""
    mix: int | None = None
    """Which backends and storages meet which crashes and restores, seed by seed. None: the number
    of records that come out, so that a few seeds of many pipelines are all combinations; of one
    pipeline at least one seed changes the backend on the way."""

    def turn(self, seed: int) -> int:
        """What says of a seed how its job is stopped, when tasks crash and whether buffers are
        small: of one seed of many pipelines that differs, too."""
        return seed + (self.mix or 0) // 16

    def storing(self, seed: int) -> int:
        """What says of a seed where state and checkpoints are."""
        return seed + (self.mix or 0)

    def spares(self) -> Iterator[int]:
        """Seeds to be run if those before them have interrupted nothing."""
        if self.insist and self.seeds:
            yield from range(max(self.seeds) + 1, max(self.seeds) + 1 + self.spare)

    def in_files(self, seed: int) -> bool:
        """Whether checkpoints of the seed's runs are files."""
        return self.storing(seed) // 4 % 4 > 0

    def in_copies(self, seed: int) -> bool:
        """Whether tasks restart from copies of them."""
        return self.in_files(seed) and self.storing(seed) % 3 == 0


def mixed(seeds: Sequence[int], drawn: int) -> int:
    """`drawn`, or less: so that one of the first two seeds changes the state backend."""
    few = len(seeds) < 3 and bool(seeds)
    return drawn - 2 * ((seeds[0] + drawn) % 4 > 1) if few else drawn


def checkpointed(ways: Ways, parallelism: int) -> JobConfig:
    """The configuration of all ways but the first."""
    return JobConfig(
        parallelism=parallelism,
        batch_size=ways.batch_size,
        auto_watermark_interval=WATERMARK_INTERVAL,
        checkpoint=CheckpointConfig(
            interval=ways.checkpoint_interval, retained=2, tolerable_failures=100
        ),
        restart=RESTART,
        state=ways.state or IN_MEMORY,
    )


MARKED = MetricsConfig(latency_interval=timedelta(milliseconds=2))


ALIGNMENT_MS: Final = (None, 0, 0, 3)
"""How long checkpoints of a seed's runs are aligned before they overtake; None: to their end."""


def copying(config: JobConfig, ways: Ways, seed: int) -> JobConfig:
    """The configuration, with copies for some seeds, latency markers for some, unaligned
    checkpoints for most, several at once for most others, and for some a whole one now and then."""
    at_once = 1 + (ways.turn(seed) // len(ALIGNMENT_MS) + 1) % 3
    full_every = (None, 2, 3)[ways.turn(seed) % 3]
    several = replace(config.checkpoint, max_concurrent=at_once, full_every=full_every)
    config = replace(config, checkpoint=several)
    if ways.turn(seed) // 2 % 2 == 0:
        config = replace(config, metrics=MARKED)
    aligned_ms = ALIGNMENT_MS[ways.turn(seed) % len(ALIGNMENT_MS)]
    if aligned_ms is not None:
        timeout = timedelta(milliseconds=aligned_ms)
        unaligned = replace(config.checkpoint, unaligned=True, alignment_timeout=timeout)
        config = replace(config, checkpoint=unaligned)
    if not ways.in_copies(seed):
        return config
    told = replace(config.checkpoint, local_recovery=True, local_dirs=fast_dirs())
    return replace(config, checkpoint=told)


def state_of_run(ways: Ways, seed: int, run: int = 0) -> StateConfig:
    drawn = state_of(ways.storing(seed), run)
    return drawn if ways.state is None or (run and drawn == IN_MEMORY) else ways.state


def resumed(ways: Ways, seed: int, run: int, parallelism: int) -> JobConfig:
    config = replace(checkpointed(ways, parallelism), state=state_of_run(ways, seed, run))
    return cramped(copying(config, ways, seed), ways.turn(seed))


def cramped(config: JobConfig, seed: int) -> JobConfig:
    """The configuration, with the smallest buffers for every other seed."""
    return replace(config, exchange=CRAMPED) if seed % 2 == 0 else config
