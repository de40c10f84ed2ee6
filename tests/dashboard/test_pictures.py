"""The pictures of the docs: taken of played jobs, the same each time. `make pictures` writes them
to docs/images; as a test they go to a folder of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dashboard_kit import Visit
from played_cluster import SHOP, PlayedCluster
from played_jobs import NOON
from strom.rest.paths import flame_graphs, jobs

pytestmark = [pytest.mark.browser]

STACKS = """
run (threading.py);live (task.py);step (task.py);process (enrich.py);price_of (enrich.py) 212
run (threading.py);live (task.py);step (task.py);process (enrich.py);price_of (enrich.py);__getitem__ (rates/table.py) 148
run (threading.py);live (task.py);step (task.py);process (enrich.py);replace (dataclasses.py);__init__ (orders.py) 131
run (threading.py);live (task.py);step (task.py);process (enrich.py);validated (orders.py);fullmatch (re.py) 97
run (threading.py);live (task.py);step (task.py);emit (writer.py);encode (columns.py);array (pyarrow) 88
run (threading.py);live (task.py);step (task.py);emit (writer.py);route (partitioner.py) 41
run (threading.py);live (task.py);take (intake.py);decode (exchange.py) 63
run (threading.py);live (task.py);take (intake.py);wait (threading.py) 20
run (threading.py);background (snapshots.py);write (storage.py);compress (lz4) 35
"""  # noqa: E501

VERTEX = f"{6:08x}{SHOP[:8]}"

PICTURES = {
    "jobs": "#/jobs",
    "job": f"#/jobs/{SHOP}",
    "vertex": f"#/jobs/{SHOP}/vertices/{VERTEX}",
    "checkpoints": f"#/jobs/{SHOP}/checkpoints",
    "exceptions": f"#/jobs/{SHOP}/exceptions",
    "flamegraph": f"#/jobs/{SHOP}/flamegraph/{4:08x}{SHOP[:8]}",
}

DARK = {"job"}
"""Those that the docs show dark, too."""

MOMENTS = 90 if "STROM_PICTURES" in os.environ else 8
"""Of the charts. A test needs no six minutes."""

STEP_MS = 4_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    wanted = os.environ.get("STROM_PICTURES")
    folder = tmp_path if wanted is None else Path(wanted)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.soak
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures(
    visit: Callable[..., Visit],
    server: Any,
    cluster: PlayedCluster,
    folder: Path,
    theme: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(time_ns=lambda: cluster.now_ms * 1_000_000)
    monkeypatch.setattr(jobs, "time", clock)
    stacks = flame_graphs.stacks_in(STACKS)
    monkeypatch.setattr(flame_graphs, "_sampled_everywhere", lambda processes, kind: stacks)
    monotonic = SimpleNamespace(monotonic=lambda: cluster.now_ms / 1000, **vars(clock))
    monkeypatch.setattr(flame_graphs, "time", monotonic)
    cluster.now_ms = NOON + 600_000
    one = visit(server.url, f"#/jobs/{SHOP}", color_scheme=theme)
    one.page.locator(".card").first.wait_for()
    # As if the page had been open for six minutes, without the waiting.
    for _ in range(MOMENTS):
        cluster.now_ms += STEP_MS
        one.refresh()
    for name, path in PICTURES.items():
        if theme == "dark" and name not in DARK:
            continue
        one.go(path)
        one.refresh()
        if name == "vertex":
            cluster.now_ms += STEP_MS
            one.refresh()
        if name == "flamegraph":
            one.page.get_by_label("Subtask").select_option("1")
            one.page.get_by_role("button", name="Take samples").click()
            one.page.locator(".flame").wait_for()
        one.page.mouse.move(0, 0)
        one.page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
        picture = folder / f"dashboard-{name}{'-dark' if theme == 'dark' else ''}.png"
        one.page.screenshot(path=picture, full_page=name != "jobs")
        assert picture.stat().st_size > 20_000
