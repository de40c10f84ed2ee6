"""The session kernels equal their plain Python twin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_sessions import Sessions
from strom.operators.kernels import sessions as kernel

KEYS = 3
PLACES = 8
ROOM = 400
LOW = -(2**63)
STEP = st.lists(
    st.tuples(st.integers(0, KEYS - 1), st.integers(-40, 80)), min_size=1, max_size=10
) | st.integers(-60, 120)


class Kernels:
    """The arrays, driven as `SessionStore` does, with the records of each slot."""

    def __init__(self, gap: int, lateness: int, width: int) -> None:
        self.rule = gap, lateness, width
        self.sessions = np.full((ROOM, kernel.FIELDS), -1, dtype=np.int64)
        self.head = np.full(KEYS, -1, dtype=np.int64)
        self.ring = np.full(PLACES, -1, dtype=np.int64)
        self.control = np.array([-1, 0, 0, 0], dtype=np.int64)
        self.members: dict[int, set[int]] = defaultdict(set)
        self.place = LOW // width

    def assign(self, keys: Any, times: Any, number: int, watermark: int, gaps: Any = None) -> Any:
        """`gaps`: where they are not all the same."""
        gap, lateness, width = self.rule
        size = len(keys)
        out, touched = np.empty((2, size), dtype=np.int64)
        merged = np.empty(size + int(self.control[kernel.OPEN]), dtype=np.int64)
        counts = np.zeros(3, dtype=np.int64)
        kernel.assign(
            np.array(keys),
            np.array(times),
            np.array(gap if gaps is None else gaps).reshape(-1),
            number,
            lateness,
            watermark,
            width,
            self.sessions,
            self.head,
            self.ring,
            self.control,
            out,
            merged,
            touched,
            counts,
        )
        gone = merged[: counts[0]]
        targets = gone.copy()
        kernel.survivors(self.sessions, targets)
        kernel.survivors(self.sessions, out)
        for source, target in zip(gone.tolist(), targets.tolist(), strict=True):
            self.members[target] |= self.members.pop(source, set())
        for row, slot in enumerate(out.tolist()):
            if slot != kernel.LATE:
                self.members[slot].add(number + row)
        touched = touched[: counts[1]]
        kept = kernel.settle(self.sessions, touched)
        fired = self.faces(touched[:kept])
        kernel.release(self.sessions, self.control, gone)
        late = (out == kernel.LATE).tolist()
        assert sum(late) == counts[2]
        return late, fired

    def take_due(self, watermark: int) -> Any:
        _, lateness, width = self.rule
        place = watermark // width
        places = min(PLACES, place - self.place + 1)
        self.place = place
        firing, ending = np.empty((2, ROOM), dtype=np.int64)
        counts = np.zeros(2, dtype=np.int64)
        kernel.take_due(
            place - places + 1,
            places,
            watermark,
            lateness,
            width,
            self.sessions,
            self.head,
            self.ring,
            self.control,
            firing,
            ending,
            counts,
        )
        over = ending[: counts[1]]
        found = self.faces(firing[: counts[0]]), self.faces(over)
        for slot in over.tolist():
            del self.members[slot]
        kernel.release(self.sessions, self.control, over)
        return found

    def next_end(self) -> int:
        return kernel.next_end(self.place, self.rule[2], self.sessions, self.ring)

    def faces(self, slots: Any) -> Any:
        fields = [kernel.OWNER, kernel.START, kernel.END, kernel.ORDER]
        return sorted(
            (*self.sessions[slot, fields].tolist(), tuple(sorted(self.members[slot])))
            for slot in slots.tolist()
        )


def faces(sessions: Any) -> Any:
    return sorted(session.face for session in sessions)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(STEP, max_size=12),
    st.integers(1, 15),
    st.sampled_from([0, 0, 5, 60]),
    st.integers(1, 9),
)
def test_kernels_equal_their_twin(steps: Any, gap: int, lateness: int, width: int) -> None:
    compare(steps, gap, lateness, width)


MOVE = st.tuples(
    st.integers(0, 4), st.lists(st.tuples(st.integers(0, 1), st.integers(-2, 12)), max_size=3)
)
"""How far the watermark moves, and records with their times from there on."""


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(MOVE, min_size=5, max_size=25), st.integers(2, 8), st.integers(0, 4))
def test_sessions_grow_while_the_watermark_follows_closely(
    moves: Any, gap: int, lateness: int
) -> None:
    """Few places of the wheel are looked at each time: sessions have to be in the right ones."""
    steps: list[Any] = []
    now = 0
    for move, records in moves:
        now += move
        steps.append(now)
        if records:
            steps.append([(key, now + after) for key, after in records])
    compare(steps, gap, lateness, 1)


def compare(steps: Any, gap: int, lateness: int, width: int) -> None:
    """Drive kernels and twin alike; after each step they hold the same."""
    kernels, twin = Kernels(gap, lateness, width), Sessions(lateness)
    watermark, number = LOW, 0
    for step in [*steps, 2**63 - 1]:
        if isinstance(step, int):
            watermark = max(watermark, step)
            assert kernels.take_due(watermark) == tuple(map(faces, twin.take_due(watermark)))
        else:
            keys, times = zip(*step, strict=True)
            late, fired = kernels.assign(keys, times, number, watermark)
            assert late == twin.assign(keys, times, [gap], number, watermark)
            assert fired == faces(twin.settle())
            number += len(step)
        used = int(kernels.control[kernel.USED])
        held = np.flatnonzero(kernels.sessions[:used, kernel.OWNER] >= 0)
        assert kernels.faces(held) == faces(twin.open)
        assert kernels.control[kernel.OPEN] == len(twin.open)
        assert kernels.control[kernel.KEYS] == len({session.key for session in twin.open})
    assert not twin.open


VARYING = st.lists(
    st.tuples(st.integers(0, KEYS - 1), st.integers(-40, 80), st.integers(1, 60)),
    min_size=1,
    max_size=10,
) | st.integers(-60, 120)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(VARYING, max_size=12), st.sampled_from([0, 0, 5]), st.integers(1, 9))
def test_every_record_may_have_a_gap_of_its_own(steps: Any, lateness: int, width: int) -> None:
    """A long gap joins any number of sessions, also such as have fired."""
    kernels, twin = Kernels(1, lateness, width), Sessions(lateness)
    watermark, number = LOW, 0
    for step in [*steps, 2**63 - 1]:
        if isinstance(step, int):
            watermark = max(watermark, step)
            assert kernels.take_due(watermark) == tuple(map(faces, twin.take_due(watermark)))
            if twin.open and not lateness:
                found = kernels.next_end()
                assert watermark < found <= twin.next_end()
                near = twin.next_end() // width < kernels.place + PLACES
                assert found == twin.next_end() or not near
        else:
            keys, times, gaps = zip(*step, strict=True)
            late = kernels.assign(keys, times, number, watermark, gaps)[0]
            assert late == twin.assign(keys, times, gaps, number, watermark)
            twin.settle()
            number += len(step)
        used = int(kernels.control[kernel.USED])
        held = np.flatnonzero(kernels.sessions[:used, kernel.OWNER] >= 0)
        assert kernels.faces(held) == faces(twin.open)
    assert not twin.open


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(STEP, max_size=8), st.lists(STEP, max_size=8), st.sampled_from([0, 12]))
def test_restored_sessions_go_on_as_before(before: Any, after: Any, lateness: int) -> None:
    kernels = Kernels(5, lateness, 3)
    watermark, number = run([kernels], before, LOW, 0)
    other = _restored(kernels)
    other.place = watermark // 3
    run([kernels, other], [*after, 2**63 - 1], watermark, number)


class InParts(Kernels):
    """Fires sessions that are due before `take_due` comes to them, as `SessionStore.fire_some`."""

    def take_due(self, watermark: int) -> Any:
        held = self.sessions[: int(self.control[kernel.USED])]
        waiting = (held[:, kernel.OWNER] >= 0) & (held[:, kernel.STATE] == kernel.WAITING)
        due = np.flatnonzero(waiting & (held[:, kernel.END] - 1 <= watermark))
        held[due, kernel.STATE] = kernel.FIRED
        over = due[held[due, kernel.END] - 1 <= watermark - self.rule[1]]
        fired, ended = self.faces(due), self.faces(over)
        kernel.end_sessions(over, self.sessions, self.head, self.ring, self.control)
        for slot in over.tolist():
            del self.members[slot]
        kernel.release(self.sessions, self.control, over)
        more, others = super().take_due(watermark)
        assert not more
        return fired, sorted([*ended, *others])


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(STEP, max_size=12), st.sampled_from([0, 5, 60]), st.integers(1, 9))
def test_sessions_may_be_ended_one_by_one(steps: Any, lateness: int, width: int) -> None:
    both = [Kernels(5, lateness, width), InParts(5, lateness, width)]
    run(both, [*steps, 2**63 - 1], LOW, 0)
    for kernels in both:
        assert kernels.control[kernel.OPEN] == kernels.control[kernel.KEYS] == 0
        assert (kernels.head == -1).all()
        assert (kernels.ring == -1).all()


class AwayAndBack(Kernels):
    """Before each call some keys leave with all their sessions; who is asked for, or due, is back
    in other slots."""

    def assign(self, keys: Any, times: Any, number: int, watermark: int, gaps: Any = None) -> Any:
        with self.away([key for key in range(KEYS) if key not in keys]):
            return super().assign(keys, times, number, watermark, gaps)

    def take_due(self, watermark: int) -> Any:
        later = [key for key in range(KEYS) if self.first_due(key) > watermark]
        with self.away(later):
            return super().take_due(watermark)

    def first_due(self, key: int) -> int:
        found = self.slots_of([key])
        fired = self.sessions[found, kernel.STATE] == kernel.FIRED
        dues = self.sessions[found, kernel.END] - 1 + self.rule[1] * fired
        return int(dues.min()) if len(dues) else LOW

    def slots_of(self, keys: list[int]) -> Any:
        out = np.empty(int(self.control[kernel.OPEN]), dtype=np.int64)
        count = kernel.sessions_of(np.array(keys, np.int64), self.sessions, self.head, out)
        starts = self.sessions[out[:count], kernel.START]
        owners = self.sessions[out[:count], kernel.OWNER]
        assert (np.diff(starts)[np.diff(owners) == 0] < 0).all(), "the latest of a key comes first"
        return out[:count]

    @contextmanager
    def away(self, keys: list[int]) -> Iterator[None]:
        slots = self.slots_of(keys)
        held = self.sessions[slots].copy()
        members = [self.members.pop(slot) for slot in slots.tolist()]
        kernel.end_sessions(slots, self.sessions, self.head, self.ring, self.control)
        assert (self.head[keys] == -1).all()
        self.sessions[slots] = -1
        kernel.release(self.sessions, self.control, slots)
        yield
        back = np.empty(len(held), dtype=np.int64)
        kernel.take_slots(self.sessions, self.control, back)
        state = [kernel.OWNER, kernel.START, kernel.END, kernel.ORDER, kernel.STATE]
        self.sessions[np.ix_(back, state)] = held[:, state]
        self.members.update(zip(back.tolist(), members, strict=True))
        order = back[np.argsort(held[:, kernel.START], kind="stable")]
        _, lateness, width = self.rule
        kernel.enter(order, lateness, width, self.sessions, self.head, self.ring, self.control)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(STEP, max_size=12), st.sampled_from([0, 5, 60]), st.integers(1, 9))
def test_keys_may_leave_and_come_back(steps: Any, lateness: int, width: int) -> None:
    both = [Kernels(5, lateness, width), AwayAndBack(5, lateness, width)]
    run(both, [*steps, 2**63 - 1], LOW, 0)
    for kernels in both:
        assert kernels.control[kernel.OPEN] == kernels.control[kernel.KEYS] == 0
        assert (kernels.head == -1).all()
        assert (kernels.ring == -1).all()


def run(several: Sequence[Kernels], steps: Any, watermark: int, number: int) -> tuple[int, int]:
    """Drive all alike; they must give the same."""
    for step in steps:
        if isinstance(step, int):
            watermark = max(watermark, step)
            found = [kernels.take_due(watermark) for kernels in several]
        else:
            keys, times = zip(*step, strict=True)
            found = [kernels.assign(keys, times, number, watermark) for kernels in several]
            number += len(step)
        assert found[0] == found[-1]
    return watermark, number


def _restored(kernels: Kernels) -> Kernels:
    gap, lateness, width = kernels.rule
    other = Kernels(gap, lateness, width)
    used = int(kernels.control[kernel.USED])
    held = np.flatnonzero(kernels.sessions[:used, kernel.OWNER] >= 0)
    held = held[np.argsort(kernels.sessions[held, kernel.START])]
    state = [kernel.OWNER, kernel.START, kernel.END, kernel.ORDER, kernel.STATE]
    other.sessions[: len(held), state] = kernels.sessions[np.ix_(held, state)]
    other.control[kernel.USED] = len(held)
    kernel.enter(
        np.arange(len(held)),
        lateness,
        width,
        other.sessions,
        other.head,
        other.ring,
        other.control,
    )
    other.members.update((i, set(kernels.members[slot])) for i, slot in enumerate(held.tolist()))
    return other
