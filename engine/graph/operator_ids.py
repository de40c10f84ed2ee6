"""Stable operator ids: what ties an operator's state in a checkpoint to the operator in a program.

A uid hash is the id of its operator, as it stands.
An operator with a uid is identified by the uid alone: it may move, change its inputs, its name or
its parallelism. Without a uid the id is derived from the structure: the kind of the spec, what it
reads (the ids of its inputs, side-output tags, ports), and, among operators alike in all of that,
the position in the order of creation. Names, parallelism, chaining and user code do not matter.
Restarting the same program therefore gives the same ids; inserting an operator changes the ids
of everything behind it up to the next uid.

The hash is blake2b of a canonical text, 64 bits, in hex. Checkpoints depend on it for ever.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from ...core.errors import GraphError
from ...core.ids import OperatorId
from .transformation import Transformation


def uid_operator_id(uid: str) -> OperatorId:
    """The id of the operator with this uid, whatever its program."""
    return _hash(["uid", uid])


def derived_operator_id(role: str, owner: OperatorId, number: int) -> OperatorId:
    """The id of an operator that no program names, made to serve the operator `owner`."""
    return _hash([role, owner, number])


def assign_operator_ids(transformations: Iterable[Transformation]) -> dict[int, OperatorId]:
    """Transformation id -> operator id. Inputs come before their readers.

    Raises GraphError naming both operators when two have one uid (or, at 2^-64, one hash).
    """
    ids: dict[int, OperatorId] = {}
    alike: Counter[str] = Counter()
    owners: dict[OperatorId, Transformation] = {}
    for node in transformations:
        if node.uid_hash is not None:
            operator_id = OperatorId(node.uid_hash)
        elif node.uid is not None:
            operator_id = uid_operator_id(node.uid)
        else:
            signature = _signature(node, ids)
            operator_id = _hash(["structure", signature, alike[signature]])
            alike[signature] += 1
        _claim(owners, operator_id, node)
        ids[node.id] = operator_id
    return ids


def _signature(node: Transformation, ids: Mapping[int, OperatorId]) -> str:
    inputs = [[ids[i.source.id], i.tag, i.port] for i in node.inputs]
    return json.dumps([type(node.spec).__name__, inputs])


def _claim(
    owners: dict[OperatorId, Transformation], operator_id: OperatorId, node: Transformation
) -> None:
    other = owners.setdefault(operator_id, node)
    if other is node:
        return
    if node.uid is not None and node.uid == other.uid:
        raise GraphError(
            f"operators '{other.name}' and '{node.name}' both have the uid '{node.uid}'; "
            "a uid names one operator: give each its own"
        )
    raise GraphError(
        f"operators '{other.name}' and '{node.name}' have the same id {operator_id}; "
        "give one of them a uid(...)"
    )


def _hash(parts: list[object]) -> OperatorId:
    text = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
    return OperatorId(blake2b(text.encode(), digest_size=8).hexdigest())
