"""From a checkpoint to the state of a task's operators, before they are opened.

What another job's checkpoint holds goes through the migrations that the program asks for.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ...checkpoint.databases import DatabaseFilesFrom, inherited
from ...checkpoint.manifest import Manifest
from ...checkpoint.snapshot_io import read_operator
from ...checkpoint.transfers import Transfers
from ...operators.base import OperatorContext
from ...state.backend import OperatorStateTable, StateTable
from ...state.column_migration import migrated
from ...state.key_types import StoredKeyType
from ..graph.model import ChainedOperator
from .deployment import TaskDeployment
from .unmet_migrations import unmet

_log = logging.getLogger("strom")


def restore(
    d: TaskDeployment,
    contexts: Sequence[OperatorContext],
    storage: DatabaseFilesFrom,
    transfers: Transfers,
) -> None:
    """Put the state of `d.restore`, which is a checkpoint, into the contexts, which are those of
    the chain's operators. Raises what `read_operator` does."""
    assert d.restore is not None
    for context, chained in zip(contexts, d.vertex.operators, strict=True):
        _restore_operator(d, d.restore, context, chained, storage, transfers)


def _restore_operator(
    d: TaskDeployment,
    manifest: Manifest,
    context: OperatorContext,
    chained: ChainedOperator,
    storage: DatabaseFilesFrom,
    transfers: Transfers,
) -> None:
    share = (
        storage,
        manifest,
        context.operator_id,
        d.task.subtask,
        d.vertex.parallelism,
        d.vertex.max_parallelism,
    )
    own = manifest.job_id == d.job_id
    files = None
    if context.keyed_state.inherits and not chained.migrations:
        files = inherited(*share, same_program=own, deal=d.vertex.deal)
    keyed, operator = read_operator(
        *share,
        transfers,
        inherits=files is not None,
        own_share=d.own_share,
        deal=d.vertex.deal,
    )
    if chained.migrations:
        who = f"operator '{context.name}', subtask {context.subtask}"
        if not own and context.subtask == 0:
            _warn_of_unmet(manifest, context, chained, operator)
        keyed = migrated(keyed, chained.migrations, who)
    if files is not None:
        context.keyed_state.inherit(files)
    if not own and not d.config.allow_unmatched_state:
        context.keyed_state.of_another_job = True
        some: list[StateTable] = [*keyed, *context.keyed_state.inherited_samples()]
        context.keyed_state.stored_keys = StoredKeyType.of(some)
    context.keyed_state.restore(keyed)
    context.operator_state.restore(operator, chained.migrations)


def _warn_of_unmet(
    manifest: Manifest,
    context: OperatorContext,
    chained: ChainedOperator,
    operator: Sequence[OperatorStateTable],
) -> None:
    states = [table.name for table in operator]
    vain = unmet(manifest, context.operator_id, states, chained.migrations)
    if vain is not None:
        _log.warning("operator '%s': %s", context.name, vain)
