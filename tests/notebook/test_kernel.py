"""A notebook in a real Jupyter kernel, cell by cell: what its outputs hold at the end."""

from __future__ import annotations

import base64
import re
from typing import Any
from xml.etree import ElementTree

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [pytest.mark.slow]

PROGRAM = """
from datetime import timedelta
from strom import DiscardSink, StreamExecutionEnvironment, TumblingEventTimeWindows
from strom import WatermarkStrategy, sum_
from strom.connectors.datagen import NumberSequenceSource

env = StreamExecutionEnvironment.get_execution_environment()
rows = [{"shop": shop, "at": 1000 * n, "sold": n % 7} for n in range(60) for shop in ("a", "<b>")]
times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")
sold = (
    env.from_collection(rows)
    .assign_timestamps_and_watermarks(times)
    .key_by("shop")
    .window(TumblingEventTimeWindows.of(timedelta(seconds=10)))
    .aggregate(sold=sum_("sold"))
)
"""

CELLS = {
    "program": PROGRAM,
    "stream": "sold",
    "environment": "env",
    "show": "sold.show(3)",
    "sink": "sold.sink_to(DiscardSink()).name('the end')",
    "job graph": "env.get_job_graph()",
    "loaded": "import sys; sorted({'matplotlib', 'ray'} & set(sys.modules))",
    "plot": "sold.plot('window_end', 'sold', by='shop', title='sold in ten seconds')",
    "fails": "sold.map(lambda row: 1 // 0).show()",
    "run": "client = env.execute_async(); client.show(timedelta(milliseconds=50))",
    "client": "client",
    "beside": """
env.from_source(NumberSequenceSource(0, 2**62)).sink_to(DiscardSink())
client = env.execute_async()
client.show(timedelta(milliseconds=50), wait=False)
""",
    "cancel": """
import threading
client.cancel()
for one in threading.enumerate():
    if one.name == "strom-show":
        one.join(120)
""",
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Of each cell, by its name."""
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in CELLS.values()]
    notebook.cells[list(CELLS).index("fails")].metadata["tags"] = ["raises-exception"]
    with pytest.MonkeyPatch.context() as patched:
        for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
            patched.setenv(name, str(folder / name.lower()))
        where = {"metadata": {"path": str(folder)}}
        NotebookClient(notebook, timeout=300, startup_timeout=300, resources=where).execute()
    nbformat.validate(notebook)
    return dict(zip(CELLS, (cell.outputs for cell in notebook.cells), strict=True))


def only(outputs: list[Any]) -> dict[str, str]:
    """What the one output of a cell holds, by MIME type."""
    (one,) = outputs
    return dict(one.data)


def graph(outputs: list[Any]) -> list[str]:
    """The texts of the cards and lines of a graph."""
    html = only(outputs)["text/html"]
    (svg,) = re.findall(r"<svg.*</svg>", html, re.DOTALL)
    space = "{http://www.w3.org/2000/svg}"
    return [str(one.text) for one in ElementTree.fromstring(svg).iter(f"{space}text")]


def test_graphs(outputs: dict[str, list[Any]]) -> None:
    for cell in ("stream", "environment", "sink", "job graph"):
        texts = graph(outputs[cell])
        assert {"Source: Collection", "HASH(shop)", "kernel: sliced windows"} <= set(texts)
        assert ("the end" in texts) == (cell in ("sink", "job graph"))


def test_show(outputs: dict[str, list[Any]]) -> None:
    shown = only(outputs["show"])
    assert "&lt;b&gt;" in shown["text/html"]
    assert "<b>" not in shown["text/html"]
    assert "<b>" in shown["text/plain"]
    assert "\x1b" not in shown["text/plain"]
    for text in shown.values():
        assert "the first 3 records" in text


def test_plot(outputs: dict[str, list[Any]]) -> None:
    """One output, and no second one of a figure that the cell returns."""
    plot = only(outputs["plot"])
    assert base64.b64decode(plot["image/png"]).startswith(b"\x89PNG")
    assert plot["text/plain"] == "<plot of sold by window_end: 12 points>"
    assert only(outputs["loaded"])["text/plain"] == "[]", "it is loaded where it is used"


def test_what_failed(outputs: dict[str, list[Any]]) -> None:
    shown, error = outputs["fails"]
    assert "no records so far" in shown.data["text/html"]
    assert error.ename == "JobFailedError"
    assert "ZeroDivisionError" in error.evalue


@pytest.mark.parametrize(
    ("cell", "state"), [("run", "FINISHED"), ("client", "FINISHED"), ("beside", "CANCELED")]
)
def test_live_tables_end_with_the_job(outputs: dict[str, list[Any]], cell: str, state: str) -> None:
    shown = only(outputs[cell])
    assert re.search(rf"job [0-9a-f]+: {state}<", shown["text/html"])
    assert "records out" in shown["text/html"]
    assert outputs["cancel"] == []
