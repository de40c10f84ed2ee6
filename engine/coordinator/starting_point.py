"""Where an attempt starts: from which checkpoint, and why not from another.

A job never goes back to a checkpoint older than what its sinks have published, unless they can take
it back; and it never drops state without being told to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...checkpoint.coordinator import CheckpointCoordinator
from ...checkpoint.manifest import Manifest, edges_in_flight, unmatched
from ...checkpoint.storage import Latest, Rejected
from ...core.errors import StateError
from ...core.ids import CheckpointId, OperatorId
from ..graph.edge_names import told
from .failures import Failure
from .plan import JobPlan
from .takeover import TakeOver

MOST_NAMED = 3
"""So many unusable checkpoints are told with their reasons; of more, the newest ones."""


@dataclass(frozen=True)
class Start:
    """What an attempt begins with. `manifest`: None for a start from the beginning. `revoke`: the
    sinks have published checkpoints after it and must take them back first. `enumerators`: the
    pickled states of those that do not begin anew. `halted`: the job itself was stopped there, and
    is only to commit it."""

    manifest: Manifest | None
    revoke: bool
    enumerators: Mapping[OperatorId, bytes]
    halted: bool = False


class StartingPoint:
    """The rules of one job, over all its attempts."""

    def __init__(
        self,
        plan: JobPlan,
        resume: bool,
        allow_unmatched: bool,
    ) -> None:
        """`resume` and `allow_unmatched` as in JobMaster."""
        self._plan = plan
        self._resume = resume
        self._allow_unmatched = allow_unmatched
        self.floor = 0
        """Checkpoints up to this id belong to an earlier life of the job; not restored from."""
        self._told: set[CheckpointId] = set()
        """Unusable checkpoints that have been told of; only grows."""

    def adopt(self, plan: JobPlan) -> None:
        """The job's from now on; none of its tasks runs."""
        self._plan = plan

    def admit(self, latest: Latest, first: bool) -> Latest:
        """What the job may use of the storage's answer. `first`: no attempt has begun yet."""
        if not self._resume and first and self.floor < latest.highest_id:
            self.floor = latest.highest_id
            return replace(latest, manifest=None, rejected=())
        return latest

    def news(self, latest: Latest) -> list[str]:
        """What to say about the checkpoints that are not used; of each, once in the job's life."""
        new = [r for r in latest.rejected if r.checkpoint_id not in self._told]
        self._told |= {r.checkpoint_id for r in new}
        unpublished = sorted(r.checkpoint_id for r in new if r.unpublished)
        lines = [f"checkpoint {n} is not used: {why}" for n, why in _named(new)]
        damaged = [r for r in new if not r.unpublished]
        if len(damaged) > MOST_NAMED:
            lines.append(f"{len(damaged) - MOST_NAMED} older checkpoints are not usable, either")
        if unpublished:
            which = "checkpoint" if len(unpublished) == 1 else "checkpoints"
            lines.append(f"{which} {_listed(unpublished)} not used: no manifest, never completed")
        return lines

    def prepare(self, latest: Latest, checkpoints: CheckpointCoordinator) -> Start | Failure:
        """Decide what an attempt starts from, given what is stored, and tell `checkpoints`."""
        manifest = latest.manifest
        try:
            revoke = self._check(latest, checkpoints.newest_complete)
        except StateError as error:
            return Failure(str(error), recoverable=False)
        checkpoints.on_restored(
            None if manifest is None else manifest.checkpoint_id,
            [c for c in latest.ids if c > self.floor],
            latest.highest_id,
            latest.never_usable,
        )
        stored = {} if manifest is None else manifest.enumerators
        mine = {o: state for o, state in stored.items() if o in self._plan.names}
        halted = manifest is not None and self._stopped_at(manifest)
        checkpoints.on_stopped_before(manifest.stopped_with if manifest and halted else None)
        return Start(manifest, revoke, mine, halted)

    def _stopped_at(self, manifest: Manifest) -> bool:
        """Whether the job itself was."""
        return manifest.stopped and manifest.job_id == self._plan.job_id

    def take_over(
        self, latest: Latest, left: TakeOver, checkpoints: CheckpointCoordinator
    ) -> Mapping[OperatorId, bytes] | Failure:
        """The same for tasks that run already. The enumerators' states in the newest complete
        checkpoint, as of `Start`; a Failure if that is not to be had."""
        stored = 0 if latest.manifest is None else latest.manifest.checkpoint_id
        checkpoints.on_restored(
            left.newest or None,
            [c for c in latest.ids if c > self.floor],
            left.seen,
            latest.never_usable,
        )
        checkpoints.on_left(left.aborted)
        if stored != left.newest:
            return Failure(f"checkpoint {left.newest}, the newest, cannot be read any more")
        if latest.manifest is not None and self._stopped_at(latest.manifest):
            checkpoints.on_stopped_before(latest.manifest.stopped_with)
        states = {} if latest.manifest is None else latest.manifest.enumerators
        return {o: state for o, state in states.items() if o in self._plan.names}

    def _check(self, latest: Latest, newest_complete: CheckpointId) -> bool:
        """Whether a start from `latest` makes the sinks take back what they published after it.
        Raises StateError where it would lose state or publish something twice."""
        manifest = latest.manifest
        newest = newest_complete if newest_complete > self.floor else 0
        revoke = (0 if manifest is None else manifest.checkpoint_id) < newest
        if revoke:
            self._check_way_back(newest, latest)
        why = None if manifest is None else self.why_not(manifest)
        if why is not None:
            raise StateError(why)
        return revoke

    def why_not(self, manifest: Manifest) -> str | None:
        """Why the job must not start from this, whatever else there is. From any thread."""
        if self._allow_unmatched:
            return None
        missing = unmatched(manifest, self._plan.names)
        if missing:
            return self._why_unmatched(manifest, missing)
        gone = edges_in_flight(manifest) - self._plan.edge_names
        return _why_gone(manifest, gone, self._plan.names) if gone else None

    def _why_unmatched(self, manifest: Manifest, missing: Sequence[OperatorId]) -> str:
        """The job lacks operators that the checkpoint has state of."""
        known = {shape.operator: shape.name for shape in manifest.operators}
        lost = ", ".join(f"'{known[o]}' ({o})" if o in known else o for o in missing)
        have = ", ".join(f"'{name}' ({o})" for o, name in sorted(self._plan.names.items()))
        return (
            f"checkpoint {manifest.checkpoint_id} holds state of operators that the job lacks: "
            f"{lost}; it has {have}. Give operators the uid they had then"
        )

    def _check_way_back(self, newest: int, latest: Latest) -> None:
        """Checkpoint `newest`, the newest complete one, is unusable: raises if an older one, or
        none at all, would not give the right results either."""
        known = {r.checkpoint_id: r.reason for r in latest.rejected}
        reason = known.get(CheckpointId(newest), "it is gone from the storage")
        lost = f"checkpoint {newest} cannot be restored: {reason}"
        if latest.manifest is None:
            others = [r for r in latest.rejected if r.checkpoint_id != newest]
            more = "".join(f"; nor can {n}: {why}" for n, why in _named(others))
            raise StateError(f"{lost}{more}. To begin anew, submit the job again")
        if not self._plan.irrevocable:
            return
        older = latest.manifest.checkpoint_id
        sinks = ", ".join(f"'{name}'" for name in self._plan.irrevocable)
        raise StateError(
            f"{lost}. Checkpoint {older} can, but {sinks} cannot take back what was published "
            f"since, so it would be published twice. If that is acceptable, submit the job again "
            f"with restore_from at the folder chk-{older}"
        )


def _why_gone(manifest: Manifest, edges: Iterable[str], now: Mapping[OperatorId, str]) -> str:
    """`now`: the operators that the job has."""
    operators = {**now, **{shape.operator: shape.name for shape in manifest.operators}}
    named = ", ".join(told(edge, operators) for edge in sorted(edges))
    return (
        f"checkpoint {manifest.checkpoint_id} is unaligned, and holds records that were on their "
        f"way between operators that the job does not connect so any more: {named}. Start from a "
        "savepoint, which holds none"
    )


def _named(rejected: Iterable[Rejected]) -> list[tuple[CheckpointId, str]]:
    """The newest few that had been published, with their reasons."""
    return [(r.checkpoint_id, r.reason) for r in rejected if not r.unpublished][:MOST_NAMED]


def _listed(ids: Sequence[CheckpointId]) -> str:
    """Ascending ids as text: `3, 5 to 8, 12`.

    >>> _listed([3, 5, 6, 7, 8, 12])
    '3, 5 to 8, 12'
    """
    runs: list[list[CheckpointId]] = []
    for n in ids:
        if runs and runs[-1][-1] == n - 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    parts = [f"{r[0]} to {r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs]
    return ", ".join(parts)
