"""`python examples/autoscale_live.py`: a job has fewer and more subtasks by itself."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import strom
from shared_ray import ray_of

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

EXAMPLE = Path(strom.__file__).parent / "examples" / "autoscale_live.py"


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of():
        yield


def test_the_example(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    shown = capsys.readouterr().out
    assert ended.value.code == 0, shown
    found = json.loads(shown.splitlines()[-1])
    assert (found["shops_wrong"], found["restarts"]) == (0, 0), shown
    assert min(found["up"], found["down"]) > 0, shown
    assert "are to be handled, one subtask does" in shown
