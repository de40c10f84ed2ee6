"""Session intervals of all keys in one array: records in, intervals that grow and meet, and a wheel
of due times.

`sessions[slot]` is one cache line. Five words are state: START, END (exclusive), OWNER (its key),
ORDER (number of the record that last changed the bounds), STATE. The others are found again from
them: NEXT (the key's next older session), and AFTER, BEFORE (neighbours in the wheel). `head[key]`
is the key's latest session. A key's sessions are disjoint, do not touch, and are chained from the
latest to the earliest: a record in order of time meets its session at once, one that comes late
walks past those after it. -1 ends every chain.

The wheel: `ring[(due // width) % len(ring)]` chains the sessions that are to be looked at then. A
session that grows stays where it is and is moved when its place comes up, so it moves at most once
per gap and not once per record. Invariant: no session's place comes after its due time.

`control` is int64[4]: FREE (chain of free slots through NEXT), USED (slots ever used), OPEN (open
sessions), KEYS (keys with open sessions). A slot whose session merged into another or ended stays
taken until `release`: what is stored under it has to be moved first.

`reference_sessions` says the same in plain Python.
"""

from __future__ import annotations

from typing import Any

from ...core.native import Array, int64, njit, void
from .signatures import INTS, INTS_IN, OPTIONS

START, END, OWNER, ORDER, STATE, NEXT, AFTER, BEFORE = range(8)
FIELDS = 8
WAITING, FIRED, TOUCHED, MERGED = range(4)
"""STATE. TOUCHED: a record came behind the window's end, it has to fire now. MERGED: NEXT is the
session that took it over."""

FREE, USED, OPEN, KEYS = range(4)
LATE = -1
MAX_TIMESTAMP = 2**63 - 1

TABLE = Array(int64, 2, "C")


@njit(inline="always")
def _last(end: int, lateness: int) -> int:
    """The watermark at which a session with this end is over."""
    return end - 1 + lateness if end - 1 <= MAX_TIMESTAMP - lateness else MAX_TIMESTAMP


