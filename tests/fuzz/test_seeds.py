"""The fuzzer: a few seeds of it, and that it notices what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amounts import seeds
from strom.core.batch import ObjectBatch
from strom.core.row import make_row
from strom.operators.aggregates.flat import Extreme
from strom.operators.rows.functions import MapOperator
from strom.testing.fuzz.__main__ import main
from strom.testing.fuzz.asking import asking_of
from strom.testing.fuzz.cases import Table, Windows
from strom.testing.fuzz.drawing import draw_case
from strom.testing.fuzz.limits import LIMITS, known_limits, small_limits
from strom.testing.fuzz.operators import columnar, on_operator
from strom.testing.fuzz.poison import PLACES as POISONED
from strom.testing.fuzz.poison import poison_of
from strom.testing.fuzz.raising import ERRORS, PLACES, Fault, draw_faults, results_after
from strom.testing.fuzz.running import Disagreement, run_case
from strom.testing.fuzz.subtasks import Subtasks

SLOW = {29}
"""Of which a watermark makes thousands of windows fire: as long as all others together."""


@pytest.mark.parametrize("part", range(4))
def test_every_way_agrees(part: int) -> None:
    for seed in seeds(40)[part::4]:
        run_case(draw_case(40 + seed if seed in SLOW else seed))


def test_means_of_whole_numbers_agree_whatever_cancels() -> None:
    """Sums of floats did not."""
    run_case(draw_case(917_458))


@pytest.mark.parametrize("seed", [*range(60, 64), 308, 2759])
def test_jobs_agree(seed: int) -> None:
    """In the last two, a record that is as far behind others as any begins where a session ends."""
    run_case(draw_case(seed), jobs=True)


@pytest.mark.parametrize("how", ["ordered", "unordered", "batches"])
def test_jobs_that_ask_a_server_agree(how: str) -> None:
    """The first seed whose records go by way of a server."""
    seed = next(seed for seed in range(1000) if asking_of(draw_case(seed)) == how)
    run_case(draw_case(seed), jobs=True)


def test_a_seed_is_a_case_for_ever() -> None:
    for seed in range(20):
        one, other = draw_case(seed), draw_case(seed)
        assert one.describe() == other.describe()
        assert repr(one.records) == repr(other.records)


def test_limits_are_where_they_were() -> None:
    """A limit that moved is no limit any more: say so in `testing/fuzz/limits.py`."""
    assert len(list(known_limits())) == sum(map(len, LIMITS.values()))


def test_cases_are_of_many_kinds() -> None:
    cases = [draw_case(seed) for seed in range(300)]
    windows = [c.operation for c in cases if isinstance(c.operation, Windows)]
    assert len({type(w.assigner) for w in windows}) >= 7
    assert {w.what for w in windows} == {"aggregate", "extreme", "top_n"}
    tables = [c.operation for c in cases if isinstance(c.operation, Table)]
    assert {t.what for t in tables} == {"aggregate", "top_n", "deduplicate", "over", "rolling"}
    assert any(c.changelog for c in cases)
    assert len({type_ for c in cases for type_ in c.data.schema.types}) > 25


def test_some_snapshots_are_taken_in_the_middle_of_a_firing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parked: set[str] = set()

    def watched(self: Subtasks, *args: Any) -> None:
        before = self.parked
        cut_off(self, *args)
        if self.parked > before:
            parked.update(type(operator).__name__ for operator in self.operators())

    cut_off = Subtasks.watermark_cut_off
    monkeypatch.setattr(Subtasks, "watermark_cut_off", watched)
    for seed in range(600):
        case = draw_case(seed)
        windows = isinstance(case.operation, Windows)
        if case.tight and (seed < 60 if windows else case.operation.what == "over"):
            with small_limits(case.tight):
                on_operator(case, columnar(case), cuts=True)
    assert {"WindowOperator", "OverOperator"} <= parked


def test_a_wrong_result_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys get each other's extremes; the seed is printed and fails again."""

    def wrong(self, table, at=None):
        count = len(table) if at is None else len(at)
        return right(self, table, at).take(np.roll(np.arange(count), 1))

    right = Extreme.result
    monkeypatch.setattr(Extreme, "result", wrong)
    assert main(["--start", "8", "--seeds", "60", "--jobs-every", "0", "--fail-fast"]) == 1
    output = capsys.readouterr().out
    seed = int(output.rpartition("failed: [")[2].rstrip("]\n"))
    assert f"seed {seed}: " in output
    with pytest.raises(Disagreement, match=f"seed {seed}: "):
        run_case(draw_case(seed))


def test_faults_are_of_many_kinds() -> None:
    faults = [fault for seed in range(400) for fault in draw_faults(draw_case(seed))]
    assert {(f.place, f.error) for f in faults} == {(p, e) for p in PLACES for e in ERRORS}
    assert {f.once for f in faults} == {True, False}
    again = [fault for seed in range(20) for fault in draw_faults(draw_case(seed))]
    drawn = [(f.place, f.error, f.at, f.once) for f in faults[:40]]
    assert drawn == [(f.place, f.error, f.at, f.once) for f in again]


def test_poison_is_of_all_kinds() -> None:
    places = [poison_of(draw_case(seed)) for seed in range(400)]
    assert set(places) == {"", *POISONED}
    assert places.count("") < 300


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("once", [False, True])
def test_a_fault_is_reached_wherever_it_is(place: str, once: bool) -> None:
    case = draw_case(9)
    fault = Fault(place, "StopIteration", 1, once)
    lanes = [[make_row(tuple(case.data.schema.names), tuple(r.values())) for r in case.records]]
    times = case.data.column("ts").to_pylist()
    counts: list[int] = []
    forget = Fault.forget
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fault, "forget", lambda self: counts.append(self.raised) or forget(self))
        found = results_after(case, fault, lanes, max(times) - min(times))
    assert (found is None) == (not once)
    assert counts[0] >= 1


def test_records_that_are_lost_behind_a_fault_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The map as it was once: the end of an iterator is the end of the batch."""

    def wrong(self, batch, port=0):
        values = list(map(self._function.call, batch.rows()))
        self._emit(ObjectBatch(values, batch.timestamps[: len(values)]))

    monkeypatch.setattr(MapOperator, "process", wrong)
    case = draw_case(9)
    lanes = [[make_row(tuple(case.data.schema.names), tuple(r.values())) for r in case.records]]
    with pytest.raises(AssertionError, match="the job finished with"):
        results_after(case, Fault("map", "StopIteration", 1, False), lanes, 10**15)
