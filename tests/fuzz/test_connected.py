"""The fuzzer of functions of two inputs: some seeds, and that it notices what is wrong."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from amounts import examples, seeds
from strom.operators.connected import broadcast
from strom.operators.rows.timers import Timers
from strom.state.operator_state import OperatorStateBackend
from strom.testing.fuzz.connected.cases import draw_connected
from strom.testing.fuzz.connected.jobs import PLACES, draw_faults, program, reached
from strom.testing.fuzz.connected.model import Model
from strom.testing.fuzz.connected.operators import _Tasks
from strom.testing.fuzz.connected.running import run_connected
from strom.testing.fuzz.raising import ERRORS, Fault, outcome_of
from strom.testing.fuzz.running import Disagreement


def test_every_way_agrees() -> None:
    for seed in seeds(120):
        run_connected(draw_connected(seed))


@pytest.mark.parametrize("seed", range(4))
def test_jobs_agree(seed: int) -> None:
    run_connected(draw_connected(seed), jobs=True)


def test_cases_are_of_many_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [draw_connected(seed) for seed in range(120)]
    assert {(c.broadcast, c.columns, c.state) for c in cases} == {
        (b, c, s) for b in (True, False) for c in (True, False) for s in ("value", "list", "map")
    }
    results = [result for case in cases for result in Model(case).run().items()]
    assert {side for (_, side), _ in results} == {True, False}
    assert sum(len(found) for _, found in results) > 10_000
    parked = []

    def watched(self: Any, ranges: Any) -> None:
        parked.extend(task.busy for task in self._tasks)
        restore(self, ranges)

    restore = _Tasks.restore
    monkeypatch.setattr(_Tasks, "restore", watched)
    run = cases[: examples(len(cases))]
    for case in run:
        run_connected(case)
    assert sum(parked) > len(run) // 6


def failing(seeds: int) -> str:
    """What is said of the first that fails."""
    for seed in range(seeds):
        try:
            run_connected(draw_connected(seed))
        except Disagreement as error:
            return str(error).partition(": ")[0]
    return ""


def test_elements_that_get_ahead_of_what_was_due_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrong(self: Any, batch: Any) -> Any:
        call, collector = self._calls[broadcast.ELEMENTS], self._collector
        return broadcast.each_record(collector, call, "wrong", self._elements, batch)

    operator = broadcast.KeyedBroadcastProcessOperator
    monkeypatch.setattr(operator, "_process_elements", wrong)
    assert failing(20).startswith("seed ")


def test_a_lost_broadcast_state_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any) -> Any:
        snapshot = right(self)
        snapshot._frozen = {}
        return snapshot

    right = OperatorStateBackend.snapshot
    monkeypatch.setattr(OperatorStateBackend, "snapshot", wrong)
    assert failing(20).startswith("seed ")


def test_timers_that_stay_though_deleted_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Timers, "delete_event", lambda self, timestamp, namespace=None: None)
    assert failing(20).startswith("seed ")


def test_faults_are_of_many_kinds_and_are_reached() -> None:
    cases = [draw_connected(seed) for seed in range(300)]
    faults = [(case, fault) for case in cases for fault in draw_faults(case)]
    drawn = {(f.place, f.error, f.once) for _, f in faults}
    assert drawn == {(p, e, o) for p in PLACES for e in ERRORS for o in (True, False)}
    assert {f.place for case, f in faults if reached(case, f)} == set(PLACES)


@pytest.mark.parametrize("place", PLACES[:3])
@pytest.mark.parametrize("broadcast", [True, False])
def test_a_fault_fails_the_job_or_is_made_good(place: str, broadcast: bool) -> None:
    cases = (draw_connected(seed) for seed in range(100))
    case = next(c for c in cases if c.broadcast is broadcast and len(c.records) > 20)
    at = next(r.n for r in case.records if reached(case, Fault(place, "StopIteration", r.n, False)))
    for once in (False, True):
        fault = Fault(place, "StopIteration", at, once)
        found = outcome_of(fault, partial(program, case, fault), 3)
        assert (found is None) == (not once)
