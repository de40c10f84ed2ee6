"""What a program says of state that the checkpoint of another job does not hold (`migrate_state`).

It may be right: a state without a row is in no checkpoint, and what was said may stay in a program
that starts from older and newer ones. It may as well be a name that was mistyped, whose state would
then stay as it was. So it is told, with what there is, and not refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ...checkpoint.manifest import Manifest, stateful
from ...core.ids import OperatorId


def unmet(
    manifest: Manifest,
    operator: OperatorId,
    operator_states: Iterable[str],
    migrations: Mapping[str | None, Any],
) -> str | None:
    """What is said of the operator in vain; None if there is nothing. `operator_states`: names of
    those that the checkpoint holds of it, beside keyed ones."""
    if not migrations:
        return None
    where = f"checkpoint {manifest.checkpoint_id} of job '{manifest.job_name}'"
    if operator not in stateful(manifest):
        shapes = {shape.operator: shape for shape in manifest.operators}
        known = [shapes[held] for held in stateful(manifest) if held in shapes]
        there = [f"'{s.name}' ({s.uid or s.operator})" for s in known]
        return (
            f"migrate_state: {where} holds no state of this operator, so nothing is migrated; it "
            f"holds state of {', '.join(there) or 'none'}: give the operator the uid it had then, "
            "if it is one of these"
        )
    stored = _names(manifest, operator) | set(operator_states)
    unknown = sorted(name for name in migrations if name is not None and name not in stored)
    if not unknown:
        return None
    texts = [f"'{name}'{_hint(name, stored)}" for name in unknown]
    return (
        f"migrate_state: {where} holds no state {', '.join(texts)} of this operator, so what is "
        f"said of it changes nothing; it holds {sorted(stored)}"
    )


def _names(manifest: Manifest, operator: OperatorId) -> set[str]:
    """Of its keyed states."""
    found = set()
    for snapshot in manifest.snapshots(operator):
        found |= {handle.name for handle in snapshot.keyed}
        if snapshot.database is not None:
            found |= {state.name for state in snapshot.database.states}
    return found


def _hint(name: str, stored: Collection[str]) -> str:
    near = difflib.get_close_matches(name, sorted(stored), 1)
    return f" (did you mean '{near[0]}'?)" if near else ""
