"""A firing that pauses where state says what is left: a snapshot at each such pause, restored in
one subtask and in two, goes on with exactly what is missing.

    before ─ watermark `fire` ─┬─ ... pauses ... ─ after          as if nothing had happened
                               ╰─ snapshot ─ restored ─ after     each result once
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from strom.core.batch import Batch
from strom.core.ids import KeyGroupRange
from strom.core.keys import KeySelector
from strom.state.key_groups import key_group
from strom.testing.operator_harness import OperatorHarness, regroup

GROUPS = 16
RANGES = (
    [KeyGroupRange(0, GROUPS - 1)],
    [KeyGroupRange(0, 6), KeyGroupRange(7, GROUPS - 1)],
)

Push = tuple[int, Batch] | int
"""A batch for a port, or a watermark."""

MOST = 400
"""Pauses that a firing may have."""


def run(harness: OperatorHarness, pushes: Sequence[Push]) -> None:
    for push in pushes:
        if isinstance(push, int):
            harness.watermark(push)
        else:
            harness.push(push[1], port=push[0])


def of_groups(pushes: Sequence[Push], keys: KeySelector, groups: KeyGroupRange) -> list[Push]:
    """What a subtask of these key groups gets."""
    mine: list[Push] = []
    for push in pushes:
        if isinstance(push, int):
            mine.append(push)
            continue
        port, batch = push
        held = [key_group(key, GROUPS) in groups for key in keys.keys(batch)]
        mine.append((port, batch.take(np.flatnonzero(held))))
    return mine


def check_pauses(
    make: Callable[..., OperatorHarness],
    keys: KeySelector,
    before: Sequence[Push],
    fire: int,
    after: Sequence[Push],
    in_order_of: Callable[[Any], Any] | None = None,
) -> int:
    """At how many pauses snapshots could be taken. `make`: a harness with these settings, of GROUPS
    key groups. `in_order_of`: the key of a result; those of one key must come in order."""

    def outcome(harnesses: Sequence[OperatorHarness]) -> Counter[Any] | dict[Any, list[Any]]:
        rows = [_hashable(pair) for harness in harnesses for pair in harness.stamped_outputs()]
        if in_order_of is None:
            return Counter(rows)
        by_key: dict[Any, list[Any]] = {}
        for row in rows:
            by_key.setdefault(in_order_of(row[0]), []).append(row)
        return by_key

    whole = make()
    run(whole, [*before, fire, *after])
    expected, late = outcome([whole]), whole.metrics.counts
    settled = 0
    for pause in range(MOST):
        first = make()
        run(first, before)
        first.pausing = True
        first.watermark(fire)
        first.resume(pause)
        if not first.busy:
            break
        assert fire not in [getattr(c, "timestamp", None) for c in first.controls()]
        if not first.settled:
            continue
        settled += 1
        snapshot = first.snapshot()
        taken = list(first.output.elements)
        for ranges in RANGES:
            made = []
            for groups in ranges:
                second = make(restored=regroup([snapshot], groups), key_groups=groups)
                run(second, of_groups(after, keys, groups))
                made.append(second)
            first.output.elements = list(taken)
            assert outcome([first, *made]) == expected, (pause, ranges)
            counts: Counter[str] = Counter(first.metrics.counts)
            for second in made:
                counts.update(second.metrics.counts)
            assert counts == late, (pause, ranges)
        _check_paused_again(make, first, after, lambda done: outcome(done) == expected)
        first.output.elements = list(taken)
        first.resume(None)
        first.pausing = False
        run(first, after)
        assert outcome([first]) == expected, "the snapshot changed nothing"
    assert pause < MOST - 1
    return settled


def _check_paused_again(
    make: Callable[..., OperatorHarness],
    first: OperatorHarness,
    after: Sequence[Push],
    right: Callable[[Sequence[OperatorHarness]], bool],
) -> None:
    """The restored one goes on because it asked to be woken, and pauses in its turn; a snapshot
    then, restored once more, is as good. A batch that it is given first is in no state."""
    taken, whole = list(first.output.elements), RANGES[0][0]
    second = make(restored=regroup([first.snapshot()], whole))
    second.pausing = True
    second.advance_processing_time(second.clock.now_ms())
    if second.busy and second.settled:
        third = make(restored=regroup([second.snapshot()], whole))
        run(third, after)
        assert right([first, second, third])
    other = make(restored=regroup([first.snapshot()], whole))
    other.pausing = True
    run(other, after[:1])
    while other.busy:
        assert isinstance(after[0], int) or not other.settled, "a batch is in no state"
        other.resume()
    first.output.elements = taken


def _hashable(pair: tuple[Any, Any]) -> tuple[Any, Any]:
    row, stamp = pair
    return (tuple(row) if isinstance(row, (tuple, list)) else row), stamp
