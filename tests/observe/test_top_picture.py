"""The picture of `strom top` in the docs: of a played job, the same each time. `make pictures`
writes it to docs/images; as a test it goes to a folder of its own."""

from __future__ import annotations

import io
import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import strom
from played_cluster import SHOP, SHOP_VERTICES
from played_jobs import NOON, PlayedJob
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from strom.observe import top
from strom.observe.live import Rates

NAME = "strom-top.svg"
COMMITTED = Path(strom.__file__).parent / "docs" / "images" / NAME

FONTS = 'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace'
"""What a system has: pictures load nothing."""


def metrics_of(job: PlayedJob, now_ms: int) -> dict[str, Any]:
    """What a client of the played job would tell."""
    view: Any = job.view(now_ms)
    last = view["checkpoints"]["latest_completed"]
    return {
        "state": view["status"],
        "restarts": view["restarts"],
        "last_failure": None,
        "checkpoints": {
            "completed": view["checkpoints"]["completed"],
            "failed": view["checkpoints"]["failed"],
            "last_duration_ms": last["ended_ms"] - last["triggered_ms"],
            "last_size": last["size"],
        },
        "exchange": {
            "in_flight_bytes": sum(task["metrics"]["inFlightBytes"] for task in view["tasks"])
        },
        "operators": [operator_of(vertex, view["tasks"]) for vertex in view["vertices"]],
        "tasks": [
            {
                "vertex": task["vertex"],
                "name": next(v["name"] for v in view["vertices"] if v["id"] == task["vertex"]),
                "subtask": task["subtask"],
                "state": task["status"].lower(),
                "times": task["metrics"],
                "peak_rss_bytes": task["process"]["peak_rss_bytes"],
            }
            for task in view["tasks"]
        ],
    }


def operator_of(vertex: dict[str, Any], tasks: list[dict[str, Any]]) -> dict[str, Any]:
    found = [task["metrics"] for task in tasks if task["vertex"] == vertex["id"]]
    (mark, *_) = [name for name in found[0] if name.endswith(".currentOutputWatermark")]
    return {
        "id": vertex["id"],
        "name": vertex["name"],
        "parallelism": vertex["parallelism"],
        "records_in": sum(one["numRecordsIn"] for one in found),
        "records_out": sum(one["numRecordsOut"] for one in found),
        "watermark": min(one[mark] for one in found),
    }


def picture() -> str:
    job, rates = PlayedJob(SHOP, "orders", SHOP_VERTICES, restarts=1), Rates()
    for now_ms in (NOON + 600_000, NOON + 601_000):
        found = top.figures(metrics_of(job, now_ms), rates, now_ms / 1000, now_ms)
    console = Console(file=io.StringIO(), record=True, width=112, force_terminal=True)
    console.print(top.render(found, f"job {SHOP}"))
    faces, style = CONSOLE_SVG_FORMAT.index("@font-face"), CONSOLE_SVG_FORMAT.index("    .{unique_")
    form = CONSOLE_SVG_FORMAT[:faces] + CONSOLE_SVG_FORMAT[style:].replace("Fira Code", FONTS)
    title = f"strom top {SHOP}"
    return console.export_svg(title=title, code_format=form, unique_id="top")


def words(svg: str) -> list[str]:
    """What is written in it."""
    return [text for one in ElementTree.fromstring(svg).itertext() if (text := one.strip())][1:]


def test_picture(tmp_path: Path) -> None:
    place = Path(os.environ.get("STROM_PICTURES", tmp_path)) / NAME
    place.write_text(picture())
    svg = place.read_text()
    assert words(COMMITTED.read_text()) == words(svg), "make pictures"
    assert "match payments" in " ".join(words(svg)).replace("\N{NO-BREAK SPACE}", " ")
    for loads in ("url(", "@import", "href", "@font-face"):
        assert loads not in svg.replace("url(#top-", "")
        assert loads not in COMMITTED.read_text().replace("url(#top-", "")
