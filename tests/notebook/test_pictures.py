"""What notebooks show, in a browser, on light and on dark: nothing is cut off, nothing complains.
`make pictures` writes the picture of the docs; as a test it goes to a folder of its own."""

from __future__ import annotations

import base64
import io
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import browser_kit
import pytest
from strom import (
    DiscardSink,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    count,
    mean,
    sum_,
)
from strom.core.shown import Plotted
from strom.notebook.markup import FONT, element, safe
from strom.notebook.plotting import Drawing
from strom.notebook.records import Records
from strom.notebook.series import Points

pytestmark = [pytest.mark.browser]

THEMES = {"light": ("#ffffff", "#212121", "#f5f5f5"), "dark": ("#111111", "#e0e0e0", "#212121")}

NOON = 1_772_452_800_000


def program() -> tuple[StreamExecutionEnvironment, Any]:
    """Orders of some shops in two kinds of windows; and the stream of one of them."""
    env = StreamExecutionEnvironment.get_execution_environment()
    shops = {"Lyon": 5, "Oslo": 3, "Turin": 2}
    rows = [
        {"shop": shop, "at": NOON + 500 * n, "price": price + (n * price) % 7 + n / 100}
        for n in range(240)
        for shop, price in shops.items()
    ]
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")
    orders = env.from_collection(rows).name("orders").assign_timestamps_and_watermarks(times)
    paid = orders.filter(lambda row: row["price"] > 0).name("paid")
    by_shop = paid.key_by("shop")
    sizes = TumblingEventTimeWindows.of(timedelta(seconds=10))
    sold = by_shop.window(sizes).aggregate(n=count(), sold=sum_("price")).name("takings")
    sliding = SlidingEventTimeWindows.of(timedelta(minutes=1), timedelta(seconds=10))
    usual = by_shop.window(sliding).aggregate(usual=mean("price")).name("usual price")
    usual.sink_to(DiscardSink()).name("prices").set_parallelism(2)
    sold.sink_to(DiscardSink()).name("warehouse")
    return env, sold


def page(theme: str) -> str:
    env, sold = program()
    graph = env._repr_html_()
    with env:
        rows = sold.execute_and_collect(limit=10_000)
    records = Records(["shop", "window_start", "window_end", "n", "sold"], 4, 60)
    records.add(rows[:4])
    points = Points(Plotted("window_end", "sold", "shop", title="sold in ten seconds"))
    points.add(rows)
    drawing, out = Drawing(points), io.BytesIO()
    drawing.show()
    drawing.figure.savefig(out, format="png", dpi=120)
    source = "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
    cells = {
        "env": graph,
        "sold.show(4)": records.html(),
        "sold.plot('window_end', 'sold', by='shop', title='sold in ten seconds')": element(
            "img", src=source, width=800
        ),
    }
    back, ink, box = THEMES[theme]
    code = f"font-family:{FONT};font-size:13px;background:{box};padding:8px 12px;margin:14px 0 8px"
    body = "".join(element("div", safe(one), style=code) + shown for one, shown in cells.items())
    style = f"margin:0;padding:6px 20px 20px;background:{back};color:{ink};font-family:sans-serif"
    return element("body", body, style=style)


@pytest.mark.parametrize("theme", list(THEMES))
def test_picture(theme: str, tmp_path: Path) -> None:
    wanted = os.environ.get("STROM_PICTURES") if theme == "light" else None
    folder = tmp_path if wanted is None else Path(wanted)
    folder.mkdir(parents=True, exist_ok=True)
    complaints: list[str] = []
    with browser_kit.chromium() as browser:
        visit = browser.new_page(viewport={"width": 1300, "height": 700})
        visit.on("console", lambda said: complaints.append(said.text))
        visit.on("requestfailed", lambda request: complaints.append(request.url))
        visit.set_content(page(theme))
        # Each text is within its card, as the browser measures it.
        cut = visit.evaluate(
            """() => [...document.querySelectorAll("g.vertex")].flatMap((card) => {
                const box = card.querySelector("rect").getBBox();
                return [...card.querySelectorAll("text")].filter((text) => {
                    const one = text.getBBox();
                    return one.x < box.x || one.x + one.width > box.x + box.width ||
                        one.y < box.y || one.y + one.height > box.y + box.height;
                }).map((text) => text.textContent);
            })"""
        )
        picture = folder / f"notebook{'-dark' if theme == 'dark' else ''}.png"
        visit.screenshot(path=picture, full_page=True)
    assert cut == []
    assert complaints == []
    assert picture.stat().st_size > 20_000
