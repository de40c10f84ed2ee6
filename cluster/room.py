"""Who has what of the cluster, what is free, and in words why that is too little. Pure.

Ray's own account is no help here: it lags behind what the session has decided, and other programs'
slots are in it. So what counts is what jobs need, by their records. Slots come as groups, with a
name that the session chooses before they are made; those that jobs have left lie in a pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .records import JobRecord
from .slot_pool import PREFIX, SlotGroup, SlotPool

_ROUNDING = 1e-6


class Room:
    """Invariant: whoever keeps to `fits` before a job takes its slots never gives out more than the
    cluster has, nor what is kept for a job that follows another."""

    def __init__(self, jobs: Mapping[str, JobRecord], prefix: str = PREFIX) -> None:
        """`jobs`: all that are not over, by id, in the order of their submission; it is looked at
        in each call, and the caller's to change. `prefix`: of the names of groups."""
        self._prefix = prefix
        self._jobs = jobs
        self._has: Mapping[str, float] | None = None
        """What the whole cluster has, by Ray's names; None: that is not known yet."""
        self._pool = SlotPool()
        """Groups that no job has; those of others are named in their records."""
        self._named = 0
        """How many groups got a name."""

    def resize(self, has: Mapping[str, float]) -> None:
        """What the whole cluster has now, by Ray's names."""
        self._has = has

    @property
    def is_known(self) -> bool:
        """Whether it is known what the cluster has; until then nothing fits."""
        return self._has is not None

    # --- what fits -------------------------------------------------------------------------------

    def free(self, name: str) -> float:
        """Of this resource; less than nothing where nodes have left."""
        held = sum(r.needs.get(name, 0.0) for r in self._jobs.values() if r.holds_slots)
        return self._all(name) - held - sum(self._kept(r, name) for r in self._followers())

    def fits(self, record: JobRecord) -> bool:
        """Whether it may take its slots now, with `slots_for`."""
        return self.is_known and all(
            need <= self.free(name) + _ROUNDING for name, need in record.needs.items()
        )

    def is_too_large(self, record: JobRecord) -> bool:
        """For the whole cluster, were it empty."""
        return self.is_known and any(
            need > self._all(name) + _ROUNDING for name, need in record.needs.items()
        )

    def _all(self, name: str) -> float:
        return 0.0 if self._has is None else self._has.get(name, 0.0)

    def _followers(self) -> Iterable[JobRecord]:
        return (record for record in self._jobs.values() if record.follows is not None)

    def _kept(self, follower: JobRecord, name: str) -> float:
        """What is kept for it beside what the job has that it follows."""
        old = self._jobs.get(follower.follows or "")
        has = old.needs.get(name, 0.0) if old is not None and old.holds_slots else 0.0
        return max(0.0, follower.needs.get(name, 0.0) - has)

    # --- why not, in words -----------------------------------------------------------------------

    def why_too_large(self, record: JobRecord) -> str | None:
        """None: it is not larger than the whole cluster, as far as that is known."""
        if not self.is_known:
            return None
        for name, need in record.needs.items():
            if need > self._all(name) + _ROUNDING:
                slots = "its least parallelism" if record.least else f"{record.slots} slots"
                return (
                    f"it needs {_amount(need, name)} for {slots}, and the whole "
                    f"cluster has {self._all(name):g}: add nodes, lower its parallelism, or let "
                    "slots take less"
                )
        return None

    def why_not_now(self, record: JobRecord) -> str | None:
        """Who has what the job waits for. None: it fits."""
        for name, need in record.needs.items():
            free = self.free(name)
            if need > free + _ROUNDING:
                holders = ", ".join(
                    f"{r.name} ({r.job_id}) has {r.needs[name]:g}"
                    for r in self._jobs.values()
                    if r.holds_slots and r.needs.get(name)
                )
                return (
                    f"it needs {_amount(need, name)}, and {max(free, 0):g} of "
                    f"{self._all(name):g} are free: "
                    f"{holders or 'none is held by a job of this session'}"
                )
        return None

    def why_not_instead(
        self, record: JobRecord, old: JobRecord, first: JobRecord | None
    ) -> str | None:
        """Whether a new job may count on the room of `old`, which has its slots, and on what it
        needs more; None: it may. `first`: who waits in line, if anybody does, and would be robbed
        of that."""
        for name, need in record.needs.items():
            more, free = need - old.needs.get(name, 0.0), max(self.free(name), 0)
            if more > _ROUNDING and first is not None:
                return (
                    f"job '{old.job_id}' would need {more:g} of {name} more, which job "
                    f"{first.name} ({first.job_id}) waits for: ask again when that has started"
                )
            if more > free + _ROUNDING:
                return (
                    f"job '{old.job_id}' would need {_amount(need, name)}, and "
                    f"{need - more + free:g} are there for it: add nodes, or ask again when others "
                    "are done"
                )
        return None

    # --- groups of slots -------------------------------------------------------------------------

    @property
    def idle(self) -> set[str]:
        """The names of groups that no job has."""
        return self._pool.names

    def slots_for(self, record: JobRecord, now_ms: int) -> tuple[str | None, list[str]]:
        """The name of the slots of a job that fits, which may be those of a job before it; and what
        has to be released first, as it needs the room. The caller notes the name in its record."""
        if not record.shape:
            return None, self._pool.make_room(lambda: self._fits_beside_idle(record))
        lent = self._pool.lend(record.shape)
        if lent is not None:
            return lent, []
        released = self._pool.make_room(lambda: self._fits_beside_idle(record))
        self._named += 1
        return f"{self._prefix}{record.job_id}-{now_ms:x}-{self._named}", released

    def leave(self, record: JobRecord, now_ms: int) -> list[str]:
        """The job has its slots no more: what is to be released now."""
        if record.group is None:
            return []
        if record.idle_ms <= 0:
            return [record.group]
        group = SlotGroup(record.group, record.shape, record.began_with)
        self._pool.add(group, now_ms + record.idle_ms)
        return []

    def expired(self, now_ms: int) -> list[str]:
        """Groups that nobody has wanted for so long that they are to be released."""
        return self._pool.expired(now_ms)

    def clear(self) -> list[str]:
        """All groups that no job has are to be released."""
        return self._pool.clear()

    def unknown(self, groups: Iterable[str]) -> list[str]:
        """Those of them that nobody has, and that nobody will ever want: to be released."""
        held = {record.group for record in self._jobs.values() if record.holds_slots}
        known = held | self._pool.names
        return [name for name in groups if name not in known]

    def _fits_beside_idle(self, record: JobRecord) -> bool:
        """Whether it fits beside what the pool has, too."""
        return all(
            need <= self.free(name) - self._pool.takes(name) + _ROUNDING
            for name, need in record.began_with.items()
        )


def _amount(need: float, name: str) -> str:
    return f"{need:g} CPUs" if name == "CPU" else f"{need:g} of {name}"