@njit(inline="always")
def _link(sessions: Any, ring: Any, width: int, slot: int, due: int) -> None:
    place = (due // width) % ring.size
    first = ring[place]
    sessions[slot, AFTER] = first
    sessions[slot, BEFORE] = -1 - place
    if first >= 0:
        sessions[first, BEFORE] = slot
    ring[place] = slot


@njit(inline="always")
def _unlink(sessions: Any, ring: Any, slot: int) -> None:
    before = sessions[slot, BEFORE]
    after = sessions[slot, AFTER]
    if before < 0:
        ring[-1 - before] = after
    else:
        sessions[before, AFTER] = after
    if after >= 0:
        sessions[after, BEFORE] = before


@njit(inline="always")
def _open(sessions: Any, head: Any, control: Any, key: int, newer: int) -> int:
    """A slot for a new session of the key, chained behind `newer` (-1: as the latest)."""
    slot = control[FREE]
    if slot >= 0:
        control[FREE] = sessions[slot, NEXT]
    else:
        slot = control[USED]
        control[USED] += 1
    control[OPEN] += 1
    if newer >= 0:
        sessions[slot, NEXT] = sessions[newer, NEXT]
        sessions[newer, NEXT] = slot
    else:
        control[KEYS] += head[key] < 0
        sessions[slot, NEXT] = head[key]
        head[key] = slot
    sessions[slot, OWNER] = key
    return slot  # type: ignore[no-any-return]


@njit(
    [
        void(
            *[INTS_IN, INTS_IN, INTS_IN, int64, int64, int64, int64],
            *[TABLE, INTS, INTS, INTS, INTS, INTS, INTS, INTS],
        )
    ],
    **OPTIONS,
)
def assign(
    keys: Any,
    times: Any,
    gaps: Any,
    number: int,
    lateness: int,
    watermark: int,
    width: int,
    sessions: Any,
    head: Any,
    ring: Any,
    control: Any,
    out: Any,
    merged: Any,
    touched: Any,
    counts: Any,
) -> None:
    """out[i] = the slot of the session that row i is part of after the last row, LATE if none.

    gaps: one for each row, or a single one for all.
    merged: slots whose contents belong to the session `survivors` finds; touched: those that may
    have to fire now; counts = [number of merged, of touched, of late rows]. `out` and `touched`
    have room for one entry per row, `merged` for that and one per open session; `sessions` has room
    for one more session per row."""
    merges = 0
    touches = 0
    late = 0
    each = 0 if gaps.size == 1 else 1
    for i in range(keys.size):
        low = times[i]
        high = low + gaps[each * i]
        key = keys[i]
        newer = -1
        at = head[key]
        while at >= 0 and sessions[at, START] > high:
            newer = at
            at = sessions[at, NEXT]
        if at < 0 or sessions[at, END] < low:
            last = _last(high, lateness)
            if last <= watermark:
                out[i] = LATE
                late += 1
                continue
            at = _open(sessions, head, control, key, newer)
            sessions[at, START] = low
            sessions[at, END] = high
            sessions[at, ORDER] = number + i
            sessions[at, STATE] = WAITING
            _link(sessions, ring, width, at, last if high - 1 <= watermark else high - 1)
        else:
            if low < sessions[at, START]:
                sessions[at, START] = low
                sessions[at, ORDER] = number + i
                older = sessions[at, NEXT]
                while older >= 0 and sessions[older, END] >= low:
                    sessions[at, START] = min(low, sessions[older, START])
                    sessions[at, NEXT] = sessions[older, NEXT]
                    _unlink(sessions, ring, older)
                    sessions[older, STATE] = MERGED
                    sessions[older, NEXT] = at
                    control[OPEN] -= 1
                    merged[merges] = older
                    merges += 1
                    older = sessions[at, NEXT]
            if high > sessions[at, END]:
                sessions[at, END] = high
                sessions[at, ORDER] = number + i
        out[i] = at
        if sessions[at, END] - 1 <= watermark:
            if sessions[at, STATE] != TOUCHED:
                sessions[at, STATE] = TOUCHED
                touched[touches] = at
                touches += 1
        elif sessions[at, STATE] != WAITING:
            sessions[at, STATE] = WAITING
            _unlink(sessions, ring, at)
            _link(sessions, ring, width, at, sessions[at, END] - 1)
    counts[0] = merges
    counts[1] = touches
    counts[2] = late


@njit([int64(INTS_IN, TABLE, INTS, INTS, INTS)], **OPTIONS)
def writable(keys: Any, sessions: Any, head: Any, control: Any, out: Any) -> int:
    """The slots that `assign` may write of those used before: the open sessions of these keys, each
    as often as its key, and as many free slots. Returns how many, -1 if `out` is too small."""
    count = 0
    free = control[FREE]
    for i in range(keys.size):
        at = head[keys[i]]
        while at >= 0:
            if count == out.size:
                return -1
            out[count] = at
            count += 1
            at = sessions[at, NEXT]
        if free >= 0:
            if count == out.size:
                return -1
            out[count] = free
            count += 1
            free = sessions[free, NEXT]
    return count


@njit([int64(int64, int64, TABLE, INTS, INTS)], **OPTIONS)
def sessions_at(first: int, places: int, sessions: Any, ring: Any, out: Any) -> int:
    """The sessions in `places` places of the ring from place `first` on; what `take_due` may write.
    `out` has room for all open sessions. Returns how many."""
    count = 0
    for step in range(places):
        at = ring[(first + step) % ring.size]
        while at >= 0:
            out[count] = at
            count += 1
            at = sessions[at, AFTER]
    return count


@njit([void(TABLE, INTS)], **OPTIONS)
def survivors(sessions: Any, slots: Any) -> None:
    """Replace slots of merged sessions by those that took them over. Negative slots stay."""
    for i in range(slots.size):
        slot = slots[i]
        while slot >= 0 and sessions[slot, STATE] == MERGED:
            slot = sessions[slot, NEXT]
        slots[i] = slot


@njit([int64(TABLE, INTS)], **OPTIONS)
def settle(sessions: Any, touched: Any) -> int:
    """Keep those that still have to fire, now that the batch is over, and take them for fired.
    Returns how many."""
    kept = 0
    for i in range(touched.size):
        slot = touched[i]
        if sessions[slot, STATE] == TOUCHED:
            sessions[slot, STATE] = FIRED
            touched[kept] = slot
            kept += 1
    return kept


@njit(inline="always")
def _close(sessions: Any, head: Any, control: Any, slot: int) -> None:
    """Take a session out of its key's chain."""
    key = sessions[slot, OWNER]
    at = head[key]
    if at == slot:
        head[key] = sessions[slot, NEXT]
        control[KEYS] -= head[key] < 0
    else:
        while sessions[at, NEXT] != slot:
            at = sessions[at, NEXT]
        sessions[at, NEXT] = sessions[slot, NEXT]
    control[OPEN] -= 1


@njit(
    [void(int64, int64, int64, int64, int64, TABLE, INTS, INTS, INTS, INTS, INTS, INTS)], **OPTIONS
)
def take_due(
    first: int,
    places: int,
    watermark: int,
    lateness: int,
    width: int,
    sessions: Any,
    head: Any,
    ring: Any,
    control: Any,
    firing: Any,
    ending: Any,
    counts: Any,
) -> None:
    """Sessions to fire at this watermark, and those that are over; counts = [fire, over].

    Looks at `places` places of the ring from place `first` on. A session over is taken out of
    everything but keeps slot, bounds and owner until `release`."""
    fires = 0
    ends = 0
    for step in range(places):
        place = (first + step) % ring.size
        at = ring[place]
        while at >= 0:
            after = sessions[at, AFTER]
            last = _last(sessions[at, END], lateness)
            due = last if sessions[at, STATE] == FIRED else sessions[at, END] - 1
            if due <= watermark:
                if sessions[at, STATE] != FIRED:
                    sessions[at, STATE] = FIRED
                    firing[fires] = at
                    fires += 1
                due = last
                if last <= watermark:
                    ending[ends] = at
                    ends += 1
                    _unlink(sessions, ring, at)
                    _close(sessions, head, control, at)
            if due > watermark and (due // width) % ring.size != place:
                _unlink(sessions, ring, at)
                _link(sessions, ring, width, at, due)
            at = after
    counts[0] = fires
    counts[1] = ends


@njit([void(INTS_IN, TABLE, INTS, INTS, INTS)], **OPTIONS)
def end_sessions(slots: Any, sessions: Any, head: Any, ring: Any, control: Any) -> None:
    """These sessions are over: they are taken out of everything as `take_due` does it."""
    for i in range(slots.size):
        _unlink(sessions, ring, slots[i])
        _close(sessions, head, control, slots[i])


@njit([int64(int64, int64, TABLE, INTS)], **OPTIONS)
def next_end(first: int, width: int, sessions: Any, ring: Any) -> int:
    """The least END - 1 of sessions none of which has fired; where all lie beyond the ring, a time
    before it, from which to look again. `first`: place of the last watermark, which `take_due`
    has seen. Moves sessions that have grown."""
    for step in range(ring.size):
        place = (first + step) % ring.size
        least = MAX_TIMESTAMP
        at = ring[place]
        while at >= 0:
            after = sessions[at, AFTER]
            due = sessions[at, END] - 1
            if due // width == first + step:
                least = min(least, due)
            elif (due // width) % ring.size != place:
                _unlink(sessions, ring, at)
                _link(sessions, ring, width, at, due)
            at = after
        if least < MAX_TIMESTAMP:
            return least
    return (first + ring.size) * width  # type: ignore[no-any-return]


@njit([void(TABLE, INTS, INTS_IN)], **OPTIONS)
def release(sessions: Any, control: Any, slots: Any) -> None:
    """Slots of merged or ended sessions are free again."""
    for i in range(slots.size):
        slot = slots[i]
        sessions[slot, OWNER] = -1
        sessions[slot, NEXT] = control[FREE]
        control[FREE] = slot


@njit([int64(INTS_IN, TABLE, INTS, INTS)], **OPTIONS)
def sessions_of(keys: Any, sessions: Any, head: Any, out: Any) -> int:
    """The sessions of these keys (distinct), of each from the latest to the earliest. `out` has
    room for all open sessions. Returns how many."""
    count = 0
    for i in range(keys.size):
        at = head[keys[i]]
        while at >= 0:
            out[count] = at
            count += 1
            at = sessions[at, NEXT]
    return count


@njit([void(TABLE, INTS, INTS)], **OPTIONS)
def take_slots(sessions: Any, control: Any, out: Any) -> None:
    """Slots for sessions that `enter` opens next: free ones, and then new ones."""
    for i in range(out.size):
        slot = control[FREE]
        if slot >= 0:
            control[FREE] = sessions[slot, NEXT]
        else:
            slot = control[USED]
            control[USED] += 1
        out[i] = slot


@njit([void(INTS_IN, int64, int64, TABLE, INTS, INTS, INTS)], **OPTIONS)
def enter(
    slots: Any, lateness: int, width: int, sessions: Any, head: Any, ring: Any, control: Any
) -> None:
    """Chain the sessions in these slots, which are in ascending order of start, of keys that have
    no others. The first five words of each are set."""
    control[OPEN] += slots.size
    for i in range(slots.size):
        at = slots[i]
        key = sessions[at, OWNER]
        control[KEYS] += head[key] < 0
        sessions[at, NEXT] = head[key]
        head[key] = at
        end = sessions[at, END]
        due = _last(end, lateness) if sessions[at, STATE] == FIRED else end - 1
        _link(sessions, ring, width, at, due)
