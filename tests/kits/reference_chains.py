"""What the kernels of `chains` and `changes` do, in plain Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strom.operators.kernels.change_flags import ALONE, LONE_SHOWN, MATCHED, PAIRS, UNTRACKED

NO_ROW = -1

Change = tuple[int, int, int]
"""Row of the batch, stored row, +1 or -1."""


def chained_pairs(
    probing: Sequence[int],
    stored: Sequence[int],
    born: Sequence[int],
    oldest: Sequence[int],
    latest: Sequence[int],
) -> list[tuple[int, int]]:
    """All (row of `probing`, stored row) of equal slots, the newest stored row first, without those
    of which one had expired for the other."""

    def there(row: int, other: int) -> bool:
        over = bool(born) and born[other] <= oldest[row]
        return not over and not (latest and born[other] >= latest[row])

    return [
        (row, other)
        for row, slot in enumerate(probing)
        for other in reversed(range(len(stored)))
        if slot >= 0 and stored[other] == slot and there(row, other)
    ]


def changes(
    pairs: Sequence[tuple[int, int]],
    retracting: Sequence[bool],
    show: int,
    track: int,
    counts: list[int],
) -> Iterator[Change]:
    """The changes of a whole batch; `counts` is brought up to date."""
    for row, retracts in enumerate(retracting):
        sign = -1 if retracts else 1
        others = [other for probe, other in pairs if probe == row]
        for other in others:
            before = counts[other]
            if track != UNTRACKED:
                counts[other] = max(0, before + sign)
            turn = (before, sign) in ((0, 1), (1, -1))
            change = (NO_ROW, other, -sign if track == LONE_SHOWN else sign)
            if turn and track != UNTRACKED and sign > 0:
                yield change
            if show & PAIRS:
                yield row, other, sign
            if turn and track != UNTRACKED and sign < 0:
                yield change
        if show & (MATCHED if others else ALONE):
            yield row, NO_ROW, sign


def remaining(
    slots: Sequence[int], contents: Sequence[int], retracting: Sequence[bool]
) -> list[int]:
    """Which records of a changelog are left: each retraction takes away the newest equal one."""
    left: list[int] = []
    for row, retracts in enumerate(retracting):
        if not retracts:
            left.append(row)
            continue
        same = [r for r in left if (slots[r], contents[r]) == (slots[row], contents[row])]
        if same:
            left.remove(same[-1])
    return left
