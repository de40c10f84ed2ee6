"""Where an attempt starts: from which checkpoint, with what sources, and why not from another.

A job never goes back to a checkpoint older than what its sinks have published, unless they can take
it back; and it never drops state without being told to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...api.connectors.base import SplitEnumerator
from ...checkpoint.coordinator import CheckpointCoordinator
from ...checkpoint.manifest import Manifest, unmatched
from ...checkpoint.storage import Latest
from ...core.errors import StateError, StromError
from ...core.ids import CheckpointId, OperatorId
from .enumerators import EnumeratorSet, load_states
from .failures import Failure
from .plan import JobPlan

MakeEnumerators = Callable[[dict[OperatorId, Any]], Mapping[OperatorId, SplitEnumerator]]
"""From restored enumerator states (by operator; empty for a fresh start) to all enumerators."""


@dataclass(frozen=True)
class Start:
    """What an attempt begins with. `manifest`: None for a start from the beginning. `revoke`: the
    sinks have published checkpoints after it and must take them back first."""

    manifest: Manifest | None
    revoke: bool
    enumerators: EnumeratorSet


class StartingPoint:
    """The rules of one job, over all its attempts."""

    def __init__(
        self,
        plan: JobPlan,
        make_enumerators: MakeEnumerators,
        resume: bool,
        allow_unmatched: bool,
    ) -> None:
        """`resume` and `allow_unmatched` as in JobMaster."""
        self._plan = plan
        self._make_enumerators = make_enumerators
        self._resume = resume
        self._allow_unmatched = allow_unmatched
        self.floor = 0
        """Checkpoints up to this id belong to an earlier life of the job; not restored from."""

    def admit(self, latest: Latest, first: bool) -> Latest:
        """What the job may use of the storage's answer. `first`: no attempt has begun yet."""
        if not self._resume and first and self.floor < latest.highest_id:
            self.floor = latest.highest_id
            return replace(latest, manifest=None, rejected=())
        return latest

    def prepare(self, latest: Latest, checkpoints: CheckpointCoordinator) -> Start | Failure:
        """Make the sources of an attempt that starts from `latest`, and tell `checkpoints`."""
        manifest = latest.manifest
        try:
            revoke = self._check(latest, checkpoints.newest_complete)
            stored = {} if manifest is None else manifest.enumerators
            states = load_states({o: s for o, s in stored.items() if o in self._plan.names})
            checkpoints.on_restored(
                None if manifest is None else manifest.checkpoint_id,
                [c for c in latest.ids if c > self.floor],
                latest.highest_id,
            )
            enumerators = EnumeratorSet(self._make_enumerators(states), self._plan.names)
        except StateError as error:
            return Failure(str(error), recoverable=False)
        except Exception as error:
            return Failure(f"the sources could not be prepared: {_text(error)}")
        return Start(manifest, revoke, enumerators)

    def _check(self, latest: Latest, newest_complete: CheckpointId) -> bool:
        """Whether a start from `latest` makes the sinks take back what they published after it.
        Raises StateError where it would lose state or publish something twice."""
        manifest = latest.manifest
        newest = newest_complete if newest_complete > self.floor else 0
        revoke = (0 if manifest is None else manifest.checkpoint_id) < newest
        if revoke:
            self._check_way_back(newest, latest)
        if manifest is not None and not self._allow_unmatched:
            missing = unmatched(manifest, self._plan.names)
            if missing:
                raise StateError(self._why_unmatched(manifest, missing))
        return revoke

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
            more = "".join(f"; nor can {n}: {why}" for n, why in known.items() if n != newest)
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


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, StromError) else f"{type(error).__name__}: {error}"
