"""A fixture for users' tests: in a `conftest.py`

    pytest_plugins = "strom.testing.pytest_plugin"

and a test that asks for `simulate` runs a pipeline under crashes, as `strom.testing.simulate` does:

    def test_totals(simulate):
        simulate(totals)

`pytest --simulate-seeds 1000` runs more seeds, `--simulate-replay "seed=7 ..."` one case.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import pytest

from .probes import Build
from .simulation.draws import Faults
from .simulation.running_seeds import Totals
from .simulation.user_jobs import CheckOutput
from .simulation.user_jobs import simulate as simulated


class Simulate(Protocol):
    """What the fixture is: see `strom.testing.simulate`."""

    def __call__(
        self,
        job: Build,
        seeds: int | Iterable[int] = 100,
        faults: Faults | None = None,
        check: CheckOutput | None = None,
    ) -> Totals: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("strom")
    group.addoption(
        "--simulate-seeds", type=int, metavar="N", help="how many seeds each simulation runs"
    )
    group.addoption(
        "--simulate-replay", metavar="CASE", help="run only this case, as a failure printed it"
    )


@pytest.fixture
def simulate(request: pytest.FixtureRequest) -> Simulate:
    """Runs a pipeline under crashes; the command line may say how many seeds, or which case."""
    said: Any = request.config.getoption
    seeds_said: int | None = said("--simulate-seeds")
    replay: str | None = said("--simulate-replay")

    def run(
        job: Build,
        seeds: int | Iterable[int] = 100,
        faults: Faults | None = None,
        check: CheckOutput | None = None,
    ) -> Totals:
        chosen = seeds if seeds_said is None else seeds_said
        return simulated(job, chosen, faults, check, replay)

    return run
