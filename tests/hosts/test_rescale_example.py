"""`python examples/rescale_live.py`: a running job goes from two subtasks to four and to one."""

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

EXAMPLE = Path(strom.__file__).parent / "examples" / "rescale_live.py"


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of():
        yield


def test_the_example(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--seconds", "1.5"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    shown = capsys.readouterr().out
    assert ended.value.code == 0, shown
    found = json.loads(shown.splitlines()[-1])
    assert (found["shops_wrong"], found["restarts"], len(found["silence_ms"])) == (0, 0, 2)
    assert "numbering -> files: 2 -> 4" in shown
    assert "numbering -> files: 4 -> 1" in shown
    assert "s behind" in shown
